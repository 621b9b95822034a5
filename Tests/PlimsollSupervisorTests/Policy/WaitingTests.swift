import Plimsoll
import Testing

@testable import PlimsollSupervisor

@Suite struct WaitingTests {
    private var engine = SupervisorEngine()

    private func running(_ time: Double, short: Int = 200, lasts: Double?, _ units: [UnitReport]) -> Fleet {
        var seen = fleet(time, .critical, short: short, units)
        seen.timeLeft = lasts.map { .seconds($0) }
        return seen
    }

    /// `first` was asked to end; `next` can't be frozen either, and stays.
    private mutating func asked(_ change: (inout UnitReport) -> Void = { _ in }) -> [UnitReport] {
        func stubborn(_ name: String, _ state: UnitState, _ importance: Int) -> UnitReport {
            unit(name, .background, state, 300, importance: importance, since: -10) { ($0.suspension, $0.isWarnable) = (.never, false) }
        }
        var units = [stubborn("first", .leaving, 1), stubborn("next", .leaving, 900)]
        #expect(engine.words(running(0, lasts: nil, units)) == ["first: ask 10 s"])
        (units[0].state, units[0].since) = (.ending, .zero)
        change(&units[0])
        return units
    }

    @Test mutating func `K39 T33 an asked unit has the whole grace as long as memory lasts`() {
        let units = asked()
        for second in 1..<10 {
            #expect(engine.words(running(Double(second), lasts: nil, units)) == [])
            #expect(engine.words(running(Double(second) + 0.5, lasts: 11, units)) == [])
        }
    }

    @Test mutating func `C36 C75 the next unit is asked as well if a stopping unit releases nothing while memory runs out`() {
        let units = asked()
        #expect(engine.words(running(1.9, lasts: 3, units)) == [])
        #expect(engine.nextEvaluation(after: running(1.9, lasts: 3, units)).map { $0 < .milliseconds(101) } == true)
        #expect(engine.words(running(2, lasts: 3, units)) == ["next: ask 10 s"])
    }

    @Test mutating func `T33 the engine waits for a unit that releases memory while ending`() {
        var units = asked()
        for second in 1..<9 {
            units[0].charge = .mebibytes(300 - 30 * second)
            #expect(engine.words(running(Double(second), short: 50, lasts: 3, units)) == [])
        }
    }

    @Test(arguments: [(300, 7.9, true), (300, 8, false), (300, 8.1, false), (294, 3, true), (293, 3, false)])
    mutating func `C36 C75 the next unit is asked if memory ends before the grace, and at most 2 % were released`(
        left: Int, lasts: Double, isNextAsked: Bool
    ) {
        var units = asked()
        #expect(engine.words(running(0.5, lasts: nil, units)) == [])
        units[0].charge = .mebibytes(left)
        #expect(engine.words(running(1, lasts: nil, units)) == [])
        #expect(engine.words(running(2, lasts: lasts, units)) == (isNextAsked ? ["next: ask 10 s"] : []))
    }

    @Test mutating func `C90 an asked unit that has saved its state is killed, once, while memory runs out`() {
        let units = asked { $0.isSaved = true }
        let decisions = engine.decide(running(2, lasts: 3, units))
        #expect(decisions.map(\.words) == ["first: kill"])
        #expect(decisions[0].reason == "the unit was asked 2 s ago and has saved its state, and memory lasts for 3000 ms only")
        #expect(engine.words(running(2.1, lasts: 3, units)) == [])
    }

    @Test mutating func `T33 an asked unit with running background tasks is not killed, and the next unit is asked`() {
        let units = asked { ($0.isSaved, $0.tokens) = (true, 1) }
        #expect(engine.words(running(2, lasts: 3, units)) == ["next: ask 10 s"])
    }

    @Test mutating func `C75 no foreground unit is touched while a given-up background unit still exists`() {
        let web = unit("web", .foreground, importance: 1), shop = unit("shop", .foreground, importance: 900)
        var units = asked() + [web, shop]
        #expect(engine.words(running(2, lasts: 3, units)).first == "next: ask 10 s")
        (units[1].state, units[1].since) = (.ending, .seconds(2))
        for second in 3..<20 { #expect(!engine.words(running(Double(second), short: 900, lasts: 1, units)).contains { $0.contains("ask") }) }
    }

    @Test func `a unit that does not end when asked no longer costs the foreground unit memory`() {
        func run(reportsTimeLeft: Bool) -> (peak: ByteCount, drawing: String) {
            let slow = SimulatedUnit(
                unit("slow", .background, .running, 300, importance: 1) { $0.suspension = .never }, habits: [.ignoresWarnings, .ignoresTerm])
            let next = SimulatedUnit(unit("next", .background, .running, 200, importance: 500), habits: .ignoresWarnings)
            let web = SimulatedUnit(unit("web", .foreground, .running, 450, importance: 900), growth: .mebibytes(5), habits: .ignoresWarnings)
            var simulation = SupervisorSimulation([web, slow, next], limit: .mebibytes(1000))
            simulation.reportsTimeLeft = reportsTimeLeft
            var peak = ByteCount.zero
            for _ in 0..<400 {
                simulation.run(for: .milliseconds(50))
                peak = max(peak, simulation.units.reduce(.zero) { $0 + $1.report.charge })
            }
            return (peak, simulation.drawing)
        }
        let before = run(reportsTimeLeft: false), now = run(reportsTimeLeft: true)
        #expect(before.peak > .mebibytes(1000), "nothing was short\n\(before.drawing)")
        #expect(now.peak < .mebibytes(1000), "\(now.peak)\n\(now.drawing)")
    }

    // MARK: Order of stopping

    @Test func `a unit is asked to stop after the dependent units`() {
        let units = ["db": [], "cache": ["db"], "web": ["db", "cache", "elsewhere"], "job": ["job"]]
        #expect(StopOrder.next(units) == ["web", "job"] && StopOrder.turns(units) == 3)
        #expect(StopOrder.next(units.filter { $0.key != "web" }) == ["cache", "job"])
        #expect(StopOrder.next(["a": ["b"], "b": ["a"]]) == ["a", "b"], "a cycle of dependencies must not block the stop")
        #expect(StopOrder.turns(["a": ["b"], "b": ["a"], "c": ["a"]]) == 2 && StopOrder.turns([:]) == 1)
        let row = Dictionary(uniqueKeysWithValues: (0..<1000).map { ("u\($0)", $0 > 0 ? ["u\($0 - 1)"] : []) })
        #expect(StopOrder.turns(row) == 1000)
    }

    @Test func `the turns after a unit are those of the living units that this one needs`() {
        let units = ["db": [], "cache": ["db"], "web": ["db", "cache", "elsewhere"], "job": ["job"]]
        #expect(["web", "cache", "db", "job", "gone"].map { StopOrder.turns(after: $0, units) } == [2, 1, 0, 0, 0])
        #expect(StopOrder.turns(after: "a", ["a": ["b"], "b": ["a"]]) == 1)
    }
}
