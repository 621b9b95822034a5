import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Random walks of readings, and the invariants of every history.
@Suite struct StormTests {
    /// Returns twenty minutes of readings: available memory walks and jumps, and the limit changes now and then.
    func storm(seed: UInt64) -> [PressureReading] {
        var random = SeededGenerator(seed: seed)
        var available = 400.0, limit = 512.0, stall = 0.0, at = 0.0
        return (0..<1200).map { _ in
            at += Double.random(in: 0.001...2, using: &random)
            available += Double.random(in: -60...50, using: &random)
            if Int.random(in: 0..<40, using: &random) == 0 { limit = Double.random(in: 128...1024, using: &random) }
            if Int.random(in: 0..<30, using: &random) == 0 { available = Double.random(in: 0...limit, using: &random) }
            available = min(limit, max(0, available))
            stall += Double.random(in: 0...0.3, using: &random)
            return PressureReading(
                at: .seconds(at), boundary: .maximum, limit: .mebibytes(Int(limit)), usage: .mebibytes(Int(limit - available)),
                available: .mebibytes(Int(available)), stall: .init(some: .seconds(stall)))
        }
    }

    @Test func `the invariants hold in five hundred storms`() {
        var terminations = 0, recoveries = 0
        let policy = PressurePolicy(ladder: .standard.terminating(after: .seconds(8)))
        for seed in seeds(0..<500) {
            let steps = Simulation(policy: policy).run(storm(seed: seed)).steps
            var criticalSince: Duration?
            var released = false, previous = PressureLevel.normal
            for step in steps {
                let assessment = step.assessment
                criticalSince = assessment.observed == .critical ? criticalSince ?? assessment.at : nil
                if criticalSince == nil { released = false }
                if step.actions.contains(.release) { released = true }
                for action in step.actions where action.isDestructive {
                    #expect(assessment.observed == .critical, "seed \(seed): destroyed although a reading showed recovery")
                }
                if step.actions.contains(where: { if case .terminate = $0 { true } else { false } }) {
                    terminations += 1
                    #expect(released, "seed \(seed): ended without releasing first")
                    #expect(criticalSince.map { assessment.at - $0 >= .seconds(8) } == true, "seed \(seed): ended without patience")
                }
                #expect(assessment.level >= assessment.observed, "seed \(seed): the level lags behind a rise")
                #expect(assessment.shortfall >= .zero && assessment.growth >= .zero, "seed \(seed)")
                if assessment.level < previous {
                    recoveries += 1
                    #expect(assessment.level == previous.below, "seed \(seed): fell more than a step")
                }
                previous = assessment.level
            }
        }
        if !hasChosenSeed { #expect(terminations > 0 && recoveries > 0, "the properties were never exercised") }
    }

    @Test func `readings of any shape are judged without trapping`() {
        for seed in seeds(0..<200) {
            var random = SeededGenerator(seed: seed)
            var decisions = PressureDecisions()
            let extremes = [Int.min, -1, 0, 1, 4096, 1 << 40, Int.max]
            for _ in 0..<100 {
                let any = { ByteCount(extremes.randomElement(using: &random)!) }
                let step = decisions.decide(
                    PressureReading(
                        at: .seconds(Double.random(in: -1e9...1e9, using: &random)), limit: Bool.random(using: &random) ? any() : nil, usage: any(),
                        workingSet: any(), available: Bool.random(using: &random) ? any() : nil, resident: any(),
                        stall: .init(some: .seconds(Double.random(in: -1e6...1e12, using: &random)))))
                #expect(step.assessment.shortfall >= .zero, "seed \(seed)")
            }
        }
    }
}
