/// What is different between two sets of units: what taking up a new units file while everything runs comes to.
public struct UnitsChange: Sendable, Hashable {
    /// A unit that is in both, and the names of what differs, as the units file calls them.
    public struct Change: Sendable, Hashable {
        public var from: ServiceUnit
        public var to: ServiceUnit
        public var keys: [String]
    }

    public var added: [ServiceUnit] = []
    public var removed: [ServiceUnit] = []
    /// What can be done to it as it runs: limits, weights, importance, role.
    public var inPlace: [Change] = []
    /// It has another command, environment, directory or origin, which a process cannot be given. Whatever else differs comes with its start.
    public var restarting: [Change] = []

    public var isEmpty: Bool { added.isEmpty && removed.isEmpty && inPlace.isEmpty && restarting.isEmpty }

    /// Each list is in the order of the new units, `removed` in that of the old ones.
    ///
    /// - Precondition: no name is there twice in `old` or in `new`.
    public init(from old: [ServiceUnit], to new: [ServiceUnit]) {
        let before = Dictionary(uniqueKeysWithValues: old.map { ($0.name, $0) })
        let after = Set(new.map(\.name))
        removed = old.filter { !after.contains($0.name) }
        for unit in new {
            guard let last = before[unit.name] else {
                added.append(unit)
                continue
            }
            let (start, running) = Self.differences(last, unit)
            let change = Change(from: last, to: unit, keys: start + running)
            if !start.isEmpty { restarting.append(change) } else if !running.isEmpty { inPlace.append(change) }
        }
    }

    /// What only a new start takes up, and what is taken up at once.
    private static func differences(_ old: ServiceUnit, _ new: ServiceUnit) -> (start: [String], running: [String]) {
        func names(_ fields: KeyValuePairs<String, Bool>) -> [String] { fields.compactMap { $0.value ? $0.key : nil } }
        let start = names([
            new.origin.key: old.origin != new.origin, "environment": old.environment != new.environment, "directory": old.directory != new.directory,
        ])
        let running = names([
            "role": old.role != new.role, "importance": old.importance != new.importance, "memory.request": old.memoryRequest != new.memoryRequest,
            "memory.limit": old.memoryLimit != new.memoryLimit, "suspension": old.suspension != new.suspension,
            "exitsOnSuspend": old.exitsOnSuspend != new.exitsOnSuspend, "keepAlive": old.keepAlive != new.keepAlive,
            "allowance": old.allowance != new.allowance, "restart": old.restart != new.restart, "notify": old.notify != new.notify,
            "startTime": old.startTime != new.startTime, "notifyAccess": old.notifyAccess != new.notifyAccess,
            "socketOwner": old.socketOwner != new.socketOwner, "dependencies": old.dependencies != new.dependencies,
        ])
        return (start, running)
    }
}

extension ServiceUnit.Origin {
    /// Its key in a units file.
    fileprivate var key: String {
        switch self {
        case .command: "command"
        case .process: "process"
        case .group: "group"
        }
    }
}
