import Plimsoll
import PlimsollSupervisor
import Testing

@Suite struct LeavingTests {
    private var engine = SupervisorEngine()

    @Test mutating func `C75 critical sends deferred work to the background first, then background work after the time of the first`() {
        var units = [
            unit("web", .foreground, .running, 500), unit("index", .background, .running, 100, importance: 1) { $0.isWarnable = false },
            unit("batch", .deferred, .running, 100, importance: 900) { $0.isWarnable = false },
        ]
        #expect(engine.words(fleet(1, .critical, short: 150, units)) == ["batch: background"])
        #expect(engine.words(fleet(1.1, .critical, short: 150, units)) == [])
        #expect(engine.words(fleet(1.25, .critical, short: 150, units)).first == "web: warn critical")
        (units[2].state, units[2].since) = (.leaving, .seconds(1))
        #expect(engine.words(fleet(5.9, .critical, short: 150, units)) == [])
        #expect(engine.words(fleet(6, .critical, short: 150, units)) == ["batch: suspend", "index: background"])
    }

    @Test mutating func `C75 T33 deferred units leave first, then units that stay ended, by importance and size`() {
        func able(_ name: String, _ role: ServiceUnit.Role, _ mebibytes: Int, _ importance: Int, gap: Int? = nil)
            -> UnitReport
        {
            unit(name, role, .running, mebibytes, importance: importance) {
                ($0.isWarnable, $0.relaunchGap) = (false, gap.map { Duration.seconds($0) })
            }
        }
        // The first unit of each pair leaves before the second.
        let pairs = [
            (able("z", .deferred, 1, 900, gap: 29), able("a", .background, 900, 1)),
            (able("z", .background, 1, 900, gap: 30), able("a", .background, 900, 1, gap: 29)),
            (able("z", .background, 1, 499), able("a", .background, 900, 500)),
            (able("z", .background, 101, 500), able("a", .background, 100, 500)),
            (able("a", .background, 100, 500), able("b", .background, 100, 500)),
        ]
        for (first, second) in pairs {
            for units in [[first, second], [second, first]] {
                engine = SupervisorEngine()
                #expect(engine.words(fleet(1, .critical, short: 1, units)) == ["\(first.name): background"], "\(units)")
            }
        }
    }

    @Test mutating func `C4 a unit that has had 5 s to leave is frozen`() {
        let units = [unit("job", .background, .leaving, since: 1)]
        #expect(engine.words(fleet(2, .normal, units)) == [] && engine.nextEvaluation(after: fleet(2, .normal, units)) == .seconds(4))
        #expect(engine.words(fleet(6, .normal, units)) == ["job: suspend"])
    }

    @Test(arguments: [
        (PressureLevel.critical, 2.9, true), (.critical, 3, false), (.critical, 3.1, false), (.warning, 1, false),
    ])
    mutating func `a leaving unit is frozen early at critical, if memory does not last for the time to leave`(
        level: PressureLevel, lasts: Double, isFrozen: Bool
    ) {
        var now = fleet(3, level, short: 10, [unit("job", .background, .leaving, since: 1) { $0.isWarnable = false }])
        now.timeLeft = .seconds(lasts)
        #expect(engine.words(now) == (isFrozen ? ["job: suspend"] : []))
    }

    @Test mutating func `a unit that asks to be frozen leaves at any overall level, and is then frozen`() {
        let asks = [unit("job") { $0.suspensionRequestedAt = .seconds(1) }]
        let decisions = engine.decide(fleet(1, .normal, asks))
        #expect(decisions.map(\.words) == ["job: background"] && decisions[0].reason == "the unit requests suspension: its own memory is short")
        #expect(engine.words(fleet(2, .normal, [unit("job", .background, .leaving, since: 1)])) == [])
        #expect(engine.words(fleet(6, .normal, [unit("job", .background, .leaving, since: 1)])) == ["job: suspend"])
    }

    @Test mutating func `a unit that asks to be frozen runs on if the foreground needs that unit, if a freeze is impossible, and after 30 s`() {
        let asked: (inout UnitReport) -> Void = { $0.suspensionRequestedAt = .seconds(1) }
        let front = unit("front", .foreground, change: asked)
        var needed = unit("needed", change: asked), client = unit("client", .foreground)
        client.dependencies = ["needed"]
        var never = unit("never", change: asked)
        never.suspension = .never
        #expect(engine.words(fleet(1, .normal, [front, needed, client, never])) == [])
        #expect(
            engine.spared.map(\.reason) == [
                "the unit requests suspension, but serves the foreground", "the unit requests suspension, but serves the foreground",
                "the unit requests suspension, but cannot be suspended",
            ])
        // No client waits any more, but the request is long past.
        needed.suspensionRequestedAt = .seconds(1)
        #expect(engine.words(fleet(31, .normal, [needed])) == [])
        engine = SupervisorEngine()
        #expect(engine.words(fleet(30.9, .normal, [needed])) == ["needed: background"])
        engine = SupervisorEngine()
        let locked = [unit("job", .background, .leaving, since: 1) { $0.holdsLocks = true }]
        #expect(engine.words(fleet(6, .normal, locked)) == [])
    }

    @Test mutating func `C15 a unit that exits on suspend is asked to end instead`() {
        let units = [unit("job", .background, .leaving, since: 1) { $0.exitsOnSuspend = true }]
        #expect(engine.words(fleet(6, .normal, units)) == ["job: ask 10 s"])
    }

    @Test mutating func `C14 a unit without a way to freeze is ended, but only at critical`() {
        let units = [unit("job", .background, .leaving, since: 1) { ($0.suspension, $0.isWarnable) = (.never, false) }]
        #expect(engine.words(fleet(6, .warning, short: 100, units)) == [])
        #expect(engine.words(fleet(7, .critical, short: 100, units)) == ["job: ask 10 s"])
    }

    @Test mutating func `C48 T29 a unit that holds locks is not frozen, and at critical ended instead`() {
        let units = [unit("job", .background, .leaving, since: 1) { ($0.holdsLocks, $0.isWarnable) = (true, false) }]
        #expect(engine.words(fleet(7, .warning, short: 100, units)) == [])
        #expect(engine.spared.map(\.reason) == ["the unit holds file locks that other processes may wait for"])
        #expect(engine.words(fleet(8, .critical, short: 100, units)) == ["job: ask 10 s"])
    }

    @Test mutating func `T33 background tasks are honoured up to the bound, and then the unit is ended without notice`() {
        let units = [unit("job", .background, .leaving, since: 1) { ($0.tokens, $0.tokensEnd, $0.isWarnable) = (2, .seconds(20), false) }]
        #expect(engine.words(fleet(7, .critical, short: 50, units)) == [] && engine.spared.map(\.unit) == ["job"])
        #expect(engine.nextEvaluation(after: fleet(7, .critical, units)) == .seconds(13))
        #expect(engine.words(fleet(20, .critical, short: 50, units)) == ["job: kill"])
        // The bound holds for tasks without an end, too.
        engine = SupervisorEngine()
        let greedy = [unit("job", .background, .leaving, since: 1) { ($0.tokens, $0.isWarnable) = (2, false) }]
        #expect(engine.words(fleet(30.9, .critical, short: 50, greedy)) == [])
        #expect(engine.words(fleet(31, .critical, short: 50, greedy)) == ["job: kill"])
    }

    @Test mutating func `T33 the grace of SIGTERM is longer for background tasks that are alive, up to a bound`() {
        for (end, grace) in [(5.0, 10), (25, 20), (900, 35)] {
            engine = SupervisorEngine()
            let units = [unit("job", .background, .suspended) { ($0.tokens, $0.tokensEnd) = (1, .seconds(end)) }]
            #expect(engine.words(fleet(5, .warning, short: 50, units)).last == "job: ask \(grace) s")
        }
    }

    @Test mutating func `K36 T32 an unconfirmed freeze is taken back, and at critical the unit is ended`() {
        let leaving = [unit("job", .background, .leaving, since: 1) { $0.isWarnable = false }]
        let freeze = engine.decide(fleet(6, .critical, short: 50, leaving))
        #expect(freeze.map(\.words) == ["job: suspend"])
        engine.learn(Outcome(freeze[0], at: .seconds(8), relief: .zero, failure: "not confirmed"))
        let suspending = [unit("job", .background, .suspending, since: 6) { $0.isWarnable = false }]
        #expect(engine.words(fleet(8, .critical, short: 50, suspending), failure: nil) == ["job: resume room"])
        let running = [unit("job", .background, .running, since: 8) { $0.isWarnable = false }]
        #expect(engine.words(fleet(8.1, .critical, short: 50, running)) == ["job: ask 10 s"])
    }

    @Test mutating func `a freeze without an answer counts as failed`() {
        let leaving = [unit("job", .background, .leaving, since: 1)]
        #expect(engine.words(fleet(6, .normal, leaving)) == ["job: suspend"])
        let suspending = [unit("job", .background, .suspending, since: 6)]
        #expect(engine.words(fleet(10.9, .normal, suspending)) == [])
        #expect(engine.words(fleet(11, .normal, suspending)) == ["job: resume room"])
    }

    @Test mutating func `C91 a unit sent away for want of memory is called back with enough memory`() {
        #expect(engine.words(fleet(1, .critical, short: 50, [unit("job") { $0.isWarnable = false }]), failure: nil) == ["job: background"])
        #expect(engine.words(fleet(6, .normal, [unit("job", .background, .leaving, since: 1)])) == ["job: resume room"])
    }

    @Test mutating func `C36 a unit over the allowance is throttled, and ended only after the grace`() {
        var over = unit("job") { ($0.allowance, $0.backgroundSince, $0.isWarnable, $0.suspension) = (.seconds(60), .zero, false, .never) }
        #expect(engine.words(fleet(59, .warning, [over])) == [])
        let other = unit("other", .background, .leaving, since: 58) { ($0.tokens, $0.isWarnable) = (1, false) }
        #expect(engine.words(fleet(60, .warning, short: 100, [over, other]), failure: nil) == ["job: throttle"])
        (over.isThrottled, over.throttledSince) = (true, .seconds(60))
        (over.state, over.since) = (.leaving, .seconds(61))
        #expect(engine.words(fleet(67, .critical, short: 300, [over, other])) == [])
        #expect(engine.words(fleet(90, .critical, short: 300, [over])) == ["job: ask 10 s"])
    }

    @Test(arguments: [(89.9, false), (90, true), (90.1, true)])
    mutating func `C36 a throttled unit has 30 s as long as another background unit may give memory`(
        seconds: Double, isEnded: Bool
    ) {
        let over = unit("job", .background, .leaving, since: 61) {
            ($0.allowance, $0.backgroundSince, $0.isWarnable, $0.suspension) = (.seconds(60), .zero, false, .never)
            ($0.isThrottled, $0.throttledSince) = (true, .seconds(60))
        }
        let other = unit("other", .background, .leaving, since: 88) { $0.isWarnable = false }
        let words = engine.words(fleet(seconds, .critical, short: 300, [over, other]))
        #expect(words == (isEnded ? ["job: ask 10 s"] : []))
    }

    @Test(arguments: [PressureLevel.normal, .warning, .critical])
    mutating func `C36 a throttled unit that comes to the foreground, or is needed there, is slow no longer`(level: PressureLevel) {
        func slow(_ name: String, _ role: ServiceUnit.Role, _ change: (inout UnitReport) -> Void = { _ in }) -> UnitReport {
            unit(name, role) {
                ($0.isThrottled, $0.throttledSince, $0.allowance, $0.isWarnable) = (true, .seconds(60), .seconds(30), false)
                change(&$0)
            }
        }
        let front = slow("front", .foreground) { $0.dependencies = ["needed"] }
        let units = [
            front, slow("needed", .background), slow("job", .background), slow("behind", .foreground) { $0.backgroundSince = .zero },
        ]
        #expect(engine.words(fleet(61, level, units), failure: "refused") == ["front: unthrottle", "needed: unthrottle"])
        #expect(engine.words(fleet(90.5, level, Array(units.prefix(2)))) == [])
        #expect(engine.nextEvaluation(after: fleet(90.5, level, Array(units.prefix(2)))) == .milliseconds(500))
        #expect(engine.words(fleet(91, level, Array(units.prefix(2)))) == ["front: unthrottle", "needed: unthrottle"])
    }

    @Test mutating func `C36 no other step follows a throttle until a report shows the unit throttled`() {
        var over = unit("job") { ($0.allowance, $0.backgroundSince, $0.isWarnable) = (.seconds(60), .zero, false) }
        #expect(engine.words(fleet(60, .warning, [over])) == ["job: throttle"])
        #expect(engine.words(fleet(61, .critical, short: 50, [over])) == [])
        (over.isThrottled, over.throttledSince) = (true, .seconds(60))
        #expect(engine.words(fleet(62, .critical, short: 50, [over])) == ["job: background"])
    }

    @Test mutating func `C36 a throttled unit's grace is cut short before any foreground unit is touched`() {
        let over = unit("job", .background, .leaving) {
            ($0.allowance, $0.backgroundSince, $0.isWarnable, $0.suspension) = (.seconds(60), .zero, false, .never)
            ($0.isThrottled, $0.throttledSince) = (true, .seconds(60))
        }
        let web = unit("web", .foreground) { $0.isWarnable = false }
        #expect(engine.words(fleet(70, .critical, short: 300, [web, over])) == ["job: ask 10 s"])
    }
}
