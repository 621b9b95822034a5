import Plimsoll
import PlimsollSupervisor
import Testing

/// Tests of the bounds of victims: sizes, the last unit, and the times of waits and evaluations.
@Suite struct ShortageBoundsTests {
    private var engine = SupervisorEngine()

    private func suspended(
        _ name: String, _ mebibytes: Int = 100, importance: Int = 500, change: (inout UnitReport) -> Void = { _ in }
    ) -> UnitReport {
        unit(name, .background, .suspended, mebibytes, importance: importance) {
            $0.isSaved = true
            change(&$0)
        }
    }

    private func front(_ name: String, _ mebibytes: Int = 100, importance: Int = 500) -> UnitReport {
        unit(name, .foreground, .running, mebibytes, importance: importance) { $0.isWarnable = false }
    }

    // MARK: Reclaim

    @Test(arguments: [(-1, "a: kill suspended"), (0, "a: reclaim 1 MiB"), (1, "a: reclaim 1 MiB")])
    mutating func `K34 from 1 MiB on reclaimable memory is reclaimed before an end`(bytes: Int, step: String) {
        let job = suspended("a", 900) { $0.reclaimable = ByteCount.mebibytes(1) + ByteCount(bytes) }
        #expect(engine.words(fleet(1, .warning, short: 200, [job])) == [step])
    }

    @Test mutating func `at least 1 MiB is reclaimed, even for a smaller shortfall`() {
        let job = suspended("a", 900) { $0.reclaimable = .mebibytes(100) }
        let now = Fleet(at: .seconds(1), level: .warning, shortfall: 1, units: [job])
        #expect(engine.words(now) == ["a: reclaim 1 MiB"])
    }

    // MARK: Victims

    @Test mutating func `a suspended unit without memory is not ended`() {
        #expect(engine.words(fleet(1, .warning, short: 10, [suspended("a", 0)])) == [])
    }

    @Test(arguments: [(-5, 0, "larger"), (0, 1, "smaller"), (999, 1000, "smaller"), (1000, 1005, "larger")])
    mutating func `importance counts from 0 to 1000, and of equal importance the larger unit ends first`(
        smaller: Int, larger: Int, victim: String
    ) {
        let units = [suspended("smaller", 100, importance: smaller), suspended("larger", 101, importance: larger)]
        #expect(engine.words(fleet(1, .warning, short: 50, units)) == ["\(victim): kill suspended"])
    }

    @Test(arguments: [
        (UnitState.running, 0, ["admin: ask 10 s"]), (.running, 10, ["extra: background"]),
        (.ending, 10, ["admin: ask 10 s"]), (.leaving, 0, ["extra: ask 10 s"]),
    ])
    mutating func `C75 only background units without memory, or ending, outlive a foreground unit`(
        state: UnitState, mebibytes: Int, words: [String]
    ) {
        let units = [front("web", importance: 900), front("admin", importance: 100)]
        let extra = unit("extra", .background, state, mebibytes, since: state == .leaving ? 5 : 9) {
            ($0.isWarnable, $0.suspension) = (false, .never)
        }
        #expect(engine.words(fleet(0, .critical, short: 50, units)) == [])
        #expect(engine.words(fleet(10, .critical, short: 50, units + [extra])) == words)
    }

    @Test mutating func `C75 a dependency has the importance of the dependent unit among foreground units`() {
        var web = front("web", importance: 900)
        web.dependencies = ["db"]
        let db = unit("db", .background, importance: 1) { $0.isWarnable = false }
        let units = [web, db, front("admin", importance: 500)]
        #expect(engine.words(fleet(0, .critical, short: 50, units)) == [])
        #expect(engine.words(fleet(10, .critical, short: 50, units)) == ["admin: ask 10 s"])
    }

    @Test(arguments: [(0, 0), (1, 1), (901, 901), (901, 900), (1000, 1000)])
    mutating func `C75 the dependencies of all foreground units stay, of any importance`(first: Int, second: Int) {
        var web = front("web", importance: first), shop = front("shop", importance: second)
        (web.dependencies, shop.dependencies) = (["db"], ["cache"])
        let background = [("db", 1), ("cache", 1), ("other", 800)].map { name, importance in
            unit(name, .background, importance: importance) { $0.isWarnable = false }
        }
        let words = engine.words(fleet(1, .critical, short: 50, [web, shop] + background))
        #expect(words == ["other: background"])
    }

    @Test mutating func `of two foreground units of equal importance the larger is ended`() {
        let units = [front("a"), front("b", 200)]
        #expect(engine.words(fleet(0, .critical, short: 50, units)) == [])
        #expect(engine.words(fleet(10, .critical, short: 50, units)) == ["b: ask 10 s"])
    }

    @Test(
        arguments: [
            (60, nil, true), (100, nil, true), (101, nil, false), (60, .stopped, true), (60, .ending, false),
            (60, .suspended, false),
        ] as [(Int, UnitState?, Bool)])
    mutating func `the last foreground unit is ended only if no other process lives and the unit's memory is enough`(
        short: Int, other: UnitState?, isEnded: Bool
    ) {
        let units = [front("web")] + (other.map { [unit("other", .background, $0, 0)] } ?? [])
        #expect(engine.words(fleet(0, .critical, short: short, units)) == [])
        #expect(engine.words(fleet(20, .critical, short: short, units)) == (isEnded ? ["web: ask 10 s"] : []))
        #expect(engine.spared.map(\.unit) == (isEnded ? [] : ["web"]))
    }

    @Test(arguments: [(19.9, false), (20, true), (20.1, true)])
    mutating func `T33 after a failed freeze a unit's background task has the rest of the time`(
        seconds: Double, isEnded: Bool
    ) {
        let leaving = unit("job", .background, .leaving, since: 1) { $0.isWarnable = false }
        #expect(engine.words(fleet(6, .critical, short: 50, [leaving]), failure: "not confirmed") == ["job: suspend"])
        let running = unit("job", since: 8) { ($0.isWarnable, $0.tokens, $0.tokensEnd) = (false, 1, .seconds(20)) }
        #expect(engine.words(fleet(seconds, .critical, short: 50, [running])) == (isEnded ? ["job: ask 10 s"] : []))
    }

    @Test(arguments: [(0, 10), (1, 35), (2, 35)])
    mutating func `T33 background tasks without an end lengthen the grace to the bound`(tokens: Int, grace: Int) {
        let job = unit("job", .background, .suspended) { $0.tokens = tokens }
        #expect(engine.words(fleet(5, .warning, short: 50, [job])) == ["job: resume ending", "job: ask \(grace) s"])
    }

    @Test(arguments: [(false, 199, false), (false, 200, true), (true, 199, false), (true, 200, true)])
    mutating func `C91 an ended unit is started again once there is room for the most that the unit held`(
        wasReclaimed: Bool, room: Int, isStarted: Bool
    ) {
        var job = suspended("job", 200) { $0.restart = .always }
        if wasReclaimed {
            (job.state, job.since) = (.leaving, .seconds(-5))
            #expect(engine.words(fleet(0, .warning, [job]), failure: nil) == ["job: suspend"])
            (job.state, job.since, job.charge) = (.suspended, .zero, .mebibytes(50))
        }
        #expect(engine.words(fleet(1, .warning, short: 20, [job]), failure: nil) == ["job: kill suspended"])
        (job.state, job.since, job.charge, job.lastEnded) = (.stopped, .seconds(1), .zero, .seconds(1))
        #expect(engine.words(fleet(4, .normal, room: room, [job])) == [])
        #expect(engine.words(fleet(40, .normal, room: room, [job])) == (isStarted ? ["job: start"] : []))
    }

    // MARK: Waits

    @Test mutating func `K39 a report of the moment of an end shows no relief`() {
        var units = [suspended("a", 1000), suspended("b")]
        #expect(engine.words(fleet(1, .warning, short: 1400, units)) == ["a: kill suspended"])
        (units[0].state, units[0].charge) = (.stopped, .zero)
        #expect(engine.words(fleet(1, .warning, short: 400, units)) == [])
        #expect(engine.words(fleet(1.1, .warning, short: 400, units)) == ["b: kill suspended"])
    }

    @Test mutating func `K39 an evaluation is due 2 s after an end whose memory is not yet free`() {
        var units = [unit("a", .background, .suspended, 1000), suspended("b")]
        let asked = engine.decide(fleet(1, .warning, short: 1400, units))
        #expect(asked.map(\.words) == ["a: resume ending", "a: ask 10 s"])
        engine.learn(Outcome(asked[1], at: .seconds(3), relief: .mebibytes(900)))
        units[0].state = .ending
        let later = fleet(4, .warning, short: 1400, units)
        #expect(engine.words(later) == [] && engine.nextEvaluation(after: later) == .seconds(1))
    }

    @Test mutating func `K39 a measurement is waited for until 2 s after the relief`() {
        var units = [front("web"), suspended("job", 300), suspended("other", 200)]
        let first = engine.decide(fleet(1, .critical, short: 200, units))
        #expect(first.map(\.words) == ["job: kill suspended"])
        (units[1].state, units[1].charge) = (.stopped, .zero)
        engine.learn(Outcome(first[0], at: .milliseconds(1200), relief: .mebibytes(300)))
        let rows: [(Int, [String])] = [(1300, []), (3199, []), (3200, ["other: kill suspended"])]
        for (milliseconds, words) in rows {
            var stale = fleet(0, .critical, short: 200, units)
            (stale.at, stale.measuredAt) = (.milliseconds(milliseconds), .milliseconds(1100))
            #expect(engine.words(stale) == words, "\(milliseconds) ms")
            let wait = engine.nextEvaluation(after: stale)
            #expect(milliseconds > 1300 || wait == .milliseconds(1900), "\(milliseconds) ms: \(wait ?? .zero)")
        }
    }

    @Test(arguments: [(10_000, true), (10_001, false)])
    mutating func `a measurement of more than 10 s ago ends no unit, as when none is possible any more`(age: Int, ends: Bool) {
        let units = [front("web"), suspended("job", 300)]
        var stale = fleet(60, .critical, short: 200, units)
        stale.measuredAt = stale.at - .milliseconds(age)
        #expect(engine.words(stale) == (ends ? ["job: kill suspended"] : []))
        // The next measurement counts again.
        #expect(engine.words(fleet(61, .critical, short: 200, units)) == (ends ? [] : ["job: kill suspended"]))
    }

    // MARK: Evaluations

    @Test mutating func `T34 a fleet older than the last evaluation, or than an outcome, decides nothing`() {
        #expect(engine.words(fleet(2, .warning, [])) == [])
        #expect(engine.words(fleet(1.9, .warning, short: 50, [suspended("a")])) == [])
        #expect(engine.words(fleet(2, .warning, short: 50, [suspended("a")])) == ["a: kill suspended"])
        engine = SupervisorEngine()
        let leaving = [unit("job", .background, .leaving, since: 1)]
        let freeze = engine.decide(fleet(6, .normal, leaving))
        #expect(freeze.map(\.words) == ["job: suspend"])
        engine.learn(Outcome(freeze[0], at: .seconds(8), relief: .zero))
        #expect(engine.words(fleet(7.9, .normal, leaving)) == [])
    }

    @Test mutating func `the failures of a removed unit are forgotten`() {
        let job = suspended("a")
        #expect(engine.words(fleet(1, .warning, short: 50, [job]), failure: "not permitted") == ["a: kill suspended"])
        #expect(engine.isPassedOver("a", at: .milliseconds(30_999)))
        #expect(!engine.isPassedOver("a", at: .seconds(31)) && !engine.isPassedOver("b", at: .seconds(2)))
        #expect(engine.words(fleet(2, .warning, short: 50, [])) == [])
        #expect(!engine.isPassedOver("a", at: .seconds(2)))
        #expect(engine.words(fleet(3, .warning, short: 50, [job])) == ["a: kill suspended"])
    }

    @Test mutating func `evaluations are at least 50 ms apart`() {
        #expect(engine.words(fleet(0, .normal, [])) == [])
        let soon = fleet(9.99, .normal, [])
        #expect(engine.words(soon) == [] && engine.nextEvaluation(after: soon) == .milliseconds(50))
    }

    @Test mutating func `a dry run repeats a decision after 30 s`() {
        engine.policy.isDryRun = true
        let units = [suspended("a")]
        #expect(engine.words(fleet(1, .warning, short: 50, units)) == ["a: kill suspended"])
        #expect(engine.words(fleet(30.9, .warning, short: 50, units)) == [])
        #expect(engine.words(fleet(31, .warning, short: 50, units)) == ["a: kill suspended"])
    }

    // MARK: Units that end too slowly

    private func seen(_ time: Double, lasts: Double?, _ units: [UnitReport]) -> Fleet {
        var seen = fleet(time, .critical, short: 200, units)
        seen.timeLeft = lasts.map { .seconds($0) }
        return seen
    }

    private func stubborn(
        _ name: String, _ state: UnitState, since: Double, change: (inout UnitReport) -> Void = { _ in }
    ) -> UnitReport {
        unit(name, .background, state, 300, since: since) {
            ($0.suspension, $0.isWarnable) = (.never, false)
            change(&$0)
        }
    }

    @Test(
        arguments: [
            (3, false, "next: ask 10 s"), (7.9, false, "next: ask 10 s"), (8, false, nil), (3, true, "first: kill"),
        ] as [(Double, Bool, String?)])
    mutating func `C75 C90 a unit that another party ends is given up as well while memory runs out`(
        lasts: Double, isSaved: Bool, step: String?
    ) {
        let first = stubborn("first", .ending, since: 1) { $0.isSaved = isSaved }
        let units = [first, stubborn("next", .leaving, since: -10)]
        #expect(engine.words(seen(1.5, lasts: nil, units)) == [])
        let decisions = engine.decide(seen(3, lasts: lasts, units))
        #expect(decisions.map(\.words) == (step.map { [$0] } ?? []))
        let reason = "the unit was asked 2 s ago and has saved its state, and memory lasts for 3000 ms only"
        #expect(decisions.first?.reason == reason || !isSaved)
    }

    @Test(arguments: [(9.9, true), (10, false)])
    mutating func `T33 a unit with a longer grace is given up only if memory ends within the next unit's grace`(
        lasts: Double, isNextAsked: Bool
    ) {
        var first = stubborn("first", .suspended, since: 0) { $0.tokens = 1 }
        let next = stubborn("next", .leaving, since: -10)
        #expect(engine.words(seen(0, lasts: nil, [first, next])) == ["first: resume ending", "first: ask 35 s"])
        first.state = .ending
        #expect(engine.words(seen(2, lasts: lasts, [first, next])) == (isNextAsked ? ["next: ask 10 s"] : []))
    }
}
