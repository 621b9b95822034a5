/// Something to do about pressure. Data, so that a decision can be printed, compared, replayed and run dry.
public enum PressureAction: Sendable, Hashable {
    /// Tell the observers.
    case warn
    /// Release what is registered, cheapest to rebuild first, until the shortfall is covered, and keep it from growing back.
    /// Done again for as long as a shortfall is seen, unless it proved useless.
    case release
    /// Pause what the application registered as pausable.
    case quiesce
    /// Call the expiration handlers of all background tasks; those still running after `grace` are named and given up.
    case expireBackgroundTasks(grace: Duration)
    /// Ask the supervisor to make this process stand still. The supervisor decides by its own policy; without one connected this is refused.
    case suspend
    /// Have holders of volatile memory give back what keeps a margin free. The manager does it by itself, without a word to observers; never a rung.
    case makeRoom
    /// Look which volatile pages the kernel has taken. The manager does it by itself; never a rung.
    case noticeDrops
    /// Save state within `grace`, then end the process with status 75, so that the kernel need not: if purging proved useless or nothing is held, and a second
    /// reading confirms that memory is short. A rung of it asks again with every reading. A simulation never does it.
    case terminate(grace: Duration)

    /// Whether work or state is lost by it: such a step needs patience and a second reading.
    public var isDestructive: Bool {
        switch self {
        case .warn, .release, .quiesce, .makeRoom, .noticeDrops: false
        case .expireBackgroundTasks, .suspend, .terminate: true
        }
    }

    /// Whether it fires on every reading that calls for it, not once an episode: its performer has conditions of its own.
    var isStanding: Bool {
        switch self {
        case .release, .terminate: true
        case .warn, .quiesce, .expireBackgroundTasks, .suspend, .makeRoom, .noticeDrops: false
        }
    }

    /// The time to save, of an action that ends the process; `nil` for others.
    var endingGrace: Duration? { if case .terminate(let grace) = self { grace } else { nil } }

    /// Whether it belongs to no level: what the manager does by itself while memory is idle.
    var isUpkeep: Bool {
        switch self {
        case .makeRoom, .noticeDrops: true
        case .warn, .release, .quiesce, .expireBackgroundTasks, .suspend, .terminate: false
        }
    }

    /// How far it goes, from 0: a ladder only climbs.
    package var severity: Int {
        switch self {
        case .warn, .makeRoom, .noticeDrops: 0
        case .release: 1
        case .quiesce: 2
        case .expireBackgroundTasks: 3
        case .suspend: 4
        case .terminate: 5
        }
    }
}

extension PressureAction: CustomStringConvertible {
    public var description: String {
        switch self {
        case .warn: "warn"
        case .release: "release"
        case .quiesce: "quiesce"
        case .expireBackgroundTasks(let grace): "expire background tasks (grace \(grace))"
        case .suspend: "suspend"
        case .makeRoom: "make room"
        case .noticeDrops: "notice drops"
        case .terminate(let grace): "terminate (grace \(grace))"
        }
    }
}
