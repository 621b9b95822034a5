import Plimsoll
import PlimsollTesting
import Testing

@Suite struct PressureAssessorTests {
    let limit = ByteCount.mebibytes(512)

    func reading(_ seconds: Double, available: ByteCount, stall: Double? = nil, events: PressureReading.EventCounts? = nil) -> PressureReading {
        PressureReading(
            at: .seconds(seconds), boundary: .maximum, limit: limit, usage: limit - available, available: available,
            stall: stall.map { .init(some: .seconds($0)) }, events: events)
    }

    @Test(arguments: [
        (readings: "__####__________", levels: "__####-_________"),
        (readings: "_-_-_-_-________", levels: "_-_-_-_-________"),
        (readings: "__--##__--__", levels: "__--##-_--__"),
        (readings: "________", levels: "________"),
        (readings: "#_#_#_#_#_", levels: "#-#-#-#-#-"),
    ])
    func `C76 T20 levels rise at once and fall one step after a hold, which is short with much free again`(readings: String, levels: String) {
        #expect(Simulation().run(PressureTrace(readings)).levels == levels)
    }

    @Test func `T13 headroom decides the level without any stall, and the shortfall reaches beyond the line`() {
        var assessor = PressureAssessor()
        let calm = assessor.assess(reading(0, available: .mebibytes(300)))
        #expect(calm.level == .normal && calm.shortfall == .zero && calm.evidence == [])
        #expect(calm.room! > .mebibytes(155) && calm.room! < .mebibytes(160))

        let short = assessor.assess(reading(60, available: .mebibytes(80)))
        #expect(short.level == .warning && short.evidence == .headroom)
        // 20 % of 512 MiB times 1.2 times 1.15 is 141.3 MiB.
        #expect(short.shortfall > .mebibytes(61) && short.shortfall < .mebibytes(62))
        #expect(short.room == .zero)
    }

    @Test func `growth raises the level before the margin is met, but not in an empty machine`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(0, available: .mebibytes(400)))
        // The growth of 1 GB a second is fast, but more than the growth floor is free.
        let early = assessor.assess(reading(0.1, available: .mebibytes(300)))
        #expect(early.level == .normal && early.growth > .mebibytes(500))
        let late = assessor.assess(reading(0.2, available: .mebibytes(190)))
        #expect(late.level == .warning && late.evidence == .growth && late.shortfall > .zero)
        #expect(late.timeLeft! < .milliseconds(250))
        #expect(assessor.assess(reading(0.25, available: .mebibytes(100))).level == .critical)
    }

    @Test func `growth and release of caches are no growth`() {
        var assessor = PressureAssessor()
        for step in 0..<20 {
            var reading = reading(Double(step) * 0.1, available: .mebibytes(400 - step * 13))
            reading.charged = .mebibytes(step * 13)
            #expect(assessor.assess(reading).growth == .zero)
        }
        // The caches have released memory, but the heap has not.
        var after = reading(2, available: .mebibytes(153))
        after.charged = .zero
        #expect(assessor.assess(after).growth == .zero)
    }

    @Test func `K14 K13 stall alone is a warning and frees nothing`() {
        var assessor = PressureAssessor()
        var last = PressureAssessment(at: .zero)
        for second in 0...60 { last = assessor.assess(reading(Double(second), available: .mebibytes(400), stall: Double(second) * 0.9)) }
        #expect(last.level == .warning && last.evidence == .stall && last.shortfall == .zero)
    }

    @Test func `stall with little available is critical`() {
        var assessor = PressureAssessor()
        var last = PressureAssessment(at: .zero)
        for second in 0...60 { last = assessor.assess(reading(Double(second), available: .mebibytes(80), stall: Double(second) * 0.9)) }
        #expect(last.level == .critical && last.evidence == [.stall, .headroom])
    }

    @Test func `a short stall raises nothing`() {
        var assessor = PressureAssessor()
        for second in 0...30 {
            let total = second < 10 ? 0.0 : min(1.5, Double(second - 10))
            #expect(assessor.assess(reading(Double(second), available: .mebibytes(400), stall: total)).level == .normal)
        }
    }

    @Test func `K12 a restarted stall total counts as no stall`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(0, available: .mebibytes(400), stall: 1000))
        let again = assessor.assess(reading(1, available: .mebibytes(400), stall: 0))
        #expect(again.stallShare == 0 && again.level == .normal)
    }

    @Test func `K24 limit events count only while little is available`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(0, available: .mebibytes(300), events: .init(max: 0)))
        #expect(assessor.assess(reading(1, available: .mebibytes(300), events: .init(max: 5000))).level == .normal)
        let short = assessor.assess(reading(2, available: .mebibytes(90), events: .init(max: 6000)))
        #expect(short.evidence.contains(.limitEvents))
    }

    @Test func `T18 a lowered limit is followed both ways`() {
        var assessor = PressureAssessor()
        var lowered = reading(0, available: .mebibytes(300))
        _ = assessor.assess(lowered)
        lowered.at = .seconds(1)
        lowered.limit = .mebibytes(256)
        lowered.available = .mebibytes(44)
        let low = assessor.assess(lowered)
        #expect(low.level == .warning && low.evidence.contains(.limitLowered) && low.shortfall > .zero)
        #expect(assessor.assess(reading(2, available: .mebibytes(300))).observed == .normal)
    }

    @Test func `a raised limit that leaves a parent's as the tightest shows the parent's memory, and no growth`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(PressureReading(at: .zero, limit: .gibibytes(1), usage: .mebibytes(512)))
        let parent = assessor.assess(PressureReading(at: .seconds(1), limit: .gibibytes(4), usage: .gibibytes(3)))
        #expect(parent.observed == .normal && parent.growth == .zero && parent.surge == .zero)
        // Nor is the difference a burst, for which caches would leave memory free.
        let later = assessor.assess(PressureReading(at: .seconds(3), limit: .gibibytes(4), usage: .gibibytes(3)))
        #expect(later.burst == .zero && later.observed == .normal)
        let grown = assessor.assess(PressureReading(at: .seconds(4), limit: .gibibytes(4), usage: .mebibytes(3200)))
        #expect(grown.surge > .mebibytes(100), "growth below the new limit counts")
    }

    @Test func `T17 an unlimited group gives no pressure by headroom`() {
        var assessor = PressureAssessor()
        let assessment = assessor.assess(PressureReading(at: .zero, usage: .gibibytes(100)))
        #expect(assessment.level == .normal && assessment.room == nil && assessment.timeLeft == nil)
    }

    @Test func `T30 a gap in time forgets rates`() {
        var assessor = PressureAssessor()
        _ = assessor.assess(reading(0, available: .mebibytes(400)))
        _ = assessor.assess(reading(0.1, available: .mebibytes(300)))
        let thawed = assessor.assess(reading(3600, available: .mebibytes(200)))
        #expect(thawed.growth == .zero && thawed.surge == .zero && thawed.level == .normal)
        // Time that runs backwards forgets rates too.
        #expect(assessor.assess(reading(10, available: .mebibytes(199))).growth == .zero)
    }

    @Test func `T10 normal is never announced as pressure`() {
        let outcome = Simulation().run(PressureTrace("__--______________"))
        #expect(outcome.steps.compactMap(\.event).map(\.level) == [.warning, .normal])
        #expect(outcome.steps.last?.actions == [])
    }

    @Test func `an announcement raises the named level`() {
        var assessor = PressureAssessor()
        var reading = reading(0, available: .mebibytes(400))
        reading.announced = .warning
        let assessment = assessor.assess(reading)
        #expect(assessment.level == .warning && assessment.evidence == .announced && assessment.shortfall == .zero)
    }

    @Test func `C77 an announced level is over soon after a withdrawal, and otherwise after the hold`() {
        for isTakenBack in [true, false] {
            var assessor = PressureAssessor(), fell: Double?
            for step in 0..<80 where fell == nil {
                var reading = reading(Double(step) / 8, available: .mebibytes(400))
                reading.announced = step == 1 ? .warning : step == 9 && isTakenBack ? .normal : nil
                let level = assessor.assess(reading).level
                if step > 1, level == .normal { fell = Double(step) / 8 }
            }
            #expect(fell == (isTakenBack ? 1.125 : 5.125))
        }
    }

    @Test func `a held level gives the earliest fall and the evidence of the rise, and falls then`() {
        var assessor = PressureAssessor()
        #expect(assessor.assess(reading(0, available: .mebibytes(80))).heldUntil == nil)
        // Available memory is above the line, but less than caches leave free: the long hold.
        let near = assessor.assess(reading(1, available: .mebibytes(130)))
        #expect(near.level == .warning && near.heldUntil == .seconds(5) && near.heldFor == .headroom && near.evidence == [])
        // Available memory is far above the line: the short hold.
        let far = assessor.assess(reading(1.1, available: .mebibytes(400)))
        #expect(far.level == .warning && far.heldUntil == .milliseconds(1400))
        #expect(assessor.assess(reading(1.39, available: .mebibytes(400))).level == .warning)
        let over = assessor.assess(reading(1.41, available: .mebibytes(400)))
        #expect(over.level == .normal && over.heldUntil == nil && over.heldFor == nil)
    }
}
