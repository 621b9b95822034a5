import Plimsoll
import PlimsollSupervisor
import Testing

@Suite struct NoticeTests {
    private var engine = SupervisorEngine()

    /// Returns the warnings with their times, from evaluations at the times that the engine requests.
    private mutating func notices(_ units: [UnitReport], _ level: PressureLevel, short: Int, from start: Double, for seconds: Double) -> [String] {
        var units = units, now = Duration.seconds(start), warned: [String] = []
        while now < .seconds(start + seconds) {
            let fleet = Fleet(at: now, level: level, shortfall: .mebibytes(short), units: units)
            for decision in engine.decide(fleet) {
                guard case .warn(let level) = decision.action else { continue }
                let milliseconds = Int(now / .milliseconds(1))
                warned.append("\(milliseconds) \(decision.unit) \(level)")
                guard let index = units.firstIndex(where: { $0.name == decision.unit }) else { continue }
                (units[index].notified, units[index].notifiedAt) = (level, now)
            }
            guard let wait = engine.nextEvaluation(after: fleet) else { break }
            now += wait
        }
        return warned
    }

    private let units = [
        unit("web", .foreground, importance: 900), unit("small", .foreground, .running, 10, importance: 100),
        unit("large", .foreground, .running, 500, importance: 100), unit("deaf", .foreground, importance: 1) { $0.isWarnable = false },
        unit("still", .background, .suspended, 1),
    ]

    @Test mutating func `C77 K31 the least important units are notified first, then the largest, every quarter second, and again after 25 s`() {
        let warned = notices(units.dropLast(), .warning, short: 100, from: 0, for: 26)
        let round = ["0 large warning", "250 small warning", "500 web warning"]
        #expect(warned == round + ["25000 large warning", "25250 small warning", "25500 web warning"])
    }

    @Test mutating func `C77 a fall of level is reported after half a second`() {
        var units = Array(units.prefix(2))
        for index in units.indices { (units[index].notified, units[index].notifiedAt) = (.critical, .zero) }
        #expect(notices(units, .normal, short: 0, from: 60, for: 20) == ["60500 small normal", "60750 web normal"])
    }

    @Test mutating func `a rise is reported at once, even just after a notice of the level below`() {
        var warned = units[0]
        #expect(engine.words(fleet(1, .warning, short: 10, [warned])) == ["web: warn warning", "web: release 10 MiB"])
        (warned.notified, warned.notifiedAt) = (.warning, .seconds(1))
        #expect(engine.words(fleet(1.25, .critical, short: 10, [warned])) == ["web: warn critical", "web: release 10 MiB"])
    }

    @Test mutating func `the share that a unit is to release follows the unit's size`() {
        let units = [unit("a", .foreground, .running, 300, importance: 1), unit("b", .foreground, .running, 100)]
        #expect(engine.words(fleet(1, .warning, short: 200, units)) == ["a: warn warning", "a: release 150 MiB"])
        #expect(engine.words(fleet(2, .warning, short: 200, units)) == ["b: warn warning", "b: release 50 MiB"])
    }

    @Test(arguments: [(PressureLevel.normal, true), (.warning, true), (.critical, false)])
    mutating func `a repeated notice asks for memory like the first, and the notice of a lower level asks for none`(
        before: PressureLevel, isAsked: Bool
    ) {
        var web = units[0]
        (web.notified, web.notifiedAt) = (before, .zero)
        #expect(engine.words(fleet(0, .warning, [])) == [])
        let words = engine.words(fleet(30, .warning, short: 10, [web]))
        #expect(words == ["web: warn warning"] + (isAsked ? ["web: release 10 MiB"] : []))
    }

    @Test mutating func `T31 a frozen unit receives no notice`() {
        #expect(engine.words(fleet(1, .critical, short: 100, [unit("still", .foreground, .suspending), unit("off", .foreground, .stopped)])) == [])
    }

    @Test mutating func `a restarted unit is notified again`() {
        var web = units[0]
        #expect(engine.words(fleet(1, .warning, short: 10, [web])).first == "web: warn warning")
        #expect(engine.words(fleet(2, .warning, short: 10, [web])) == [])
        web.since = .seconds(3)
        #expect(engine.words(fleet(4, .warning, short: 10, [web])).first == "web: warn warning")
    }

    @Test mutating func `no action is due while memory is not short`() {
        let calm = fleet(0, .normal, units)
        _ = engine.decide(calm)
        // Only the hold before suspended units may come back is left.
        #expect(engine.nextEvaluation(after: calm) == .seconds(10))
        #expect(engine.decide(fleet(60, .normal, Array(units.prefix(2)))) == [] && engine.nextEvaluation(after: fleet(60, .normal, [])) == nil)
    }
}
