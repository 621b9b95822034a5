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

    @Test func `every property of a unit is compared`() throws {
        let old = try units("a: {command: [/a]}")
        for lines in [
            "command: [/b]", "environment: {A: b}", "directory: /d", "role: deferred", "importance: 1", "memory: {request: 2M}",
            "memory: {limit: 2M}",
            "suspension: stop", "exitsOnSuspend: true", "keepAlive: 10m", "allowance: 5s", "restart: never", "notify: true",
        ] {
            let key = lines.prefix { $0 != ":" }
            let new = try units("a: {\(key == "command" ? "" : "command: [/a], ")\(lines)}")
            let change = UnitsChange(from: old, to: new)
            let changed = change.inPlace + change.restarting
            #expect(changed.count == 1 && changed[0].keys.count == 1 && changed[0].keys[0].hasPrefix(key), "\(lines)")
            #expect(change.restarting.isEmpty != ["command", "environment", "directory"].contains(key), "\(lines)")
        }
    }
}
