import PlimsollSupervisor
import Testing

@Suite struct UnitTests {
    @Test func `a unit is foreground work that may be frozen unless said otherwise`() {
        let unit = Unit(name: "web", origin: .command(["/bin/true"]))
        #expect(unit.role == .foreground && unit.suspension == .freeze && !unit.exitsOnSuspend && unit.restart == .onFailure && unit.importance == 500)
    }
}
