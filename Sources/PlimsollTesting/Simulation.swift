public import Plimsoll

/// Runs readings through the very decisions a manager makes, without clock, thread or kernel.
public struct Simulation: Sendable {
    /// What decides.
    public var policy: PressurePolicy

    /// A simulation of `policy`.
    public init(policy: PressurePolicy = .standard) { self.policy = policy }

    /// What `policy` makes of `trace`.
    public func run(_ trace: PressureTrace) -> Outcome { run(trace.readings) }

    /// What `policy` makes of `readings`, in order of time.
    public func run(_ readings: [PressureReading]) -> Outcome {
        var decisions = PressureDecisions(policy: policy)
        return Outcome(steps: readings.map { decisions.decide($0) })
    }

    /// What was decided.
    public struct Outcome: Sendable, Hashable {
        /// One a reading.
        public var steps: [PressureDecisions.Step]

        package init(steps: [PressureDecisions.Step]) { self.steps = steps }

        /// The levels in force as a drawing.
        public var levels: String { steps.map(\.assessment.level.drawn).joined() }

        /// The actions as a drawing, the harshest of each reading: `.` none, `w` warn, `r` release, `q` quiesce, `e` expire, `s` suspend, `t` terminate.
        public var actions: String { steps.map { $0.actions.max { $0.severity < $1.severity }?.drawn ?? "." }.joined() }

        /// All actions in order.
        public var allActions: [PressureAction] { steps.flatMap(\.actions) }
    }
}

extension PressureAction {
    /// The action's character in drawings.
    public var drawn: String {
        switch self {
        case .warn: "w"
        case .release: "r"
        case .quiesce: "q"
        case .expireBackgroundTasks: "e"
        case .suspend: "s"
        case .terminate: "t"
        case .makeRoom: "m"
        case .noticeDrops: "n"
        }
    }
}
