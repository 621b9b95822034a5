import Plimsoll
import Yams  // of the trait "Supervisor"

private enum UnitKey: String, CaseIterable {
    case command, process, group, environment, directory, role, importance, memory, suspension, exitsOnSuspend,
        keepAlive, allowance, restart,
        notify, startTime, notifyAccess, socketOwner, trustsWorth, dependencies
}

extension UnitsReader {
    /// Returns the unit that `node` describes; `nil` if the kind of unit is unclear.
    mutating func readUnit(_ name: String, _ node: Node) -> ServiceUnit? {
        var unit = ServiceUnit(name: name, origin: .command([]))
        var places: [UnitKey: Node] = [:]
        forEachPair(node, allowed: UnitKey.allCases.map(\.rawValue)) { reader, name, value in
            guard let key = UnitKey(rawValue: name) else { return }
            places[key] = value
            reader.read(key, value, into: &unit)
        }
        let origins = [UnitKey.command, .process, .group].filter { places[$0] != nil }
        guard origins.count == 1 else {
            let found = origins.isEmpty ? "none" : origins.map(\.rawValue).joined(separator: " and ")
            refuse(node, "has \(found) of the keys command, process and group; exactly one is needed")
            return nil
        }
        check(&unit, places)
        return unit
    }

    private mutating func read(_ key: UnitKey, _ node: Node, into unit: inout ServiceUnit) {
        switch key {
        case .command: if let command = command(node) { unit.origin = .command(command) }
        case .process:
            if let number = integer(node, in: 2...4_194_304, "the number of a process") {
                unit.origin = .process(Int32(number))
            }
        case .group: if let path = path(node) { unit.origin = .group(path) }
        case .environment: unit.environment = environment(node)
        case .directory: unit.directory = path(node)
        case .role: if let role = word(node, ServiceUnit.Role.self) { unit.role = role }
        case .importance:
            if let importance = integer(node, in: 0...1000, "a whole number") { unit.importance = importance }
        case .memory: readMemory(node, into: &unit)
        case .suspension: if let suspension = word(node, ServiceUnit.Suspension.self) { unit.suspension = suspension }
        case .exitsOnSuspend: if let exits = flag(node) { unit.exitsOnSuspend = exits }
        case .keepAlive: unit.keepAlive = duration(node, in: .seconds(600)...(.seconds(86_400)), "from 10m to 24h")
        case .allowance: unit.allowance = duration(node, in: .seconds(1)...(.seconds(86_400)), "from 1s to 24h")
        case .restart: if let restart = word(node, ServiceUnit.Restart.self) { unit.restart = restart }
        case .notify: if let says = flag(node) { unit.notify = says }
        case .startTime: unit.startTime = duration(node, in: .seconds(1)...(.seconds(3600)), "from 1s to 1h")
        case .notifyAccess: if let access = word(node, ServiceUnit.NotifyAccess.self) { unit.notifyAccess = access }
        case .socketOwner: unit.socketOwner = user(node)
        case .trustsWorth: if let trusts = flag(node) { unit.trustsWorth = trusts }
        case .dependencies: unit.dependencies = dependencies(node)
        }
    }

    /// Reports combinations of keys that are contradictory.
    private mutating func check(_ unit: inout ServiceUnit, _ places: [UnitKey: Node]) {
        func refuseIfThere(_ reader: inout UnitsReader, _ keys: [UnitKey], _ message: String) {
            for key in keys {
                guard let node = places[key] else { continue }
                reader.key = key.rawValue
                reader.refuse(node, message)
                reader.key = nil
            }
        }
        if places[.command] == nil {
            // The supervisor can't restart a process that was started elsewhere.
            unit.restart = .never
            refuseIfThere(
                &self, [.environment, .directory, .restart, .notify, .startTime, .socketOwner],
                "is for units with a command; this unit is only observed")
        } else if !unit.notify {
            refuseIfThere(&self, [.startTime], "has no meaning without notify: true")
        }
        if unit.notify, unit.notifyAccess == .none {
            refuseIfThere(
                &self, [.notifyAccess], "is none, so no process could send READY=1, which notify: true waits for")
        }
        if unit.suspension == .never {
            if unit.exitsOnSuspend { refuseIfThere(&self, [.exitsOnSuspend], "has no meaning with suspension: never") }
            refuseIfThere(&self, [.keepAlive], "has no meaning with suspension: never")
        } else if unit.exitsOnSuspend {
            refuseIfThere(&self, [.keepAlive], "has no meaning with exitsOnSuspend: it is never suspended")
        }
        if let request = unit.memoryRequest, let limit = unit.memoryLimit, request > limit {
            refuseIfThere(&self, [.memory], "requests \(request), more than its limit of \(limit)")
        }
    }

    private mutating func readMemory(_ node: Node, into unit: inout ServiceUnit) {
        var (request, limit): (ByteCount?, ByteCount?) = (nil, nil)
        forEachPair(node, allowed: ["request", "limit"]) { reader, name, value in
            if name == "request" { request = reader.bytes(value) } else { limit = reader.bytes(value) }
        }
        (unit.memoryRequest, unit.memoryLimit) = (request, limit)
    }
}
