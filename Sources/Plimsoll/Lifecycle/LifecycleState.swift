/// What a process, or a scene of it, is doing. Ordered: of several scenes the greatest is the process's (C94).
public enum LifecycleState: UInt8, Sendable, Hashable, CaseIterable {
    /// Not launched yet, or terminated.
    case notRunning
    /// Frozen: no code runs. Known only afterwards, as nothing announces it (C4).
    case suspended
    /// Executing what must be finished; new work is refused (C3).
    case background
    /// Alive, finishing what is in flight, admitting nothing new; normally brief (C2).
    case inactive
    /// Serving.
    case active
}

extension LifecycleState: Comparable {
    public static func < (left: LifecycleState, right: LifecycleState) -> Bool { left.rawValue < right.rawValue }
}

/// What brought a transition about (C7).
public enum LifecycleCause: String, Sendable, Hashable, CaseIterable {
    /// The process or scene came up.
    case launch
    /// A person, or a program on a person's behalf.
    case `operator`
    /// Nobody had asked for anything for a while.
    case idle
    /// Memory was short.
    case pressure
    /// A signal.
    case signal
    /// The host is about to sleep, or has woken.
    case hostSleep
    /// Something that passes: leadership lost, maintenance of what the service depends on (C8).
    case interruption
    /// The supervisor.
    case supervisor
    /// The process ran again after it was frozen.
    case thaw
    /// The process is being shut down.
    case shutdown
    /// A rehearsal.
    case simulated
}

/// One step from a state to the next, as a value (C10).
public struct LifecycleTransition: Sendable, Hashable {
    /// The state left.
    public var from: LifecycleState
    /// The state entered.
    public var to: LifecycleState
    /// Why.
    public var cause: LifecycleCause
    /// Grows by one a transition, from 1.
    public var sequence: UInt64
    /// When, on the manager's clock.
    public var at: Duration

    /// A transition of those parts.
    public init(from: LifecycleState, to: LifecycleState, cause: LifecycleCause, sequence: UInt64, at: Duration) {
        self.from = from
        self.to = to
        self.cause = cause
        self.sequence = sequence
        self.at = at
    }
}

extension LifecycleTransition: CustomStringConvertible {
    public var description: String { "\(sequence): \(from) → \(to) (\(cause.rawValue))" }
}
