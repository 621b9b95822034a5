import Plimsoll
import PlimsollSupervisor
import Testing

/// Tests of the bounds between which units are notified, warned, or sent to the background.
@Suite struct NoticeBoundsTests {
    private var engine = SupervisorEngine()

    private func deaf(_ name: String, _ state: UnitState = .running, since: Double = 0) -> UnitReport {
        unit(name, .background, state, since: since) { $0.isWarnable = false }
    }

    @Test(arguments: [(99, false), (100, false), (101, true)])
    mutating func `no other unit leaves while a unit that has left covers the shortfall`(short: Int, leaves: Bool) {
        let units = [deaf("gone", .leaving, since: 1), deaf("next")]
        let decisions = engine.decide(fleet(6, .critical, short: short, units))
        #expect(decisions.map(\.words) == ["gone: suspend"] + (leaves ? ["next: background"] : []))
        let reason = "units that are suspended or leaving can free only 100 MiB; critical: 101 MiB short"
        #expect(decisions.last?.reason == reason || !leaves)
    }

    @Test mutating func `while the shortfall is covered no evaluation is due for the next unit to leave`() {
        let units = [deaf("gone", .leaving, since: 1), deaf("next"), unit("web", .foreground)]
        let now = fleet(6, .critical, short: 100, units)
        #expect(engine.words(now) == ["gone: suspend", "web: warn critical", "web: release 100 MiB"])
        #expect(engine.nextEvaluation(after: now) == .seconds(5), "the freeze must be confirmed by then")
    }

    @Test mutating func `at warning the next evaluation is due for the repeated notice, and none for a deaf unit`() {
        let units = [unit("web", .foreground), deaf("deaf"), unit("off", .background, .stopped, 0)]
        let now = fleet(1, .warning, short: 100, units)
        #expect(engine.words(now) == ["web: warn warning", "web: release 100 MiB"])
        #expect(engine.nextEvaluation(after: now) == .seconds(25))
    }

    @Test mutating func `at critical the next evaluation is due at the end of the patience with the foreground`() {
        let now = fleet(1, .critical, short: 100, [unit("web", .foreground)])
        #expect(engine.words(now) == ["web: warn critical", "web: release 100 MiB"])
        #expect(engine.nextEvaluation(after: now) == .seconds(10))
    }

    @Test(arguments: [(299, false), (300, false), (301, true)])
    mutating func `C75 running units are warned once suspended units hold less than the shortfall`(
        short: Int, isWarned: Bool
    ) {
        let units = [unit("web", .foreground), unit("job", .background, .suspended, 300) { $0.isSaved = true }]
        let warning = ["web: warn warning", "web: release \(short) MiB"]
        #expect(
            engine.words(fleet(1, .warning, short: short, units))
                == ["job: kill suspended"] + (isWarned ? warning : []))
    }

    @Test mutating func `a shortfall that an ending unit covers gives no notice, even at critical`() {
        let ending = unit("a", .background, .ending, 900, since: 1)
        let now = fleet(2, .critical, short: 800, [unit("web", .foreground), ending])
        #expect(engine.words(now) == [])
        #expect(engine.nextEvaluation(after: now) == .seconds(36), "the ending unit is counted on for 37 s")
    }

    @Test mutating func `a unit without memory is warned, and asked for none`() {
        let web = unit("web", .foreground, .running, 0)
        #expect(engine.words(fleet(1, .warning, short: 10, [web])) == ["web: warn warning"])
    }

    @Test(arguments: [
        (PressureLevel.normal, "warning: 10 MiB short"), (.warning, "warning: 10 MiB short"),
        (.critical, "the level has been lower for"),
    ])
    mutating func `a notice of a lower level names the fall, and any other notice the shortfall`(
        before: PressureLevel, reason: String
    ) {
        let web = unit("web", .foreground) { ($0.notified, $0.notifiedAt) = (before, .zero) }
        #expect(engine.words(fleet(0, .warning, [])) == [])
        let first = engine.decide(fleet(30, .warning, short: 10, [web])).first
        #expect(first?.words == "web: warn warning" && first?.reason.hasPrefix(reason) == true)
    }
}
