/// The difference between two sets of units, as applied when a new units file is loaded while the units run.
package struct UnitsChange: Sendable, Hashable {
    /// A unit in both sets, with the changed keys as named in the units file.
    package struct Change: Sendable, Hashable {
        package var from: ServiceUnit
        package var to: ServiceUnit
        package var keys: [String]
    }

    package var added: [ServiceUnit] = []
    package var removed: [ServiceUnit] = []
    /// Units whose change applies without a restart: limits, weights, importance, role.
    package var inPlace: [Change] = []
    /// Units with another command, environment, directory or origin, none of which a running process can be given. All
    /// other differences take effect at the restart.
    package var restarting: [Change] = []

    /// Compares two sets of units. Each list has the order of the new units; `removed` has that of the old ones.
    ///
    /// - Precondition: names are unique in `old` and in `new`.
    package init(from old: [ServiceUnit], to new: [ServiceUnit]) {
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

    /// Returns the changed keys that need a restart, and those that apply at once.
    private static func differences(_ old: ServiceUnit, _ new: ServiceUnit) -> (start: [String], running: [String]) {
        func names(_ fields: KeyValuePairs<String, Bool>) -> [String] { fields.compactMap { $0.value ? $0.key : nil } }
        let start = names([
            new.origin.key: old.origin != new.origin, "environment": old.environment != new.environment,
            "directory": old.directory != new.directory,
        ])
        let running = names([
            "role": old.role != new.role, "importance": old.importance != new.importance,
            "memory.request": old.memoryRequest != new.memoryRequest,
            "memory.limit": old.memoryLimit != new.memoryLimit, "suspension": old.suspension != new.suspension,
            "exitsOnSuspend": old.exitsOnSuspend != new.exitsOnSuspend, "keepAlive": old.keepAlive != new.keepAlive,
            "allowance": old.allowance != new.allowance, "restart": old.restart != new.restart,
            "notify": old.notify != new.notify,
            "startTime": old.startTime != new.startTime, "notifyAccess": old.notifyAccess != new.notifyAccess,
            "socketOwner": old.socketOwner != new.socketOwner, "trustsWorth": old.trustsWorth != new.trustsWorth,
            "dependencies": old.dependencies != new.dependencies,
        ])
        return (start, running)
    }
}

extension ServiceUnit.Origin {
    /// The key of this origin in a units file.
    fileprivate var key: String {
        switch self {
        case .command: "command"
        case .process: "process"
        case .group: "group"
        }
    }
}
