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

    @Test mutating func `T31 K34 reclaimable memory is reclaimed, the most first, before any unit is ended`() {
        var units = [
            unit("a", .background, .suspended, 900) { $0.reclaimable = .mebibytes(100) },
            unit("b", .background, .suspended, 500) { $0.reclaimable = .mebibytes(300) },
        ]
        let first = engine.decide(fleet(1, .warning, short: 200, units))
        #expect(first.map(\.words) == ["b: reclaim 200 MiB"])
        // Nothing else until it is known what that brought.
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

    @Test mutating func `K39 a reading from before the last victim's memory was gone costs no other unit`() {
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
        // Nor is it waited for without end.
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

    @Test mutating func `K39 an unconfirmed kill leaves the turn to the next victim after the time of a kill`() {
        let units = [
            unit("a", .background, .suspended, 900) { $0.isSaved = true }, unit("b", .background, .suspended, 500) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 1200, units)) == ["a: kill suspended"])
        #expect(engine.nextEvaluation(after: fleet(1, .warning, units)) == .seconds(2))
        #expect(engine.words(fleet(2.9, .warning, short: 1200, units)) == [])
        #expect(engine.words(fleet(3, .warning, short: 1200, units)) == ["b: kill suspended"])
        // And what failed is due again when its rest is over.
        #expect(engine.words(fleet(5, .warning, short: 1200, units)) == [] && engine.nextEvaluation(after: fleet(5, .warning, units)) == .seconds(28))
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

    @Test mutating func `T33 a unit that comes straight back goes after all others of the same kind`() {
        let units = [
            unit("phoenix", .background, .suspended, 900) { ($0.isSaved, $0.relaunchGap) = (true, .seconds(2)) },
            unit("job", .background, .suspended, 100) { $0.isSaved = true },
        ]
        #expect(engine.words(fleet(1, .warning, short: 50, units)) == ["job: kill suspended"])
        #expect(engine.words(fleet(2, .warning, short: 50, [units[0]])) == ["phoenix: kill suspended"])
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

    @Test mutating func `C75 the least important foreground unit ends last of all, after patience, and the most important never`() {
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

    @Test mutating func `a unit that a foreground unit needs counts as much as that one, through others and around cycles`() {
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

    @Test mutating func `a dry run marks decisions, repeats them once in a while, and counts on nothing`() {
        engine.policy.isDryRun = true
        let units = [unit("a", .background, .suspended, 900) { $0.isSaved = true }]
        let first = engine.decide(fleet(1, .warning, short: 100, units))
        #expect(first.map(\.words) == ["a: kill suspended"] && first.allSatisfy(\.isDryRun))
        engine.learn(Outcome(first[0], at: .seconds(1), relief: .zero, failure: "dry run"))
        #expect(engine.words(fleet(2, .warning, short: 100, units)) == [])
        #expect(engine.words(fleet(31, .warning, short: 100, units)) == ["a: kill suspended"])
    }
}
