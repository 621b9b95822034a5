import Plimsoll
import PlimsollSupervisor
import Testing

/// Drawings of whole histories: one line per unit, one character per second, and the levels below.
///
/// `=` running, `!` warned, `b` leaving, `z` suspended, `x` ended, `.` stopped; `_` normal, `-` warning, `#` critical.
@Suite struct DrawnScenarioTests {
    private func draw(
        _ units: [SimulatedUnit], for seconds: Int, policy: SupervisorPolicy = .standard, then change: (inout SupervisorSimulation) -> Void = { _ in }
    ) -> String {
        var simulation = SupervisorSimulation(units, limit: .mebibytes(1000), policy: policy)
        simulation.run(for: .seconds(seconds))
        change(&simulation)
        return simulation.drawing
    }

    @Test func `C75 C90 suspended units go first, largest first, and no unit is warned while that is enough`() {
        let drawing = draw(
            [
                SimulatedUnit(unit("web", .foreground, .running, 500), growth: .mebibytes(20), habits: .ignoresWarnings),
                SimulatedUnit(unit("large", .background, .suspended, 200, importance: 900) { $0.isSaved = true }),
                SimulatedUnit(unit("small", .background, .suspended, 100, importance: 1) { $0.isSaved = true }),
            ], for: 24)
        #expect(
            drawing == """
                web   =================!!!!!!!
                large zzx.....................
                small zzzzzzzzzzzzx...........
                      _________________-----##
                """)
    }

    @Test func `C75 C77 K37 the foreground is warned, and the background leaves, is frozen and reclaimed, and comes back with room`() {
        let drawing = draw(
            [
                SimulatedUnit(unit("web", .foreground, .running, 700), habits: .ignoresWarnings),
                SimulatedUnit(unit("job", .background, .running, 260), spare: 0.8, habits: .ignoresWarnings),
            ], for: 12
        ) {
            $0.units[0].growth = .mebibytes(-80)
            $0.run(for: .seconds(5))
            $0.units[0].growth = .zero
            $0.run(for: .seconds(10))
        }
        #expect(
            drawing == """
                web !!!!!======================
                job bbbbbzzzzzzzzzz============
                    #####______________________
                """)
    }

    @Test func `C15 K33 a unit that exits on suspend is ended after the leave time, and one that ignores SIGTERM is killed after the grace`() {
        let drawing = draw(
            [
                SimulatedUnit(unit("web", .foreground, .running, 500)),
                SimulatedUnit(unit("exits", .background, .running, 300, importance: 1) { $0.exitsOnSuspend = true }, habits: .ignoresWarnings),
                SimulatedUnit(unit("stays", .background, .running, 180) { $0.suspension = .never }, habits: [.ignoresWarnings, .ignoresTerm]),
            ], for: 24
        ) {
            $0.limit = .mebibytes(550)
            $0.run(for: .seconds(18))
        }
        #expect(
            drawing == """
                web   !!!!!!==================!!!!!!!!!!!!!!!!!!
                exits bbbbbx....................................
                stays !!!!!!==================bbbbbxxxxxxxxxxx..
                      #####___________________###############---
                """)
    }

    @Test func `C33 a unit is woken for keep-alive and frozen again`() {
        var policy = SupervisorPolicy.standard
        (policy.keepAliveInterval, policy.keepAliveBudget) = (.seconds(12), .seconds(4))
        let voip = unit("voip", .foreground, .suspended) { ($0.keepAlive, $0.backgroundSince) = (.seconds(1), .zero) }
        #expect(
            draw([SimulatedUnit(voip)], for: 40, policy: policy) == """
                voip zzzzzzzzzzz====zzzzzzzz====zzzzzzzz====z
                     ________________________________________
                """)
    }

    @Test func `C75 the less important foreground unit ends after the patience time, and the last one only if that ends the shortage`() {
        let drawing = draw(
            [
                SimulatedUnit(unit("web", .foreground, .running, 500, importance: 900), habits: .ignoresWarnings),
                SimulatedUnit(unit("admin", .foreground, .running, 470), habits: .ignoresWarnings),
            ], for: 14
        ) {
            $0.limit = .mebibytes(510)
            $0.run(for: .seconds(20))
        }
        #expect(
            drawing == """
                web   !!!!!!!!!!!===!!!!!!!!!!x.........
                admin !!!!!!!!!!x.......................
                      ##########____##########__________
                """)
    }

    @Test func `K36 T32 an unconfirmed freeze is taken back, and the unit ended`() {
        let drawing = draw(
            [
                SimulatedUnit(unit("web", .foreground, .running, 500), habits: .ignoresWarnings),
                SimulatedUnit(unit("job", .background, .running, 470), habits: [.ignoresWarnings, .neverFreezes]),
            ], for: 14)
        #expect(
            drawing == """
                web !!!!!!!!!=====
                job bbbbbzz!x.....
                    ########______
                """)
    }
}
