import PlimsollSupervisor
import Testing

@Suite struct UnitsChangeTests {
    private func units(_ lines: String...) throws -> [ServiceUnit] {
        try UnitsFile("version: 1\nunits:\n" + lines.map { "  \($0)\n" }.joined()).units
    }

    @Test func `a new file's additions, removals, changes in place and restarts are distinguished`() throws {
        let old = try units(
            "a: {command: [/a]}", "b: {command: [/b], importance: 1}", "c: {command: [/c], environment: {K: v}}", "d: {command: [/d]}",
            "e: {process: 5}")
        let new = try units(
            "n: {command: [/n]}", "e: {group: /g}", "c: {command: [/c], environment: {K: w}, role: deferred}",
            "b: {command: [/b], importance: 2, memory: {limit: 1G}}",
            "a: {command: [/a]}")
        let change = UnitsChange(from: old, to: new)
        #expect(change.added.map(\.name) == ["n"] && change.removed.map(\.name) == ["d"])
        #expect(change.inPlace.map(\.to.name) == ["b"] && change.inPlace.first?.keys == ["importance", "memory.limit"])
        #expect(change.restarting.map(\.to.name) == ["e", "c"])
        #expect(change.restarting.first?.keys == ["group"] && change.restarting.last?.keys == ["environment", "role"])
        let none = UnitsChange(from: [], to: [])
        #expect(none.added.isEmpty && none.removed.isEmpty && none.inPlace.isEmpty && none.restarting.isEmpty)
        #expect(UnitsChange(from: old, to: old) == none)
    }

    /// Returns the stored properties of a unit by name, as text.
    private func properties(of unit: ServiceUnit) -> [String: String] {
        Dictionary(uniqueKeysWithValues: Mirror(reflecting: unit).children.map { ($0.label ?? "", "\($0.value)") })
    }

    @Test func `every property of a unit is compared`() throws {
        let base = ["command": "[/a]", "notify": "true"]
        func units(_ keys: [String: String]) throws -> [ServiceUnit] {
            try self.units("a: {\(keys.map { "\($0.key): \($0.value)" }.joined(separator: ", "))}", "b: {command: [/b]}")
        }
        let old = try units(base)
        var compared: Set = ["name"]
        for (key, value) in [
            ("command", "[/b]"), ("environment", "{A: b}"), ("directory", "/d"), ("role", "deferred"), ("importance", "1"),
            ("memory", "{request: 2M}"), ("memory", "{limit: 2M}"), ("suspension", "stop"), ("exitsOnSuspend", "true"),
            ("keepAlive", "10m"), ("allowance", "5s"), ("restart", "never"), ("notify", "false"), ("startTime", "5s"),
            ("notifyAccess", "all"), ("socketOwner", "7"), ("trustsWorth", "true"), ("dependencies", "[b]"),
        ] {
            let new = try units(base.merging([key: value]) { $1 })
            let change = UnitsChange(from: old, to: new)
            let changed = change.inPlace + change.restarting
            #expect(changed.count == 1 && changed[0].keys.count == 1 && changed[0].keys[0].hasPrefix(key), "\(key): \(value)")
            #expect(change.restarting.isEmpty != ["command", "environment", "directory"].contains(key), "\(key): \(value)")
            let after = properties(of: new[0])
            compared.formUnion(properties(of: old[0]).filter { after[$0.key] != $0.value }.keys)
        }
        // A new property needs a line above, and a comparison.
        #expect(compared == Set(properties(of: old[0]).keys))
    }
}
