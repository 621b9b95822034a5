import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The exact line of each threshold: to the byte, to the permille of time stalled, to the millisecond of time left.
@Suite struct PressureEdgeTests {
    /// A limit whose margins are whole numbers: a warning below 200 million bytes, critical below 100 million, growth
    /// counts below 400 million.
    let limit: ByteCount = 1_000_000_000
    let plenty: ByteCount = 600_000_000, short: ByteCount = 150_000_000

    private func reading(_ at: Duration, _ available: ByteCount, stall: Duration? = nil, events: PressureReading.EventCounts? = nil)
        -> PressureReading
    {
        PressureReading(
            at: at, boundary: .maximum, limit: limit, usage: limit - available, available: available, stall: stall.map { .init(some: $0) },
            events: events)
    }

    /// Returns the assessment of `available` while memory grows by `growth` bytes a second, which is half of the growth
    /// seen in the last 50 milliseconds.
    private func assess(_ available: ByteCount, growth: Int) -> PressureAssessment {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(.zero, available + ByteCount(growth / 10)))
        let assessment = assessor.assess(reading(.milliseconds(50), available))
        #expect(assessment.growth == ByteCount(growth))
        return assessment
    }

    // MARK: - Up

    @Test(arguments: [
        (200_000_000, PressureLevel.normal), (199_999_999, .warning), (100_000_000, .warning), (99_999_999, .critical), (0, .critical),
    ])
    func `C76 headroom: below a fifth is a warning, below a tenth critical`(available: Int, level: PressureLevel) {
        var assessor = PressureAssessor()
        let assessment = assessor.assess(reading(.zero, ByteCount(available)))
        #expect(assessment.level == level && assessment.evidence == (level == .normal ? [] : .headroom))
    }

    @Test(arguments: [
        (199, PressureLevel.normal, PressureLevel.warning), (200, .warning, .warning), (399, .warning, .warning), (400, .warning, .critical),
        (500, .warning, .critical),
    ])
    func `C76 stall: a fifth of the time is a warning, two fifths critical where headroom is short as well`(
        permille: Int, level: PressureLevel, levelWhenShort: PressureLevel
    ) {
        for (available, expected) in [(plenty, level), (short, levelWhenShort)] {
            var assessor = PressureAssessor()
            _ = assessor.assess(reading(.zero, available, stall: .zero))
            // Half of the ten seconds counts.
            let assessment = assessor.assess(reading(.seconds(10), available, stall: .milliseconds(permille * 20)))
            #expect(Int((assessment.stallShare * 1000).rounded()) == permille)
            #expect(assessment.observed == expected && assessment.level == expected)
            #expect(assessment.evidence.contains(.stall) == (permille >= 200))
        }
    }

    @Test(arguments: [
        (available: 300_000_000, growth: 150_000_000, level: PressureLevel.normal),
        (available: 299_999_999, growth: 150_000_000, level: .warning),
        (available: 300_000_000, growth: 1_200_000_000, level: .warning),
        (available: 299_999_999, growth: 1_200_000_000, level: .warning),
        (available: 400_000_000, growth: 2_000_000_000, level: .normal),
        (available: 399_999_999, growth: 2_000_000_000, level: .warning),
    ])
    func `C76 growth: less than two seconds left is a warning, with less than two fifths free`(
        available: Int, growth: Int, level: PressureLevel
    ) {
        let assessment = assess(ByteCount(available), growth: growth)
        #expect(assessment.level == level && assessment.evidence == (level == .normal ? [] : .growth))
    }

    @Test(arguments: [
        (available: 199_999_999, growth: 600_000_000, level: PressureLevel.warning),
        (available: 199_999_999, growth: 1_000_000_000, level: .critical),
        (available: 200_000_000, growth: 4_000_000_000, level: .warning),
    ])
    func `C76 growth: less than a quarter of a second left is critical once the margin is touched`(
        available: Int, growth: Int, level: PressureLevel
    ) {
        let assessment = assess(ByteCount(available), growth: growth)
        #expect(assessment.level == level && assessment.evidence.contains(.growth))
    }

    @Test(arguments: [
        (PressureReading.EventCounts(high: 1), true), (.init(max: 1), true), (.init(oom: 1), true), (.init(), false), (.init(oomKill: 1), false),
    ])
    func `C76 K24 events: one of any kind counts where headroom is short`(events: PressureReading.EventCounts, counts: Bool) {
        for (available, expected) in [(short, counts), (200_000_000, false)] {
            var assessor = PressureAssessor()
            _ = assessor.assess(reading(.zero, available, events: .init()))
            let assessment = assessor.assess(reading(.seconds(1), available, events: events))
            #expect(assessment.evidence.contains(.limitEvents) == expected)
            #expect(!assessor.assess(reading(.seconds(2), available, events: events)).evidence.contains(.limitEvents), "said once")
        }
    }

    // MARK: - Down

    @Test(arguments: [
        (level: PressureLevel.warning, start: 150_000_000, held: 239_999_999, clear: 240_000_000, below: PressureLevel.normal),
        (.critical, 50_000_000, 119_999_999, 120_000_000, .warning),
    ])
    func `C76 T20 a level falls after five seconds with the margin exceeded by a fifth`(
        level: PressureLevel, start: Int, held: Int, clear: Int, below: PressureLevel
    ) {
        var assessor = PressureAssessor()
        func now(_ at: Duration, _ available: Int) -> PressureLevel { assessor.assess(reading(at, ByteCount(available))).level }
        #expect(now(.zero, start) == level)
        // The margin is exceeded for long enough, but not by enough.
        for second in stride(from: 6, through: 18, by: 6) { #expect(now(.seconds(second), held) == level) }
        #expect(now(.seconds(19), clear) == level && now(.milliseconds(22_999), clear) == level)
        #expect(now(.seconds(23), clear) == below)
    }

    @Test func `C76 T20 a level from stall falls after five seconds with less than five sixths of that share stalled`() {
        var assessor = PressureAssessor()
        var total = Duration.zero, share = 0.0
        /// Returns the level after ten more seconds, with a stall share of `permille`.
        func level(_ second: Int, _ permille: Double) -> PressureLevel {
            total += .seconds((permille / 1000 * 2 - share) * 10)
            let assessment = assessor.assess(reading(.seconds(second), plenty, stall: total))
            share = assessment.stallShare
            #expect(abs(share - permille / 1000) < 0.000_001)
            return assessment.level
        }
        _ = assessor.assess(reading(.zero, plenty, stall: .zero))
        #expect(level(10, 201) == .warning)
        // The line is at 166.7 permille.
        #expect(level(20, 167) == .warning && level(30, 167) == .warning)
        #expect(level(40, 166) == .normal)
    }

    // MARK: - Rates

    @Test func `K6 an unchanged total of stalls repeats the last share for two seconds, and then counts as calm`() {
        var assessor = PressureAssessor()
        func share(_ at: Duration, _ total: Int) -> Double { assessor.assess(reading(at, plenty, stall: .seconds(total))).stallShare }
        _ = share(.zero, 0)
        let first = share(.seconds(10), 4)
        #expect(share(.seconds(11), 4) == first && share(.milliseconds(11_999), 4) == first)
        #expect(share(.seconds(12), 4) < first)
    }

    @Test(arguments: [
        (growth: 100_000_000, reserve: 25_000_000), (growth: 800_000_000, reserve: 200_000_000), (growth: 2_000_000_000, reserve: 200_000_000),
    ])
    func `the shortfall includes a quarter second of growth, at most a margin`(growth: Int, reserve: Int) {
        let calm = assess(short, growth: 0), grown = assess(short, growth: growth)
        // The shortfall reaches 15 % beyond the line of the fall: 276 million bytes.
        #expect(abs(calm.shortfall.bytes - 126_000_000) <= 1 && grown.shortfall == calm.shortfall + ByteCount(reserve))
    }
}

/// The time of the next reading.
@Suite struct PaceTests {
    private func pace(
        _ available: Int, timeLeft: Duration? = nil, holds: Bool = true, rings: Bool = false, cost: Duration = .zero
    ) -> Duration {
        let limit: ByteCount = 1_000_000_000, available = ByteCount(available)
        let reading = PressureReading(at: .zero, limit: limit, usage: limit - available, available: available)
        let assessment = PressureAssessment(at: .zero, timeLeft: timeLeft)
        return Pace.interval(after: assessment, reading, holds: holds, rings: rings, turnCost: cost, thresholds: .standard)
    }

    private func milliseconds(_ duration: Duration) -> Int { Int((duration.inSeconds * 1000).rounded()) }

    @Test(arguments: [
        (400_000_000, 1000), (300_000_000, 750), (299_999_999, 15), (250_000_000, 13), (200_000_000, 10), (100_000_000, 5), (1, 1), (0, 1),
    ])
    func `K23 the pace follows the fastest filling up to one and a half margins, and ordinary growth beyond`(available: Int, expected: Int) {
        #expect(milliseconds(pace(available)) == expected)
        // The kernel notifies at the margin, and no sooner.
        #expect(milliseconds(pace(available, rings: true)) == (available >= 300_000_000 ? 1000 : expected))
        #expect(pace(available, holds: false) == Pace.longest)
    }

    @Test(arguments: [(4000, 500), (800, 100), (80, 10), (8, 1), (4, 1)])
    func `K23 an eighth of the time left passes until the next poll`(left: Int, expected: Int) {
        #expect(milliseconds(pace(400_000_000, timeLeft: .milliseconds(left))) == expected)
        #expect(milliseconds(pace(400_000_000, timeLeft: .milliseconds(left), rings: true)) == expected)
    }

    @Test func `K23 the cost of a poll bounds the number of polls while more than a second is left`() {
        let cost = Duration.milliseconds(1)
        #expect(milliseconds(pace(100_000_000, cost: cost)) == 667)
        #expect(milliseconds(pace(100_000_000, timeLeft: .milliseconds(1001), cost: cost)) == 667)
        #expect(milliseconds(pace(100_000_000, timeLeft: .seconds(1), cost: cost)) == 5)
        #expect(pace(100_000_000, cost: .seconds(1)) == Pace.longest)
    }
}
