/// The state of a process or one of its scenes. Ordered: the state of a process is the greatest of its scenes' states
/// (C94).
public enum LifecycleState: UInt8, Sendable, Hashable, CaseIterable {
    /// Not launched yet, or terminated.
    case notRunning
    /// Frozen: no code runs. Known only afterwards, because a freeze is not announced (C4).
    case suspended
    /// Executing work that must be finished; new work is refused (C3).
    case background
    /// Alive, finishing work in flight, admitting no new work; normally brief (C2).
    case inactive
    /// Serving.
    case active
}

extension LifecycleState: Comparable {
    public static func < (left: LifecycleState, right: LifecycleState) -> Bool { left.rawValue < right.rawValue }
}

/// The cause of a transition, or of the connection of a scene (C7).
public enum LifecycleCause: String, Sendable, Hashable, CaseIterable {
    /// The process or scene came up.
    case launch
    /// A person, or a program on a person's behalf.
    case `operator`
    /// No requests for a while.
    case idle
    /// Memory was short.
    case pressure
    /// A signal.
    case signal
    /// The host is about to sleep, or has woken.
    case hostSleep
    /// A temporary condition, such as lost leadership or maintenance of a dependency (C8).
    case interruption
    /// The supervisor.
    case supervisor
    /// The process ran again after it was frozen.
    case thaw
    /// The process is being shut down.
    case shutdown
    /// A user waits for the scene.
    case userRequest
    /// The system has work for the scene.
    case systemRequest
    /// A rehearsal.
    case simulated
}

/// One step from a state to the next, as a value (C10).
public struct LifecycleTransition: Sendable, Hashable {
    /// The state left.
    public var from: LifecycleState
    /// The state entered.
    public var to: LifecycleState
    /// The cause of the step.
    public var cause: LifecycleCause
    /// Sequence number; increases by one with each transition, starting at 1.
    public var sequence: UInt64
    /// Time of the transition, on the manager's clock.
    public var at: Duration

    /// Creates a transition.
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

/// An error of the life cycle: a transition that does not exist, a secret without contents or memory, sealed data.
public struct LifecycleError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The request, the reason for the failure, and the remedy.
    public var description: String

    init(_ description: String) { self.description = description }
}
