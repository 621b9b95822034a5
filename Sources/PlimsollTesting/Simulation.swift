public import Plimsoll

/// Runs readings through the decision code of a manager, without clock, thread or kernel.
public struct Simulation: Sendable {
    /// The policy that decides.
    public var policy: PressurePolicy

    /// Creates a simulation of `policy`.
    public init(policy: PressurePolicy = .standard) { self.policy = policy }

    /// Returns the decisions of `policy` for `trace`.
    public func run(_ trace: PressureTrace) -> Outcome { run(trace.readings) }

    /// Returns the decisions of `policy` for `readings`, which are in order of time.
    public func run(_ readings: [PressureReading]) -> Outcome {
        var decisions = PressureDecisions(policy: policy)
        return Outcome(steps: readings.map { decisions.decide($0) })
    }

    /// The decisions of a simulation.
    public struct Outcome: Sendable, Hashable {
        /// One step for each reading.
        package var steps: [PressureDecisions.Step]

        package init(steps: [PressureDecisions.Step]) { self.steps = steps }

        /// The levels as a drawing.
        public var levels: String { steps.map(\.assessment.level.drawn).joined() }

        /// The actions as a drawing, the most severe action of each reading: `.` none, `w` warn, `r` release, `c`
        /// cancel the largest request, `q` quiesce, `e` expire, `s` suspend, `t` terminate, `m` make room, `n` notice drops.
        public var actions: String { steps.map { $0.actions.max { $0.severity < $1.severity }?.drawn ?? "." }.joined() }

        /// All actions, in order.
        public var allActions: [PressureAction] { steps.flatMap(\.actions) }
    }
}

extension PressureAction {
    /// The character of the action in drawings.
    public var drawn: String {
        switch self {
        case .warn: "w"
        case .release: "r"
        case .cancelLargestRequest: "c"
        case .quiesce: "q"
        case .expireBackgroundTasks: "e"
        case .suspend: "s"
        case .terminate: "t"
        case .makeRoom: "m"
        case .noticeDrops: "n"
        }
    }
}

/// A random number generator that yields the same numbers everywhere for a seed: SplitMix64 (Steele et al., OOPSLA
/// 2014). Print the seed when a test fails.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var generator: SplitMix64

    /// Creates a generator; the sequences of neighbouring seeds are unrelated.
    public init(seed: UInt64) {
        generator = SplitMix64(state: seed &* 0x9e37_79b9_7f4a_7c15 &+ 0x632b_e59b_d9b4_e019)
    }

    public mutating func next() -> UInt64 { generator.next() }
}
