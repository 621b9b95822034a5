import Plimsoll
import PlimsollSupervisor
import Testing

@Suite struct ShortageTests {
    private var engine = SupervisorEngine()

    @Test mutating func `C75 suspended units go before running ones are warned`() {
        let units = [unit("web", .foreground), unit("job", .background, .suspended, 300) { $0.isSaved = true }]
        #expect(engine.words(fleet(1, .warning, short: 200, units)) == ["job: kill suspended"])
    }

    @Test mutating func `C75 running units are warned too where ending suspended units can't give enough`() {
        let units = [unit("web", .foreground), unit("job", .background, .suspended, 300) { $0.isSaved = true }]
        #expect(
            engine.words(fleet(1, .warning, short: 400, units)) == ["job: kill suspended", "web: warn warning", "web: release 400 MiB"])
    }

    @Test mutating func `C90 the largest suspended unit goes first, and of similar sizes the least important`() {
        let units = [
            unit("small", .background, .suspended, 100, importance: 1) { $0.isSaved = true },
            unit("large", .background, .suspended, 1000, importance: 900) { $0.isSaved = true },
            unit("alike", .background, .suspended, 950, importance: 100) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 100, units)) == ["alike: kill suspended"])
    }

    @Test(arguments: [
        (899, 499, "large"), (900, 499, "alike"), (901, 499, "alike"), (901, 500, "large"), (1000, 500, "alike"),
    ])
    mutating func `C90 suspended units from nine tenths of the largest are alike: importance, size and name decide`(
        mebibytes: Int, importance: Int, victim: String
    ) {
        let units = [
            unit("large", .background, .suspended, 1000) { $0.isSaved = true },
            unit("alike", .background, .suspended, mebibytes, importance: importance) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 100, units)) == ["\(victim): kill suspended"])
    }

    @Test mutating func `T31 K34 reclaimable memory is reclaimed, the most first, before any unit is ended`() {
        var units = [
            unit("a", .background, .suspended, 900) { $0.reclaimable = .mebibytes(100) },
            unit("b", .background, .suspended, 500) { $0.reclaimable = .mebibytes(300) },
        ]
        let first = engine.decide(fleet(1, .warning, short: 200, units))
        #expect(first.map(\.words) == ["b: reclaim 200 MiB"])
        // No other action is due until the result of the reclaim is known.
        #expect(engine.words(fleet(1.1, .critical, short: 200, units)) == [])
        units[1].charge = .mebibytes(300)
        units[1].reclaimable = .mebibytes(100)
        engine.learn(Outcome(first[0], at: .seconds(1.2), relief: .mebibytes(200)))
        #expect(engine.words(fleet(1.3, .warning, short: 50, units)) == ["a: reclaim 50 MiB"])
    }

    @Test mutating func `a reclaim that frees nothing is not tried again soon`() {
        let units = [unit("a", .background, .suspended, 900) { ($0.reclaimable, $0.isSaved) = (.mebibytes(100), true) }]
        #expect(engine.words(fleet(1, .warning, short: 200, units), failure: nil) == ["a: reclaim 100 MiB"])
        #expect(engine.words(fleet(1.1, .warning, short: 200, units)) == ["a: kill suspended"])
    }

    @Test(arguments: [(9, "a: kill suspended"), (10, "a: reclaim 100 MiB"), (11, "a: reclaim 100 MiB")])
    mutating func `a reclaim that frees less than a tenth of the request is not tried again soon`(
        relief: Int, next: String
    ) {
        let units = [
            unit("a", .background, .suspended, 900) { ($0.reclaimable, $0.isSaved) = (.mebibytes(100), true) }
        ]
        let first = engine.decide(fleet(1, .warning, short: 200, units))
        #expect(first.map(\.words) == ["a: reclaim 100 MiB"])
        engine.learn(Outcome(first[0], at: .seconds(1), relief: .mebibytes(relief)))
        #expect(engine.words(fleet(2, .warning, short: 200, units)) == [next])
    }

    @Test mutating func `a reclaim without an answer counts as failed after 5 s`() {
        let units = [
            unit("a", .background, .suspended, 900) { ($0.reclaimable, $0.isSaved) = (.mebibytes(100), true) }
        ]
        #expect(engine.words(fleet(1, .warning, short: 200, units)) == ["a: reclaim 100 MiB"])
        #expect(engine.words(fleet(5.9, .warning, short: 200, units)) == [])
        #expect(engine.words(fleet(6, .warning, short: 200, units)) == ["a: kill suspended"])
    }

    @Test mutating func `K33 T31 a suspended unit with unsaved state is thawed before the request to end`() {
        let units = [unit("job", .background, .suspended)]
        #expect(engine.words(fleet(1, .warning, short: 50, units)) == ["job: resume ending", "job: ask 10 s"])
    }

    @Test mutating func `C91 no unit is ended while memory is not short`() {
        let units = [unit("job", .foreground, .suspended, 9000), unit("batch", .deferred, .running, 9000)]
        for second in 0..<100 { #expect(engine.words(fleet(Double(second), .normal, units)) == []) }
        #expect(engine.words(fleet(101, .warning, short: 0, units)) == [])
        #expect(engine.words(fleet(102, .critical, short: 0, units)).allSatisfy { $0.contains("warn") })
    }

    @Test mutating func `K39 a reading taken before the last victim's memory was released ends no other unit`() {
        var units = [
            unit("web", .foreground), unit("job", .background, .suspended, 300) { $0.isSaved = true },
            unit("other", .background, .suspended, 200) { $0.isSaved = true },
        ]
        let first = engine.decide(fleet(1, .critical, short: 200, units))
        #expect(first[0].words == "job: kill suspended")
        (units[1].state, units[1].charge) = (.stopped, .zero)
        engine.learn(Outcome(first[0], at: .seconds(1.2), relief: .mebibytes(300)))
        var stale = fleet(1.3, .critical, short: 200, units)
        stale.measuredAt = .seconds(1.1)
        #expect(!engine.words(stale).contains { $0.hasPrefix("other") })
        var fresh = fleet(1.4, .critical, short: 100, units)
        fresh.measuredAt = .seconds(1.3)
        var unmeasured = self, measured = self
        #expect(measured.engine.words(fresh).contains("other: kill suspended"))
        // The wait for the victim is bounded, too.
        stale.at = .seconds(3.3)
        #expect(unmeasured.engine.words(stale).contains("other: kill suspended"))
    }

    @Test mutating func `K39 one victim at a time: the next is chosen after the first's memory is gone or the time is over`() {
        var units = [
            unit("a", .background, .suspended, 900) { $0.isSaved = true }, unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        let first = engine.decide(fleet(1, .warning, short: 1200, units))
        #expect(first.map(\.words) == ["a: kill suspended"])
        units[0].state = .ending
        #expect(engine.words(fleet(1.1, .warning, short: 1200, units)) == [])
        engine.learn(Outcome(first[0], at: .seconds(1.2), relief: .mebibytes(100)))
        #expect(engine.words(fleet(1.3, .warning, short: 1200, units)) == [])
        units[0].state = .stopped
        units[0].charge = .zero
        #expect(engine.words(fleet(1.4, .warning, short: 300, units)) == ["b: kill suspended"])
    }

    @Test mutating func `K39 after an unconfirmed kill the next victim is chosen once the time of a kill has passed`() {
        let units = [
            unit("a", .background, .suspended, 900) { $0.isSaved = true }, unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 1200, units)) == ["a: kill suspended"])
        #expect(engine.nextEvaluation(after: fleet(1, .warning, units)) == .seconds(2))
        #expect(engine.words(fleet(2.9, .warning, short: 1200, units)) == [])
        #expect(engine.words(fleet(3, .warning, short: 1200, units)) == ["b: kill suspended"])
        // The failed step is due again when the unit's rest is over.
        #expect(engine.words(fleet(5, .warning, short: 1200, units)) == [] && engine.nextEvaluation(after: fleet(5, .warning, units)) == .seconds(28))
    }

    @Test(arguments: [(51, false), (50, true), (49, true)])
    mutating func `K39 the memory of a victim counts as released with a twentieth left`(left: Int, isReleased: Bool) {
        var units = [
            unit("a", .background, .suspended, 1000) { $0.isSaved = true },
            unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 1400, units)) == ["a: kill suspended"])
        (units[0].state, units[0].charge) = (.ending, .mebibytes(left))
        #expect(engine.words(fleet(2, .warning, short: 400, units)) == (isReleased ? ["b: kill suspended"] : []))
    }

    @Test(arguments: [(949, 4.9, false), (949, 5, true), (950, 3.1, true)])
    mutating func `K39 the wait goes on for 2 s after an end that released less than nineteen twentieths`(
        relief: Int, seconds: Double, isOver: Bool
    ) {
        var units = [
            unit("a", .background, .suspended, 1000), unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        let asked = engine.decide(fleet(1, .warning, short: 1400, units))
        #expect(asked.map(\.words) == ["a: resume ending", "a: ask 10 s"])
        engine.learn(Outcome(asked[1], at: .seconds(3), relief: .mebibytes(relief)))
        units[0].state = .ending
        #expect(engine.words(fleet(seconds, .warning, short: 1400, units)) == (isOver ? ["b: kill suspended"] : []))
    }

    @Test mutating func `T34 a report older than the last outcome decides nothing`() {
        let units = [
            unit("a", .background, .suspended, 900) { $0.isSaved = true }, unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        let first = engine.decide(fleet(1, .warning, short: 1200, units))
        engine.learn(Outcome(first[0], at: .seconds(1.5), relief: .mebibytes(900)))
        #expect(engine.words(fleet(1.4, .warning, short: 1200, units)) == [])
        #expect(engine.words(fleet(1.6, .warning, short: 300, [units[1]])) == ["b: kill suspended"])
    }

    @Test mutating func `T33 a unit that restarts at once is ended after all others of the same kind`() {
        let units = [
            unit("phoenix", .background, .suspended, 900) { ($0.isSaved, $0.relaunchGap) = (true, .seconds(2)) },
            unit("job", .background, .suspended, 100) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 50, units)) == ["job: kill suspended"])
        #expect(engine.words(fleet(2, .warning, short: 50, [units[0]])) == ["phoenix: kill suspended"])
    }

    @Test(arguments: [(29, "job"), (30, "phoenix"), (31, "phoenix")])
    mutating func `T33 a unit restarts at once if that takes less than 30 s after an end`(gap: Int, victim: String) {
        let units = [
            unit("phoenix", .background, .suspended, 900) { ($0.isSaved, $0.relaunchGap) = (true, .seconds(gap)) },
            unit("job", .background, .suspended, 100) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 50, units)) == ["\(victim): kill suspended"])
    }

    @Test mutating func `a failed step is not tried again with that unit, and the next unit has a turn`() {
        let units = [
            unit("a", .background, .suspended, 900) { $0.isSaved = true }, unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 100, units), failure: "not permitted") == ["a: kill suspended"])
        #expect(engine.words(fleet(2, .warning, short: 100, units), failure: "not permitted") == ["b: kill suspended"])
        #expect(engine.words(fleet(3, .warning, short: 100, units)).allSatisfy { $0.contains("warn") })
        #expect(engine.words(fleet(31, .warning, short: 100, units)) == ["a: kill suspended"])
    }

    @Test mutating func `a failed request to end is followed by a kill`() {
        let units = [unit("a", .background, .suspended, 900)]
        #expect(engine.words(fleet(1, .warning, short: 100, units), failure: "no such process") == ["a: resume ending", "a: ask 10 s"])
        #expect(engine.words(fleet(2, .warning, short: 100, units)) == ["a: kill"])
    }

    @Test mutating func `C75 the least important foreground unit is ended last, after the patience time, and the most important never`() {
        let units = [unit("web", .foreground, importance: 900), unit("admin", .foreground, importance: 100)]
        #expect(!engine.words(fleet(0, .critical, short: 50, units)).contains { $0.contains("ask") })
        #expect(!engine.words(fleet(9, .critical, short: 50, units)).contains { $0.contains("ask") })
        #expect(engine.words(fleet(10, .critical, short: 50, units)).contains("admin: ask 10 s"))
        for second in 30..<60 {
            #expect(
                !engine.words(fleet(Double(second), .critical, short: 50, [units[0], unit("x", .background, .stopped)])).contains {
                    $0.contains("ask") && $0.contains("admin")
                })
        }
    }

    @Test mutating func `the last foreground unit is ended only if that unit alone can end the shortage`() {
        let web = unit("web", .foreground, .running, 100, importance: 900)
        _ = engine.decide(fleet(0, .critical, short: 150, [web]))
        #expect(!engine.words(fleet(20, .critical, short: 150, [web])).contains("web: ask 10 s"))
        #expect(engine.spared.map(\.unit) == ["web"])
        #expect(engine.words(fleet(21, .critical, short: 60, [web])) == ["web: ask 10 s"])
    }

    @Test mutating func `the most important foreground unit is not ended because another can't be`() {
        let units = [unit("web", .foreground, .running, 500, importance: 900), unit("admin", .foreground, importance: 100)]
        _ = engine.decide(fleet(0, .critical, short: 50, units))
        #expect(engine.words(fleet(10, .critical, short: 50, units), failure: "not permitted").contains("admin: ask 10 s"))
        #expect(engine.words(fleet(11, .critical, short: 50, units), failure: "not permitted").contains("admin: kill"))
        #expect(engine.words(fleet(12, .critical, short: 50, units)) == [] && engine.spared.map(\.unit) == ["web"])
    }

    @Test mutating func `a dependency of a foreground unit counts as much as that unit, even an indirect or cyclic dependency`() {
        let units = [
            unit("web", .foreground, importance: 900) { $0.dependencies = ["app"] },
            unit("app", .background, importance: 1) { $0.dependencies = ["db", "nobody"] },
            unit("db", .background, .running, 500, importance: 1) { $0.dependencies = ["web", "db"] },
            unit("other", .background, importance: 800),
        ]
        let words = engine.words(fleet(1, .critical, short: 50, units))
        #expect(words == ["other: warn critical", "other: release 6.3 MiB", "other: background"])
        #expect(!engine.words(fleet(2, .critical, short: 5000, units)).contains { $0.contains("background") })
    }

    @Test mutating func `the engine decides on five hundred units`() {
        let units = (0..<500).map { number in
            unit("u\(number)", ServiceUnit.Role.allCases[number % 3], UnitState.allCases[number % 7], number, importance: number * 2) {
                $0.dependencies = ["u\((number + 1) % 500)"]
            }
        }
        for second in 0..<100 { _ = engine.decide(fleet(Double(second), .critical, short: 10_000, units)) }
        #expect(engine.nextEvaluation(after: fleet(99, .critical, short: 10_000, units)) != nil)
    }

    @Test mutating func `a unit already ending is counted on, so no other unit is ended for the same memory`() {
        let units = [unit("a", .background, .ending, 900, since: 1), unit("b", .background, .suspended, 500) { $0.isSaved = true }]
        #expect(engine.words(fleet(2, .warning, short: 800, units)) == [])
        #expect(engine.words(fleet(3, .warning, short: 1000, units)) == ["b: kill suspended"])
    }

    @Test(arguments: [(37.9, false), (38, true), (38.1, true)])
    mutating func `an ending unit is counted on for 37 s, the longest grace and the time of a kill`(
        seconds: Double, isNextEnded: Bool
    ) {
        let units = [
            unit("a", .background, .ending, 900, since: 1),
            unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        let words = engine.words(fleet(seconds, .warning, short: 800, units))
        #expect(words == (isNextEnded ? ["b: kill suspended"] : []))
    }

    @Test mutating func `a dry run marks decisions, repeats them from time to time, and assumes no effect`() {
        engine.policy.isDryRun = true
        let units = [unit("a", .background, .suspended, 900) { $0.isSaved = true }]
        let first = engine.decide(fleet(1, .warning, short: 100, units))
        #expect(first.map(\.words) == ["a: kill suspended"] && first.allSatisfy(\.isDryRun))
        engine.learn(Outcome(first[0], at: .seconds(1), relief: .zero, failure: "dry run"))
        #expect(engine.words(fleet(2, .warning, short: 100, units)) == [])
        #expect(engine.words(fleet(31, .warning, short: 100, units)) == ["a: kill suspended"])
    }
}
