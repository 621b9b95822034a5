public import Plimsoll

/// The details of a step, passed to handlers: the states, the cause and the deadline (C10).
public struct LifecycleContext: Sendable {
    /// The state being left.
    public var from: LifecycleState
    /// The state being entered.
    public var to: LifecycleState
    /// The cause of the step.
    public var cause: LifecycleCause
    /// Sequence number; increases by one with each transition.
    public var sequence: UInt64
    /// The deadline for all handlers of the change together, in the manager's running time (C26, C30).
    public var deadline: Duration
    /// The gap that has just ended, for handlers called on the way back from a gap.
    public var gap: RunningGap?

    let heartbeat: Heartbeat
    /// True if the change ends with this step: the state entered is the state requested.
    var isLast = true

    /// The remaining time for all handlers together.
    public var timeRemaining: Duration { max(.zero, deadline - heartbeat.running) }

    init(_ transition: LifecycleTransition, deadline: Duration, heartbeat: Heartbeat, gap: RunningGap? = nil) {
        (from, to, cause, sequence) = (transition.from, transition.to, transition.cause, transition.sequence)
        self.deadline = deadline
        self.heartbeat = heartbeat
        self.gap = gap
    }
}

/// The result of a request to change the state.
public struct LifecycleReport: Sendable, Hashable {
    /// The state requested.
    public var target: LifecycleState
    /// The steps that were taken, in order.
    public var transitions: [LifecycleTransition] = []
    /// Handlers that still ran at the deadline, with their running times (C27). Their steps were taken without them.
    public var overran: [HandlerTiming] = []
    /// Handlers that were not called by the deadline, because others had held them up.
    public var unreached: [String] = []
    /// The failures, each with the reason.
    public var failures: [String] = []
    /// The slowest handlers, slowest first; at most 8 (C61).
    public var slowest: [HandlerTiming] = []
    /// The total time, in running time.
    public var took: Duration = .zero
    /// True if another state was requested before this one was reached. Opposite steps that had not begun were left
    /// out (C9).
    public var isSuperseded = false

    /// True if no handler overran or failed.
    var isClean: Bool { overran.isEmpty && unreached.isEmpty && failures.isEmpty }

    mutating func add(_ outcome: FanOut.Outcome) {
        overran += outcome.overran
        unreached += outcome.unreached
        failures += outcome.failures
        slowest = Array((slowest + outcome.slowest).sorted { $0.took > $1.took }.prefix(8))
    }
}

extension LifecycleReport: CustomStringConvertible {
    public var description: String {
        var text = transitions.isEmpty ? "\(target)" : transitions.map(\.description).joined(separator: ", ")
        text += ", \(took.inSeconds * 1000) ms"
        if !overran.isEmpty {
            text +=
                ", overran: "
                + overran.map { "\($0.name) (\($0.origin), \($0.took.inSeconds) s)" }.joined(separator: ", ")
        }
        if !unreached.isEmpty { text += ", not reached: " + unreached.joined(separator: ", ") }
        if !failures.isEmpty { text += ", failed: " + failures.joined(separator: ", ") }
        return isSuperseded ? text + ", superseded" : text
    }
}
