import Plimsoll
import PlimsollDemos
import PlimsollSupervisor
import PlimsollTesting

/// Times the supervisor's decisions about `units` units while memory is short.
struct DecisionBench {
    let units: Int

    func run() {
        var times: [Double] = []
        for seed in 0..<200 {
            var engine = SupervisorEngine(.standard), fleet = fleet(seed: UInt64(seed))
            for _ in 0..<5 {
                let start = SteadyClock.thread
                let decisions = engine.decide(fleet)
                times.append((SteadyClock.thread - start).milliseconds)
                for decision in decisions { engine.learn(Outcome(decision, at: fleet.at, relief: .zero)) }
                fleet.at += .seconds(3)
            }
        }
        times.sort()
        Output.line(
            "# decisions on \(units) units at critical, \(times.count) of them: longest \(Text.number(times.last ?? 0, decimals: 3)) ms"
        )
        Output.line("figure supervisor.decision-500 \(Text.number(times[times.count / 2], decimals: 3)) ms")
    }

    /// Returns a fleet with units of every kind and state.
    private func fleet(seed: UInt64) -> Fleet {
        var random = SeededGenerator(seed: seed)
        let reports = (0..<units).map { number in
            var report = UnitReport(
                name: "unit-\(number)", role: .allCases.randomElement(using: &random) ?? .background,
                importance: .random(in: 0...1000, using: &random),
                state: [.running, .running, .suspended, .leaving, .stopped].randomElement(using: &random) ?? .running,
                since: .seconds(Int.random(in: 0...1000, using: &random)),
                charge: .mebibytes(.random(in: 1...200, using: &random)))
            report.isSaved = .random(using: &random)
            report.tokens = .random(in: 0...1, using: &random)
            if report.state == .suspended { report.reclaimable = report.charge * 0.3 }
            report.dependencies =
                number > 0 && .random(using: &random) ? ["unit-\(Int.random(in: 0..<number, using: &random))"] : []
            return report
        }
        return Fleet(at: .seconds(1000), level: .critical, shortfall: .gibibytes(1), units: reports)
    }
}
