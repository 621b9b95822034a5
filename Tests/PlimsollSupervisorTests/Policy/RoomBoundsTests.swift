import Plimsoll
import PlimsollSupervisor
import Testing

/// Tests of the bounds of returns: throttles, dependencies, the times between returns, and keep-alive.
@Suite struct RoomBoundsTests {
    private var engine = SupervisorEngine()

    // MARK: Returns

    @Test mutating func `C36 a stopped unit keeps the throttle, and a failed lift is tried again after 30 s`() {
        let stopped = unit("off", .background, .stopped, 0) { $0.isThrottled = true }
        let units = [stopped, unit("job") { $0.isThrottled = true }]
        #expect(engine.words(fleet(0, .normal, units)) == [])
        #expect(engine.words(fleet(10, .normal, units), failure: "refused") == ["job: unthrottle"])
        #expect(engine.words(fleet(39.9, .normal, units)) == [])
        #expect(engine.words(fleet(40, .normal, units)) == ["job: unthrottle"])
    }

    @Test(
        arguments: [(nil, true), (.running, true), (.starting, true), (.stopped, false), (.ending, false)]
            as [(UnitState?, Bool)])
    mutating func `a stopped unit is started once the dependencies run, or are no units at all`(
        state: UnitState?, isStarted: Bool
    ) {
        let after = unit("after", .background, .stopped, 0) { ($0.restart, $0.dependencies) = (.always, ["base"]) }
        let units = [after] + (state.map { [unit("base", .background, $0)] } ?? [])
        #expect(engine.words(fleet(0, .normal, units)) == [])
        #expect(engine.words(fleet(10, .normal, units)) == (isStarted ? ["after: start"] : []))
    }

    @Test mutating func `no evaluation is due for units that run, or are not started again`() {
        let units = [
            unit("runs") { ($0.restart, $0.lastEnded) = (.always, .seconds(5)) },
            unit("off", .background, .stopped, 0) { $0.lastEnded = .seconds(5) },
        ]
        #expect(engine.words(fleet(0, .normal, units)) == [])
        let calm = fleet(10, .normal, units)
        #expect(engine.words(calm) == [] && engine.nextEvaluation(after: calm) == nil)
    }

    @Test mutating func `a unit that waits for the pause after a failure is not started early because there is room`() {
        let failed = [
            unit("web", .foreground, .stopped, 0) { ($0.restart, $0.lastEnded, $0.isRestarting) = (.always, .seconds(5), true) }
        ]
        #expect(engine.words(fleet(0, .normal, failed)) == [])
        let calm = fleet(10, .normal, failed)
        #expect(engine.words(calm) == [] && engine.nextEvaluation(after: calm) == nil)
        #expect(engine.words(fleet(40, .normal, failed)) == [])
    }

    @Test mutating func `after a start the next evaluation is due for the next return`() {
        let always = [unit("always", .background, .stopped, 0) { ($0.restart, $0.lastEnded) = (.always, .zero) }]
        #expect(engine.words(fleet(0, .normal, always)) == [])
        let now = fleet(30, .normal, always)
        #expect(engine.words(now) == ["always: start"] && engine.nextEvaluation(after: now) == .milliseconds(500))
    }

    @Test mutating func `of equal units the first by name comes back first`() {
        let units = ["b", "a", "c"].map { unit($0, .background, .suspended) }
        for units in [units, units.reversed()] {
            engine = SupervisorEngine()
            #expect(engine.words(fleet(0, .normal, units)) == [])
            #expect(engine.words(fleet(10, .normal, units)) == ["a: resume room"])
        }
    }

    @Test mutating func `T29 an evaluation is due at each time of a return`() {
        var units = ["a", "line", "second"].map { unit($0, .background, .suspended) }
        var now = Duration.zero, returns: [Duration] = []
        for _ in 0..<20 {
            let seen = Fleet(at: now, level: .normal, shortfall: .zero, units: units)
            for decision in engine.decide(seen) {
                returns.append(now)
                for index in units.indices where units[index].name == decision.unit {
                    (units[index].state, units[index].since) = (.running, now)
                }
                engine.learn(Outcome(decision, at: now, relief: .zero))
            }
            guard let wait = engine.nextEvaluation(after: seen) else { break }
            now += wait
        }
        #expect(returns.count == 3 && returns.first == .seconds(10), "\(returns)")
        for (before, after) in zip(returns, returns.dropFirst()) {
            #expect(after - before >= .milliseconds(500) && after - before <= .milliseconds(750), "\(returns)")
        }
    }

    /// Returns the time that is added between the return of another unit and that of each named unit.
    private mutating func longer(_ names: [String]) -> [Duration] {
        var longer: [Duration] = []
        for name in names {
            engine = SupervisorEngine()
            let first = unit("first", .background, .suspended, importance: 900)
            let second = unit(name, .background, .suspended)
            #expect(engine.words(fleet(0, .normal, [first, second])) == [])
            #expect(engine.words(fleet(10, .normal, [first, second]), failure: nil) == ["first: resume room"])
            let next = fleet(10.5, .normal, [unit("first", since: 10), second])
            #expect(engine.words(next) == [])
            if let wait = engine.nextEvaluation(after: next) { longer.append(wait) }
        }
        return longer
    }

    @Test mutating func `T29 the time between returns is longer by up to half, by name`() {
        let longer = longer(["a", "line", "large", "other", "one", "u0"])
        #expect(longer.count == 6 && longer.allSatisfy { $0 <= .milliseconds(250) }, "\(longer)")
        #expect(longer.contains { $0 > .milliseconds(125) } && longer.contains { $0 < .milliseconds(125) }, "\(longer)")
    }

    @Test mutating func `T29 units with similar names come back at different times`() {
        let longer = longer((0..<5).map { "worker-\($0)" })
        #expect(longer.count == 5 && longer.max()! - longer.min()! > .milliseconds(50), "\(longer)")
    }

    // MARK: Keep-alive

    /// Wakes a unit at 600 s. Returns the unit, which runs then.
    private mutating func woken(_ role: ServiceUnit.Role = .background) -> UnitReport {
        var line = unit("voip", role, .suspended) {
            ($0.keepAlive, $0.isWarnable) = (.seconds(60), false)
            if role == .foreground { $0.backgroundSince = .zero }
        }
        #expect(engine.words(fleet(600, .warning, [line]), failure: nil) == ["voip: resume keep-alive"])
        (line.state, line.since, line.lastWoken) = (.running, .seconds(600), .seconds(600))
        return line
    }

    @Test mutating func `C33 an evaluation is due when the time of a woken unit is over`() {
        let line = woken(), now = fleet(601, .warning, [line])
        #expect(engine.words(now) == [] && engine.nextEvaluation(after: now) == .seconds(9))
    }

    @Test mutating func `C33 a woken unit that is called to the foreground runs on`() {
        var line = woken(.foreground)
        line.backgroundSince = nil
        #expect(engine.words(fleet(605, .warning, [line])) == [])
        #expect(engine.words(fleet(610, .warning, [line])) == [])
    }

    @Test(arguments: [(PressureLevel.warning, false), (.critical, true)])
    mutating func `C33 C48 a woken unit that holds locks runs on, and leaves like any other at critical`(
        level: PressureLevel, leaves: Bool
    ) {
        var line = woken()
        line.holdsLocks = true
        let spared = ["it holds file locks that others may wait for"]
        #expect(engine.words(fleet(610, level, short: 10, [line])) == (leaves ? ["voip: background"] : []))
        #expect(engine.spared.map(\.reason) == spared)
        #expect(engine.words(fleet(611, .warning, [line])) == [])
        #expect(engine.spared.map(\.reason) == (leaves ? [] : spared))
    }

    @Test mutating func `C33 a woken unit that cannot be frozen again counts as any running unit`() {
        var line = unit("voip", .background, .leaving) {
            ($0.keepAlive, $0.lastWoken, $0.isWarnable) = (.seconds(60), .seconds(-600), false)
        }
        #expect(engine.words(fleet(5, .warning, [line]), failure: "not confirmed") == ["voip: suspend"])
        (line.state, line.since) = (.running, .seconds(6))
        #expect(engine.words(fleet(6, .warning, [line])) == [])
        // Another party freezes the unit.
        (line.state, line.since) = (.suspended, .seconds(7))
        #expect(engine.words(fleet(7, .warning, [line]), failure: nil) == ["voip: resume keep-alive"])
        (line.state, line.lastWoken) = (.running, .seconds(7))
        #expect(engine.words(fleet(17, .warning, [line])) == [])
        #expect(engine.words(fleet(18, .critical, short: 10, [line])) == ["voip: ask 10 s"])
    }

    @Test mutating func `T29 two units due at one time are woken one after the other`() {
        var units = ["a", "line"].map { unit($0, .background, .suspended) { $0.keepAlive = .seconds(60) } }
        #expect(engine.words(fleet(600, .warning, units), failure: nil) == ["a: resume keep-alive"])
        (units[0].state, units[0].since, units[0].lastWoken) = (.running, .seconds(600), .seconds(600))
        #expect(engine.words(fleet(600.75, .warning, units)) == ["line: resume keep-alive"])
    }

    @Test mutating func `C33 a unit frozen after a wake comes back with room, and stays`() {
        var line = woken()
        #expect(engine.words(fleet(610, .warning, [line]), failure: nil) == ["voip: suspend"])
        (line.state, line.since) = (.suspended, .seconds(610))
        #expect(engine.words(fleet(611, .normal, [line])) == [])
        #expect(engine.words(fleet(621, .normal, [line]), failure: nil) == ["voip: resume room"])
        (line.state, line.since) = (.running, .seconds(621))
        #expect(engine.words(fleet(640, .normal, [line])) == [])
    }

    @Test mutating func `C33 a unit that was ended after a failed wake is not frozen when the unit runs again`() {
        var line = unit("voip", .background, .suspended) { ($0.keepAlive, $0.isWarnable) = (.seconds(60), false) }
        #expect(engine.words(fleet(600, .warning, [line]), failure: "refused") == ["voip: resume keep-alive"])
        #expect(engine.words(fleet(601, .warning, short: 10, [line])) == ["voip: resume ending", "voip: ask 10 s"])
        (line.state, line.since) = (.running, .seconds(615))
        #expect(engine.words(fleet(620, .warning, [line])) == [])
    }
}
