import Foundation
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Learnt bursts and their effects: room, levels, and the time until a level is over.
struct BurstTests {
    private static let limit = ByteCount.mebibytes(256)

    private static func reading(_ seconds: Double, pinned: Double, charged: Int = 0, limit: ByteCount = limit) -> PressureReading {
        let used = ByteCount(Int(pinned * 1_048_576))
        return PressureReading(
            at: .seconds(seconds), boundary: .maximum, limit: limit, usage: used, available: limit - used, charged: .mebibytes(charged))
    }

    /// Assesses a service at `base` MiB that takes `size` MiB for 0.3 s every `pause` seconds.
    private static func bursts(_ assessor: inout PressureAssessor, base: Double, size: Double, from start: Double, count: Int, pause: Double = 1.5)
        -> [PressureAssessment]
    {
        var all: [PressureAssessment] = [], at = start
        for _ in 0..<count {
            // The burst takes its memory within 40 ms, like page faults.
            for step in 1...4 {
                at += 0.01
                all.append(assessor.assess(reading(at, pinned: base + size * Double(step) / 4)))
            }
            for _ in 0..<6 {
                at += 0.05
                all.append(assessor.assess(reading(at, pinned: base + size)))
            }
            while at < start + pause - 0.06 {
                at += 0.05
                all.append(assessor.assess(reading(at, pinned: base)))
            }
        }
        return all
    }

    @Test func `T20 a usual burst raises no level, and memory of that size is kept free for the next one`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(Self.reading(0, pinned: 60))
        var at = 1.0
        for round in 0..<10 {
            let seen = Self.bursts(&assessor, base: 60, size: 100, from: at, count: 1)
            at += 1.5
            let last = seen[seen.count - 1]
            // The first burst may last: 96 MiB of 256 are left, and memory grows by 2.5 GB/s.
            if round == 0 { #expect(seen.contains { $0.level == .warning } && !seen.contains { $0.level == .critical }) }
            if round > 0 { #expect(seen.allSatisfy { $0.level == .normal && $0.shortfall == .zero }, "burst \(round)") }
            #expect(last.level == .normal && last.burst > .mebibytes(97) && last.burst <= .mebibytes(100))
            // 196 MiB are available: the burst and 1.1 of the margin of 51.2 MiB are not room.
            #expect(last.room! > .mebibytes(39) && last.room! < .mebibytes(43), "\(last.room!)")
        }
    }

    @Test func `a burst is forgotten by halves, and the room comes back`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(Self.reading(0, pinned: 60))
        _ = Self.bursts(&assessor, base: 60, size: 100, from: 1, count: 1)
        var burst: [ByteCount] = []
        for second in stride(from: 3.0, through: 363, by: 1) { burst.append(assessor.assess(Self.reading(second, pinned: 60)).burst) }
        #expect(abs((burst[60] - burst[0] * 0.5).bytes) < 1 << 18 && abs((burst[360] - burst[0] * (1 / 64)).bytes) < 1 << 18)
        // The room is that of a limit without bursts.
        #expect(assessor.assess(Self.reading(364, pinned: 60)).room! > .mebibytes(125))
    }

    @Test(arguments: [0.25, 15, 30, 45, 59.9, 60, 60.1, 90, 600])
    func `a gap of any length halves the usual burst once for each half-life`(seconds: Double) {
        var meter = BurstMeter(halfLife: .seconds(60))
        let base = ByteCount.mebibytes(60), burst = ByteCount.gibibytes(1)
        meter.add(pinned: base, charged: .zero, at: .zero)
        meter.add(pinned: base + burst, charged: .zero, at: .milliseconds(10))
        meter.add(pinned: base, charged: .zero, at: .milliseconds(20))
        #expect(meter.usual == burst)
        meter.add(pinned: base, charged: .zero, at: .milliseconds(20) + .seconds(seconds))
        let halves = exp2(-seconds / 60)
        #expect(abs(Double(meter.usual.bytes) / Double(burst.bytes) / halves - 1) < 0.001)
    }

    @Test func `a burst is the rise above the least of the last second, without the growth of caches`() {
        var meter = BurstMeter(halfLife: .seconds(1_000_000)), at = Duration.zero
        func add(pinned: Int, charged: Int) -> (rise: ByteCount, usual: Int, toCome: Int, isUnusual: Bool) {
            meter.add(pinned: .mebibytes(pinned), charged: .mebibytes(charged), at: at)
            at += .milliseconds(100)
            let whole = [meter.usual, meter.toCome].map { Int((Double($0.bytes) / 1_048_576).rounded()) }
            return (meter.rise, whole[0], whole[1], meter.isUnusual)
        }
        #expect(add(pinned: 100, charged: 0) == (.zero, 0, 0, false))
        #expect(add(pinned: 160, charged: 20) == (.mebibytes(40), 0, 0, true))
        // Memory that caches have released may not have reached the kernel yet.
        #expect(add(pinned: 150, charged: 10) == (.mebibytes(30), 0, 0, true))
        // More than half of the rise has gone.
        #expect(add(pinned: 110, charged: 10) == (.zero, 40, 40, false))
        #expect(add(pinned: 125, charged: 10) == (.mebibytes(15), 40, 25, false))
        #expect(add(pinned: 159, charged: 10) == (.mebibytes(49), 40, 0, false))
        #expect(add(pinned: 161, charged: 10) == (.mebibytes(51), 40, 0, true))
        // Exactly half of the rise has gone.
        #expect(add(pinned: 136, charged: 10) == (.mebibytes(26), 40, 14, false))
        #expect(add(pinned: 135, charged: 10).usual == 51)
    }

    @Test func `the least of one to two spans is known, and none after a gap or a step back in time`() {
        var least = RecentLeast(span: .milliseconds(500))
        let steps: [(value: Int, at: Int, least: Int)] = [
            (5, 0, 5), (9, 499, 5), (9, 500, 5), (7, 999, 5), (8, 1000, 7), (3, 1100, 3), (9, 1999, 3), (9, 2400, 3), (6, 2999, 6),
            (9, 3998, 6), (9, 5000, 9), (10, 4000, 10), (11, 4001, 10),
        ]
        for step in steps {
            #expect(least.add(.mebibytes(step.value), at: .milliseconds(step.at)) == .mebibytes(step.least), "at \(step.at) ms")
        }
    }

    @Test func `the half-life and the largest reserve of bursts are settings`() {
        func room(_ thresholds: PressureThresholds, after seconds: Double) -> ByteCount {
            var assessor = PressureAssessor(thresholds: thresholds)
            _ = assessor.assess(Self.reading(0, pinned: 60))
            _ = Self.bursts(&assessor, base: 60, size: 100, from: 1, count: 1)
            var last: PressureAssessment?
            for step in 1...Int(seconds) { last = assessor.assess(Self.reading(2.5 + Double(step), pinned: 60)) }
            return last?.room ?? .zero
        }
        let standard = room(.standard, after: 10)
        #expect(room(PressureThresholds(burstHalfLife: .seconds(5)), after: 10) > standard + .mebibytes(50))
        #expect(room(PressureThresholds(burstReserve: 0.1), after: 10) > standard + .mebibytes(50))
        // Without a reserve the line alone is kept free: 1.38 times the margin of 51.2 MiB of 196 MiB that are
        // available.
        #expect(abs(room(PressureThresholds(burstReserve: 0), after: 10).bytes - ByteCount.mebibytes(125).bytes) < 2 << 20)
        #expect(PressureThresholds(burstHalfLife: .zero).problem != nil && PressureThresholds(burstReserve: 1.1).problem != nil)
    }

    @Test func `T20 a level raised by a burst is over within a second of the burst's end`() {
        for seed in seeds(0..<100) {
            var random = SeededGenerator(seed: seed), assessor = PressureAssessor()
            let base = Double.random(in: 20...100, using: &random), height = Double.random(in: 150...250, using: &random)
            _ = assessor.assess(Self.reading(0, pinned: base))
            var at = 1.0
            for _ in 0..<Int.random(in: 1...40, using: &random) {
                at += 0.02
                _ = assessor.assess(Self.reading(at, pinned: height))
            }
            let end = at
            var last: PressureAssessment?
            while at < end + 1 {
                at += 0.1
                last = assessor.assess(Self.reading(at, pinned: base))
                // The manager admits work at once.
                #expect(last?.present == .normal, "seed \(seed)")
            }
            #expect(last?.level == .normal, "seed \(seed): from \(base) to \(height) MiB")
        }
    }

    @Test func `T20 a level is held as before while hardly more than the margin is free again`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(Self.reading(0, pinned: 100))
        #expect(assessor.assess(Self.reading(1, pinned: 210)).level == .warning)
        // 64 MiB available: 1.25 times the margin, which lets the level fall, but less than caches leave.
        for step in 1..<50 { #expect(assessor.assess(Self.reading(1 + Double(step) / 10, pinned: 192)).level == .warning) }
        // Memory that came within one second and stayed counts as growth for some seconds. The hold of five seconds
        // follows.
        for step in 0..<60 { _ = assessor.assess(Self.reading(6.1 + Double(step) / 10, pinned: 192)) }
        #expect(assessor.assess(Self.reading(12.1, pinned: 192)).level == .normal)
    }

    @Test func `a burst larger than all recent ones and a ramp count as growth, and a usual burst hides neither`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(Self.reading(0, pinned: 60))
        _ = Self.bursts(&assessor, base: 60, size: 60, from: 1, count: 4)
        // 76 MiB more are larger than the usual burst.
        var seen = (1...4).map { assessor.assess(Self.reading(8 + Double($0) * 0.02, pinned: 60 + 26 * Double($0))) }
        #expect(seen.last?.evidence.contains(.growth) == true && seen.last?.level == .warning)
        // A ramp of 30 MiB a second, which in each second is less than the usual burst.
        assessor = PressureAssessor()
        _ = assessor.assess(Self.reading(0, pinned: 30))
        _ = Self.bursts(&assessor, base: 30, size: 60, from: 1, count: 4)
        seen = (0..<120).map { assessor.assess(Self.reading(8 + Double($0) * 0.05, pinned: 30 + 1.5 * Double($0))) }
        // The floor moves twice a second, so that the rate of lasting growth swings about 30.
        let growth = seen[80].growth
        #expect(growth > .mebibytes(22) && growth < .mebibytes(40), "\(growth)")
        #expect(seen.last?.level == .critical || seen.last?.level == .warning)
    }

    @Test func `C76 a leak that looks like bursts still reaches critical and the end`() {
        let policy = PressurePolicy(ladder: .standard.terminating(after: .seconds(8)))
        var decisions = PressureDecisions(policy: policy), levels: Set<PressureLevel> = [], hasEnded = false
        // Each burst of 30 MiB leaves 2 behind.
        for step in 0..<4000 {
            let at = Double(step) * 0.05, cycle = step / 30, phase = step % 30
            let pinned = min(250, 40 + 2 * Double(cycle) + (phase < 8 ? 30 : 0))
            let decided = decisions.decide(Self.reading(at, pinned: pinned))
            levels.insert(decided.assessment.level)
            if decided.actions.contains(where: { $0.endingGrace != nil }) { hasEnded = true }
        }
        #expect(levels == [.normal, .warning, .critical] && hasEnded)
    }

    @Test func `T30 an hour frozen between two bursts neither forgets their size nor counts as a burst`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(Self.reading(0, pinned: 60))
        _ = Self.bursts(&assessor, base: 60, size: 100, from: 1, count: 3)
        let thawed = assessor.assess(Self.reading(3606, pinned: 40))
        #expect(thawed.burst > .mebibytes(90) && thawed.level == .normal && thawed.growth == .zero && thawed.surge == .zero)
        let seen = Self.bursts(&assessor, base: 40, size: 100, from: 3607, count: 1)
        #expect(seen.allSatisfy { $0.level == .normal })
    }

    @Test func `a burst larger than the limit leaves room for caches, and a limit changed in a burst is followed`() {
        var assessor = PressureAssessor()
        let large = ByteCount.gibibytes(4)
        _ = assessor.assess(Self.reading(0, pinned: 10, limit: large))
        var at = 1.0
        for pinned in [10.0, 2000, 10, 10, 10] {
            at += 0.3
            _ = assessor.assess(Self.reading(at, pinned: pinned, limit: large))
        }
        at += 1
        // The limit is lowered to 256 MiB: half of the limit is kept for bursts, not all.
        let small = assessor.assess(Self.reading(at, pinned: 10))
        #expect(small.burst > .mebibytes(1900) && small.room! > .mebibytes(50) && small.room! < .mebibytes(70), "\(small.room!)")
    }

    @Test func `growth of caches and page cache is no burst`() {
        var assessor = PressureAssessor()
        for step in 0..<100 { _ = assessor.assess(Self.reading(Double(step) * 0.05, pinned: 20 + Double(step), charged: step)) }
        let filled = assessor.assess(Self.reading(5, pinned: 120, charged: 100))
        #expect(filled.burst < .mebibytes(1))
        // Usage is at the limit, but the rest is clean pages.
        var reading = Self.reading(6, pinned: 120, charged: 100)
        reading.usage = Self.limit
        #expect(assessor.assess(reading).burst < .mebibytes(1) && assessor.assess(reading).level == .normal)
    }

    // MARK: The heap

    @Test func `the heap is trimmed while caches are held back, less and less often while trimming frees nothing`() {
        // A class, since `#expect` cannot change a captured value.
        final class Held { var trim = IdleTrim() }
        let held = Held(), size = ByteCount.mebibytes(50)
        func isDue(_ seconds: Double, _ pinned: ByteCount = size, isHeldBack: Bool = true) -> Bool {
            held.trim.isDue(at: .seconds(seconds), pinned: pinned, isHeldBack: isHeldBack)
        }
        #expect(!isDue(100, isHeldBack: false))
        var times: [Double] = []
        for step in 0..<6000 {
            let now = 100 + Double(step) / 10
            guard isDue(now) else { continue }
            times.append(now)
            held.trim.finished(fall: .mebibytes(1), took: .milliseconds(2), at: .seconds(now))
        }
        let pauses = zip(times.dropFirst(), times).map { $0 - $1 }
        #expect(times.count == 9 && zip(pauses.dropFirst(), pauses).allSatisfy { $0 >= $1 - 0.2 }, "\(pauses)")
        // Memory that has grown may have been freed since.
        #expect(isDue(700, .mebibytes(60)))
        held.trim.finished(fall: .mebibytes(8), took: .milliseconds(2), at: .seconds(700))
        #expect(!isDue(701, .mebibytes(52)))
        #expect(isDue(702.1, .mebibytes(52)))
        // Trimming takes at most a hundredth of the time.
        held.trim.finished(fall: .mebibytes(100), took: .milliseconds(500), at: .seconds(702.6))
        #expect(!isDue(752, .mebibytes(100)))
        #expect(isDue(753, .mebibytes(100)))
    }
}
