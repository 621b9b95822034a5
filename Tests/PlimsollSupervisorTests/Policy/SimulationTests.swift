import Plimsoll
import PlimsollSupervisor
import Testing

@Suite struct SimulationTests {
    private func simulate(_ units: [SimulatedUnit], limit: Int, for seconds: Int, policy: SupervisorPolicy = .standard) -> SupervisorSimulation {
        var simulation = SupervisorSimulation(units, limit: .mebibytes(limit), policy: policy)
        simulation.run(for: .seconds(seconds))
        return simulation
    }

    @Test func `a fleet that obeys keeps all units`() {
        let run = simulate(
            [
                SimulatedUnit(unit("web", .foreground, .running, 400, importance: 900), growth: .mebibytes(8), spare: 0.5),
                SimulatedUnit(unit("job", .background, .running, 400), spare: 0.5),
            ], limit: 1000, for: 20)
        #expect(run.drawing.contains("!") && !run.decisions.contains { $0.action.kind == .end }, "\n\(run.drawing)")
    }

    @Test func `a background unit leaves, is frozen and ends before the growing foreground unit`() {
        let run = simulate(
            [
                SimulatedUnit(unit("web", .foreground, .running, 500, importance: 900), growth: .mebibytes(30), habits: .ignoresWarnings),
                SimulatedUnit(unit("job", .background, .running, 400), habits: .ignoresWarnings),
            ], limit: 1000, for: 20)
        #expect(!run.line("web").contains("x") && run.line("job").contains("b") && run.line("job").contains("x"), "\n\(run.drawing)")
    }

    @Test(arguments: [
        SimulatedUnit.Habits.refusesToLeave, .neverFreezes, .comesStraightBack, .ignoresTerm, [.neverFreezes, .ignoresTerm, .refusesToLeave],
    ])
    func `the foreground unit survives beside a background unit of any behaviour`(habits: SimulatedUnit.Habits) {
        let run = simulate(
            [
                SimulatedUnit(unit("web", .foreground, .running, 500, importance: 900), growth: .mebibytes(3), habits: .ignoresWarnings),
                SimulatedUnit(unit("job", .background, .running, 460), habits: habits.union(.ignoresWarnings)),
            ], limit: 1000, for: 50)
        #expect(!run.line("web").contains("x") && run.line("job").contains("x"), "\n\(run.drawing)")
    }

    @Test func `a dry run changes nothing`() {
        var policy = SupervisorPolicy.standard
        policy.isDryRun = true
        let units = [
            SimulatedUnit(unit("web", .foreground, .running, 500, importance: 900)), SimulatedUnit(unit("job", .background, .running, 460)),
            SimulatedUnit(unit("old", .background, .suspended, 20)),
        ]
        let run = simulate(units, limit: 1000, for: 60, policy: policy)
        #expect(run.units.map(\.report) == units.map(\.report) && !run.decisions.isEmpty && run.decisions.allSatisfy(\.isDryRun))
        // No unit receives the same notice more often than every 25 s.
        #expect(run.decisions.count < 25)
    }

    @Test func `the same seed gives the same history, with reasons`() {
        let units = [
            SimulatedUnit(unit("web", .foreground, .running, 500, importance: 900), growth: .mebibytes(30), spare: 0.1),
            SimulatedUnit(unit("job", .background, .running, 400), spare: 0.5),
        ]
        let first = simulate(units, limit: 1000, for: 30), second = simulate(units, limit: 1000, for: 30)
        #expect(first.drawing == second.drawing && first.journal == second.journal)
        let text = Explanation(of: "job", from: first.journal).description
        #expect(text.contains("The unit was sent to the background") && text.contains("That took"))
    }
}
