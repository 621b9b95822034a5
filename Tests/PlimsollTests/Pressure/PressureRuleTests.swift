import Testing

@testable import Plimsoll

/// Rules of the assessor beside its lines: gaps in time, holds, and the reserve for bursts.
@Suite struct PressureRuleTests {
    /// A limit whose margins are whole numbers: a warning below 200 million bytes, critical below 100 million, and
    /// caches leave 276 million free.
    private static let limit: ByteCount = 1_000_000_000
    private let plenty: ByteCount = 600_000_000, short: ByteCount = 150_000_000

    private func reading(
        _ at: Duration, _ available: ByteCount, limit: ByteCount = Self.limit, stall: Duration? = nil,
        events: PressureReading.EventCounts? = nil, announced: PressureLevel? = nil
    ) -> PressureReading {
        PressureReading(
            at: at, boundary: .maximum, limit: limit, usage: limit - available, available: available,
            stall: stall.map { .init(some: $0) }, events: events, announced: announced)
    }

    // MARK: - Time

    @Test func `a gap of thirty seconds keeps the stall share, and a longer one forgets the share`() {
        let gaps: [(gap: Duration, isKept: Bool)] = [
            (.seconds(30), true), (Duration.seconds(30) + .nanoseconds(1), false),
        ]
        for (gap, isKept) in gaps {
            var assessor = PressureAssessor()
            _ = assessor.assess(reading(.zero, plenty, stall: .zero))
            let before = assessor.assess(reading(.seconds(10), plenty, stall: .seconds(4)))
            let after = assessor.assess(reading(.seconds(10) + gap, plenty, stall: .seconds(4)))
            #expect(before.stallShare > 0 && (after.stallShare > 0) == isKept, "\(gap)")
        }
    }

    @Test(arguments: [(0, true), (30, true), (31, false), (-1, false)])
    func `a reading is compared with the last one, unless time has run backwards or a long gap was between`(
        second: Int, isCompared: Bool
    ) {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(.zero, short, events: .init(max: 1)))
        let next = assessor.assess(
            reading(.seconds(second), short, limit: Self.limit - 1_000_000, events: .init(max: 2)))
        #expect(next.evidence.contains(.limitEvents) == isCompared)
        #expect(next.evidence.contains(.limitLowered) == isCompared)
    }

    @Test(arguments: [31, -100]) func `a level held over a long gap or a step back in time is held anew`(second: Int) {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(.zero, short))
        let after = assessor.assess(reading(.seconds(second), plenty))
        #expect(after.level == .warning && after.present == .normal)
        #expect(after.heldUntil == .seconds(second + 5) && after.heldFor == .headroom)
    }

    @Test func `without holds a level stays while readings support the level, and falls with the first that does not`() {
        var thresholds = PressureThresholds.standard
        (thresholds.fallHold, thresholds.recoveryHold) = (.zero, .zero)
        var assessor = PressureAssessor(thresholds: thresholds)
        for second in 0..<4 { #expect(assessor.assess(reading(.seconds(second), short)).level == .warning, "\(second)") }
        #expect(assessor.assess(reading(.seconds(4), plenty)).level == .normal)
    }

    @Test(arguments: [(239_999_999, PressureLevel.critical), (240_000_000, .warning)])
    func `stall keeps the level critical while memory is short, and at warning once the margin is exceeded by a fifth`(
        available: Int, level: PressureLevel
    ) {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(.zero, 50_000_000, stall: .zero))
        #expect(assessor.assess(reading(.seconds(10), 50_000_000, stall: .seconds(8))).level == .critical)
        let after = assessor.assess(reading(.seconds(16), ByteCount(available), stall: .seconds(13)))
        #expect(after.evidence == .stall && after.observed == .warning)
        #expect(after.present == level && after.level == level)
    }

    @Test(arguments: [(400, PressureLevel.critical), (300, .warning)])
    func `less stall than five sixths of what is critical keeps no level critical where memory is short`(
        milliseconds: Int, level: PressureLevel
    ) {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(.zero, 50_000_000, stall: .zero))
        _ = assessor.assess(reading(.seconds(10), 50_000_000, stall: .milliseconds(milliseconds * 20)))
        let after = assessor.assess(
            reading(.seconds(20), 210_000_000, stall: .milliseconds(milliseconds * 30)))
        #expect(after.observed == .warning && after.present == level)
    }

    @Test(arguments: [-100_000, 100_000]) func `only differences of time mean anything`(seconds: Int) {
        var here = PressureAssessor(), there = PressureAssessor(), at = Duration.zero
        let shift = Duration.seconds(seconds)
        for step in 0..<400 {
            let millions = [900, 350, 700, 650]
            let available = ByteCount((step < 4 ? millions[step] : (step * 7919 + 90) % 97 * 10) * 1_000_000)
            let stall = Duration.milliseconds(step * 17)
            let expected = here.assess(reading(at, available, stall: stall))
            var moved = there.assess(reading(at + shift, available, stall: stall))
            moved.at -= shift
            moved.heldUntil = moved.heldUntil.map { $0 - shift }
            #expect(moved == expected, "step \(step)")
            at += step % 60 == 59 ? .seconds(45) : .milliseconds(130)
        }
    }

    // MARK: - Growth

    @Test(arguments: [(150_000_000, PressureLevel.warning), (149_999_999, .critical)])
    func `growth that leaves a quarter of a second is a warning, and critical with a byte less`(
        available: Int, level: PressureLevel
    ) {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(.zero, ByteCount(available + 60_000_000)))
        let assessment = assessor.assess(reading(.milliseconds(50), ByteCount(available)))
        #expect(assessment.growth == 600_000_000 && assessment.evidence == [.headroom, .growth])
        #expect(assessment.observed == level)
    }

    @Test(arguments: [(1_200_000_000, PressureLevel.warning), (1_199_999_999, .critical)])
    func `above the margin, growth is critical once it has lasted, with less than a quarter of a second left`(
        available: Int, level: PressureLevel
    ) {
        var assessor = PressureAssessor()
        // The margin is a gibibyte. Within two seconds, half of the growth of a second counts as lasting: 4.8 GB a
        // second.
        let limit: ByteCount = 40_000_000_000, step: ByteCount = 9_600_000_000, last = ByteCount(available)
        _ = assessor.assess(reading(.zero, last + step + step, limit: limit))
        _ = assessor.assess(reading(.seconds(1), last + step, limit: limit))
        let assessment = assessor.assess(reading(.seconds(2), last, limit: limit))
        #expect(assessment.observed == level && assessment.evidence == .growth)
    }

    // MARK: - Memory to free, and room

    @Test func `caches may take what is above the line, and nothing below`() {
        var calm = PressureAssessor(), tight = PressureAssessor()
        let room = calm.assess(reading(.zero, plenty)), none = tight.assess(reading(.zero, short))
        #expect(room.room == 324_000_000 && room.roomToLine == 324_000_000)
        #expect(none.room == .zero && none.roomToLine == .zero)
    }

    @Test func `at the height of a usual burst only a tenth above the margin is to be freed`() {
        var assessor = PressureAssessor(), last = PressureAssessment(at: .zero)
        // A burst of 150 million bytes, then other memory that stays, then the burst again.
        let readings: [(Duration, ByteCount)] = [
            (.zero, 400_000_000), (.seconds(1), 250_000_000), (.milliseconds(1100), 400_000_000),
            (.seconds(3), 300_000_000), (.seconds(5), 150_000_000),
        ]
        for (at, available) in readings { last = assessor.assess(reading(at, available)) }
        #expect(last.observed == .warning && last.evidence == .headroom)
        // 220 million bytes less the 150 that are left.
        #expect(last.shortfall == 70_000_000)
    }

    @Test func `at the beginning of a usual burst no more is to be freed than without bursts`() {
        var assessor = PressureAssessor(), last = PressureAssessment(at: .zero)
        let readings: [(Duration, ByteCount)] = [
            (.zero, 400_000_000), (.seconds(1), 250_000_000), (.milliseconds(1100), 400_000_000),
            (.seconds(3), 300_000_000), (.seconds(5), 200_000_000), (.seconds(7), 150_000_000),
        ]
        for (at, available) in readings { last = assessor.assess(reading(at, available)) }
        #expect(last.observed == .warning && last.burst > 130_000_000 && last.growth > 40_000_000)
        // 276 million bytes and a quarter second of growth, less the 150 that are left.
        #expect(last.shortfall == ByteCount(126_000_000) + last.growth * 0.25)
    }

    // MARK: - Holds

    @Test func `a level falls after the short hold where as much is free as caches leave, not with a byte less`() {
        let cases: [(available: ByteCount, heldUntil: Duration?)] = [
            (276_000_000, nil), (275_999_999, .seconds(5)),
        ]
        for (available, heldUntil) in cases {
            var assessor = PressureAssessor()
            _ = assessor.assess(reading(.zero, short))
            let next = assessor.assess(reading(.seconds(1), available))
            #expect(next.level == (heldUntil == nil ? .normal : .warning) && next.heldUntil == heldUntil)
        }
    }

    @Test func `the short hold counts from the last reading that supported the level`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(.zero, 419_999_999))
        let risen = assessor.assess(reading(.milliseconds(50), 299_999_999))
        #expect(risen.level == .warning && risen.evidence == .growth)
        let held = assessor.assess(reading(.milliseconds(100), plenty))
        #expect(held.level == .warning && held.heldUntil == .milliseconds(450) && held.heldFor == .growth)
    }

    @Test func `each step down has a hold of its own`() {
        var assessor = PressureAssessor()
        #expect(assessor.assess(reading(.zero, 50_000_000)).level == .critical)
        let levels = [399, 400, 500, 799, 800].map { assessor.assess(reading(.milliseconds($0), plenty)).level }
        #expect(levels == [.critical, .warning, .warning, .warning, .normal])
    }

    @Test func `without a short hold a level falls with the first clear reading, and not while readings support the level`() {
        var assessor = PressureAssessor(thresholds: PressureThresholds(recoveryHold: .zero))
        let levels = [(0, short), (1, short), (2, ByteCount(250_000_000))].map { second, available in
            assessor.assess(reading(.seconds(second), available)).level
        }
        #expect(levels == [.warning, .warning, .normal])
    }

    // MARK: - Announcements

    @Test func `an announced normal level is no evidence`() {
        var assessor = PressureAssessor()
        let calm = assessor.assess(reading(.zero, plenty, announced: .normal))
        #expect(calm.level == .normal && calm.evidence == [])
    }

    @Test func `each repetition of an announcement renews the hold`() {
        var assessor = PressureAssessor()
        for second in [0, 4] { _ = assessor.assess(reading(.seconds(second), plenty, announced: .warning)) }
        let held = assessor.assess(reading(.seconds(5), plenty))
        #expect(held.level == .warning && held.heldUntil == .seconds(9) && held.heldFor == .announced)
    }

    @Test func `an announcement of the level in force takes over from other evidence`() {
        var assessor = PressureAssessor()
        #expect(assessor.assess(reading(.zero, short)).evidence == .headroom)
        _ = assessor.assess(reading(.seconds(1), plenty, announced: .warning))
        let held = assessor.assess(reading(.seconds(2), plenty))
        #expect(held.level == .warning && held.heldUntil == .seconds(6) && held.heldFor == .announced)
    }

    @Test func `without a limit an announced level falls after the hold`() {
        var assessor = PressureAssessor()
        let announced: [PressureLevel?] = [.warning, nil, nil]
        let times: [Duration] = [.zero, .milliseconds(4999), .seconds(5)]
        let levels = zip(times, announced).map { at, announced in
            assessor.assess(PressureReading(at: at, usage: plenty, announced: announced)).level
        }
        #expect(levels == [.warning, .warning, .normal])
    }
}
