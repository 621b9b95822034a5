/// A response to pressure. A plain value, so that a decision can be printed, compared, replayed and run dry.
public enum PressureAction: Sendable, Hashable {
    /// Notify the observers.
    case warn
    /// Release registered purgeables, cheapest to rebuild first, until the shortfall is covered, and limit their
    /// growth. Repeated while there is a shortfall, unless the release proved useless.
    case release
    /// Cancel the request that holds most memory, if that is more than `least`: the largest budget of
    /// `withMemoryBudget`. One request at a time; the next one at a reading after the first has ended, or has not ended
    /// for a second. Off unless a ladder has this rung. A cancelled request is answered with an error, as a refused one.
    case cancelLargestRequest(above: ByteCount)
    /// Pause the pausable work that the application registered.
    case quiesce
    /// Call the expiration handlers of all background tasks. Tasks still running after `grace` are named and given up.
    case expireBackgroundTasks(grace: Duration)
    /// Ask the supervisor to freeze this process. The supervisor decides by a policy; without a connected supervisor
    /// the request is refused.
    case suspend
    /// Make volatile purgeables release enough memory to keep a margin free. The manager does that by itself, without
    /// notice to observers; never a rung.
    case makeRoom
    /// Check which volatile pages the kernel has taken. The manager does that by itself; never a rung.
    case noticeDrops
    /// Save state within `grace`, then end the process with status 75 before the kernel kills it. Conditions: purging
    /// proved useless or nothing is held, and a second reading confirms that memory is short. The rung asks again with
    /// every reading. A simulation never ends the process.
    case terminate(grace: Duration)

    /// True if work or state is lost: such a step needs patience and a second reading.
    public var isDestructive: Bool {
        switch self {
        case .warn, .release, .cancelLargestRequest, .quiesce, .makeRoom, .noticeDrops: false
        case .expireBackgroundTasks, .suspend, .terminate: true
        }
    }

    /// True if the action fires on every reading that calls for it, not once an episode: the performer checks further
    /// conditions.
    var isLevelTriggered: Bool {
        switch self {
        case .release, .cancelLargestRequest, .terminate: true
        case .warn, .quiesce, .expireBackgroundTasks, .suspend, .makeRoom, .noticeDrops: false
        }
    }

    /// Time to save for an action that ends the process; `nil` for other actions.
    var endingGrace: Duration? { if case .terminate(let grace) = self { grace } else { nil } }

    /// True for actions of no level, which the manager performs by itself while memory is idle.
    var isUpkeep: Bool { self == .makeRoom || self == .noticeDrops }

    /// Severity, from 0: a ladder only climbs.
    package var severity: Int {
        switch self {
        case .warn, .makeRoom, .noticeDrops: 0
        case .release: 1
        case .cancelLargestRequest: 2
        case .quiesce: 3
        case .expireBackgroundTasks: 4
        case .suspend: 5
        case .terminate: 6
        }
    }
}

extension PressureAction: CustomStringConvertible {
    public var description: String {
        switch self {
        case .warn: "warn"
        case .release: "release"
        case .cancelLargestRequest(let least): "cancel largest request (above \(least))"
        case .quiesce: "quiesce"
        case .expireBackgroundTasks(let grace): "expire background tasks (grace \(grace))"
        case .suspend: "suspend"
        case .makeRoom: "make room"
        case .noticeDrops: "notice drops"
        case .terminate(let grace): "terminate (grace \(grace))"
        }
    }
}
