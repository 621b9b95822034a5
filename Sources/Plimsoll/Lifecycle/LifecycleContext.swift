/// What a handler of the life cycle is told: which step is being taken, why, and until when it may take (C10).
public struct LifecycleContext: Sendable {
    /// The state being left.
    public var from: LifecycleState
    /// The state being entered.
    public var to: LifecycleState
    /// Why.
    public var cause: LifecycleCause
    /// Grows by one a transition.
    public var sequence: UInt64
    /// When all handlers of this way must have returned, in the manager's running time. One deadline for all of them (C26, C30).
    public var deadline: Duration
    /// The gap just ended, for those called on the way back from one.
    public var gap: RunningGap?

    let heartbeat: Heartbeat
    /// Whether the way ends with this step: the state entered is the one asked for.
    var isLast = true

    /// What is left of the time for all.
    public var timeRemaining: Duration { max(.zero, deadline - heartbeat.running) }

    init(_ transition: LifecycleTransition, deadline: Duration, heartbeat: Heartbeat, gap: RunningGap? = nil) {
        (from, to, cause, sequence) = (transition.from, transition.to, transition.cause, transition.sequence)
        self.deadline = deadline
        self.heartbeat = heartbeat
        self.gap = gap
    }
}

/// How long one handler took.
public struct HandlerTiming: Sendable, Hashable {
    /// The name it was registered under.
    public var name: String
    /// File and line of its registration.
    public var origin: String
    /// How long it took; for one that overran, how long it had been running.
    public var took: Duration
}

/// What came of a request to change the state.
public struct LifecycleReport: Sendable, Hashable {
    /// The state asked for.
    public var target: LifecycleState
    /// The steps that were taken, in order.
    public var transitions: [LifecycleTransition] = []
    /// Handlers that still ran at the deadline, and for how long (C27). Their steps were taken without them.
    public var overran: [HandlerTiming] = []
    /// Handlers that were not called any more at the deadline, because others had held them up.
    public var unreached: [String] = []
    /// What failed, each with its reason.
    public var failures: [String] = []
    /// The slowest handlers, slowest first; at most 8 (C61).
    public var slowest: [HandlerTiming] = []
    /// How long it all took, in running time.
    public var took: Duration = .zero
    /// Whether something else was asked for before this state was reached. Opposite steps that had not begun were left out (C9).
    public var isSuperseded = false

    /// Whether nothing overran or failed.
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
        if !overran.isEmpty { text += ", overran: " + overran.map { "\($0.name) (\($0.origin), \($0.took.inSeconds) s)" }.joined(separator: ", ") }
        if !unreached.isEmpty { text += ", not reached: " + unreached.joined(separator: ", ") }
        if !failures.isEmpty { text += ", failed: " + failures.joined(separator: ", ") }
        return isSuperseded ? text + ", superseded" : text
    }
}
