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
    /// Ask the supervisor to freeze this process.
    case suspend
    /// Save state within `grace`, then end the process.
    case terminate(grace: Duration)

    /// Whether work or state is lost by it: such a step needs patience and a second reading.
    public var isDestructive: Bool {
        switch self {
        case .warn, .release, .quiesce: false
        case .expireBackgroundTasks, .suspend, .terminate: true
        }
    }

    /// Whether it fires on every reading that calls for it, not once an episode: its performer has conditions of its own.
    var isStanding: Bool {
        switch self {
        case .release, .terminate: true
        case .warn, .quiesce, .expireBackgroundTasks, .suspend: false
        }
    }

    /// How far it goes, from 0: a ladder only climbs.
    package var severity: Int {
        switch self {
        case .warn: 0
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
        case .terminate(let grace): "terminate (grace \(grace))"
        }
    }
}
