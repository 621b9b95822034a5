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

    /// Times divisions of the memory for caches among the units, each with a curve of the most points.
    func runDividing() {
        var policy = SupervisorPolicy()
        policy.division = .byWorth
        var engine = SupervisorEngine(policy), times: [Double] = [], random = SeededGenerator(seed: 1)
        var shares = [ProcessShare?](repeating: nil, count: units)
        let total = units << 24
        for second in 1...60 {
            let reports = (0..<units).map { number in
                var report = UnitReport(
                    name: "unit-\(number)", role: .foreground, importance: 500, state: .running, since: .zero,
                    charge: .mebibytes(32))
                (report.hasLink, report.trustsWorth, report.share) = (true, true, shares[number])
                let load = Double.random(in: 1e5...1e8, using: &random),
                    scale = Double.random(in: 1...64, using: &random)
                let points = (1...Division.mostPoints).map { place in
                    let part = Double(place) / Double(Division.mostPoints)
                    return MissCurve.Point(
                        bytes: Int(part * Double(total)), misses: load / (1 + part * scale * Double(units)))
                }
                report.worth = WorthOffer(
                    held: shares[number]?.bytes ?? 1 << 24, room: 0, curve: MissCurve(requests: load, points: points))
                report.worthAt = .seconds(second)
                return report
            }
            var fleet = Fleet(at: .seconds(second), level: .normal, shortfall: .zero, units: reports)
            fleet.room = .zero
            let start = SteadyClock.thread
            let decisions = engine.decide(fleet)
            // In the first seconds units are asked.
            if second > 2 { times.append((SteadyClock.thread - start).milliseconds) }
            for decision in decisions {
                guard case .share(let share) = decision.action, let number = Int(decision.unit.dropFirst(5)) else {
                    continue
                }
                shares[number] = share
            }
        }
        times.sort()
        Output.line(
            "# divisions among \(units) units, \(times.count) of them: longest \(Text.number(times.last ?? 0, decimals: 3)) ms"
        )
        Output.line("figure worth.decision-500 \(Text.number(times[times.count / 2], decimals: 3)) ms")
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
