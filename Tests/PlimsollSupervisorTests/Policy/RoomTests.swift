import Plimsoll
import PlimsollSupervisor
import Testing

@Suite struct RoomTests {
    private var engine = SupervisorEngine()

    /// Returns all decisions of a calm period, in which the units follow each decision.
    private mutating func calm(_ units: [UnitReport], room: Int?, for seconds: Int) -> [String] {
        var units = units, words: [String] = []
        for tenth in 0..<seconds * 10 {
            let fleet = fleet(Double(tenth) / 10, .normal, room: room, units)
            for decision in engine.decide(fleet) {
                words.append(decision.words)
                guard let index = units.firstIndex(where: { $0.name == decision.unit }) else { continue }
                switch decision.action {
                case .throttle(let on): units[index].isThrottled = on
                default: (units[index].state, units[index].since) = (.running, fleet.at)
                }
                engine.learn(Outcome(decision, at: fleet.at, relief: .zero))
            }
        }
        return words
    }

    @Test mutating func `C91 frozen units come back with room, the most important first, then the smallest`() {
        let units = [
            unit("low", .background, .suspended, 10, importance: 1), unit("large", .deferred, .suspended, 200),
            unit("small", .deferred, .suspended, 100), unit("asked", .foreground, .suspended, 1, importance: 1000),
        ]
        #expect(calm(units, room: 1000, for: 20) == ["small: resume room", "large: resume room", "low: resume room"])
    }

    @Test mutating func `no unit comes back before room has lasted, and pages charged anyway need none of that room`() {
        let units = [unit("small", .background, .suspended, 100), unit("large", .background, .suspended, 200)]
        #expect(calm(units, room: 50, for: 9) == [])
        engine = SupervisorEngine()
        #expect(calm(units, room: 50, for: 30) == ["small: resume room", "large: resume room"])
    }

    @Test mutating func `C91 a unit comes back once level normal has lasted ten seconds without a shortfall`() {
        let job = [unit("job", .background, .suspended)]
        for (level, short, seconds, comesBack) in [
            (PressureLevel.normal, 0, 9.9, false), (.normal, 0, 10, true), (.normal, 0, 10.1, true),
            (.normal, 1, 20, false), (.warning, 0, 20, false),
        ] {
            engine = SupervisorEngine()
            #expect(engine.words(fleet(0, level, short: short, job)) == [])
            let words = engine.words(fleet(seconds, level, short: short, job))
            #expect(words == (comesBack ? ["job: resume room"] : []), "\(level), \(short) MiB, \(seconds) s")
        }
    }

    @Test(arguments: [(100, false), (149, false), (150, true), (160, true)])
    mutating func `only a fitting unit comes back, counting the pages reclaimed before`(room: Int, comesBack: Bool) throws {
        var job = unit("job", .background, .running, 200) { $0.isWarnable = true }
        let sent = try #require(engine.decide(fleet(0, .critical, short: 150, [job])).first { $0.action == .background })
        engine.learn(Outcome(sent, at: .zero, relief: .zero))
        // The unit is frozen by now, and most of the unit's memory was reclaimed.
        (job.state, job.since, job.charge) = (.suspended, .seconds(1), .mebibytes(50))
        var words: [String] = []
        for second in 10..<40 { words += engine.words(fleet(Double(second), .normal, room: room, [job])) }
        #expect(words.contains("job: resume room") == comesBack, "\(words)")
    }

    // Found by the simulation, seed 1011: the file pages of a frozen unit were reclaimed, and the unit stayed frozen
    // for good.
    @Test mutating func `C91 five minutes of room halve the room that a unit must find`() throws {
        var job = unit("job", .background, .running, 200)
        let sent = try #require(engine.decide(fleet(0, .critical, short: 150, [job])).first { $0.action == .background })
        engine.learn(Outcome(sent, at: .zero, relief: .zero))
        (job.state, job.since, job.charge) = (.suspended, .seconds(10), .mebibytes(50))
        for second in 20..<310 { #expect(engine.words(fleet(Double(second), .normal, room: 70, [job])) == [], "\(second)") }
        // 150 MiB were reclaimed. Half of that is not free either; a quarter is.
        #expect(engine.words(fleet(319, .normal, room: 70, [job])) == [])
        #expect(engine.nextEvaluation(after: fleet(319, .normal, room: 70, [job])) == .seconds(1))
        #expect(engine.words(fleet(619, .normal, room: 70, [job])) == [])
        #expect(engine.words(fleet(620, .normal, room: 70, [job])) == ["job: resume room"])
    }

    // Found by the simulation, seed 1049: such a unit stayed frozen for good, as no other unit asks for it.
    @Test mutating func `C91 a foreground unit frozen at its own request while in the background comes back with room`() {
        var web = unit("web", .foreground) { ($0.backgroundSince, $0.suspensionRequestedAt) = (.zero, .zero) }
        #expect(engine.words(fleet(0, .normal, [web]), failure: nil) == ["web: background"])
        (web.state, web.suspensionRequestedAt, web.isReady) = (.leaving, nil, true)
        #expect(engine.words(fleet(1, .normal, [web]), failure: nil) == ["web: suspend"])
        (web.state, web.since) = (.suspended, .seconds(1))
        #expect(engine.words(fleet(5, .normal, room: 10, [web]), failure: nil) == [])
        #expect(engine.words(fleet(12, .normal, room: 10, [web]), failure: nil) == ["web: resume room"])
    }

    @Test mutating func `T29 units come back one after the other`() {
        let units = (0..<5).map { unit("u\($0)", .background, .suspended) }
        var now = 0.0, times: [Double] = [], states = units
        while now < 20 {
            let fleet = fleet(now, .normal, states)
            for decision in engine.decide(fleet) {
                times.append(now)
                states[states.firstIndex { $0.name == decision.unit }!].state = .running
                engine.learn(Outcome(decision, at: fleet.at, relief: .zero))
            }
            now += 0.01
        }
        #expect(times.count == 5)
        for (before, after) in zip(times, times.dropFirst()) { #expect(after - before >= 0.49 && after - before < 0.8) }
    }

    @Test mutating func `T33 an ended unit with restart always is started again, with room and after the gap`() {
        let units = [
            unit("always", .background, .stopped, 0) { ($0.restart, $0.lastEnded) = (.always, .seconds(-5)) }, unit("once", .background, .stopped, 0),
            unit("after", .background, .stopped, 0) { ($0.restart, $0.dependencies) = (.always, ["once"]) },
        ]
        #expect(calm(units, room: nil, for: 25) == [])
        #expect(calm(units, room: nil, for: 25) == [])
        engine = SupervisorEngine()
        #expect(calm(units, room: nil, for: 30) == ["always: start"])
    }

    @Test(arguments: [(1, false), (0, true), (-1, true)])
    mutating func `T33 a stopped unit is started again 30 s after the last end`(ended: Int, isStarted: Bool) {
        let always = unit("always", .background, .stopped, 0) {
            ($0.restart, $0.lastEnded) = (.always, .seconds(ended))
        }
        let now = fleet(30, .normal, [always])
        #expect(engine.words(fleet(0, .normal, [always])) == [])
        #expect(engine.words(now) == (isStarted ? ["always: start"] : []))
        #expect(isStarted || engine.nextEvaluation(after: now) == .seconds(1))
    }

    @Test mutating func `a failed start is tried again after 30 s`() {
        let always = [unit("always", .background, .stopped, 0) { $0.restart = .always }]
        #expect(engine.words(fleet(0, .normal, always)) == [])
        #expect(engine.words(fleet(10, .normal, always), failure: "no such file") == ["always: start"])
        #expect(engine.words(fleet(39.9, .normal, always)) == [])
        #expect(engine.words(fleet(40, .normal, always)) == ["always: start"])
    }

    @Test mutating func `C36 throttles are lifted with room`() {
        #expect(calm([unit("job") { $0.isThrottled = true }], room: 0, for: 11) == ["job: unthrottle"])
    }

    @Test(arguments: [(60.0, 600.0), (600, 600), (601, 601)])
    mutating func `C33 a unit is woken at the interval asked for, at least ten minutes, and then runs for ten seconds`(
        asked: Double, interval: Double
    ) {
        var line = unit("voip", .background, .suspended) { ($0.keepAlive, $0.isWarnable) = (.seconds(asked), false) }
        #expect(engine.words(fleet(interval - 0.1, .warning, [line])) == [])
        #expect(engine.words(fleet(interval, .warning, [line]), failure: nil) == ["voip: resume keep-alive"])
        (line.state, line.since, line.lastWoken) = (.running, .seconds(interval), .seconds(interval))
        #expect(engine.words(fleet(interval + 9.9, .warning, [line])) == [])
        #expect(engine.words(fleet(interval + 10, .warning, [line])) == ["voip: suspend"])
    }

    @Test mutating func `C33 a unit is woken at the interval, frozen again after the budget, and not woken at critical`() {
        var line = unit("voip", .foreground, .suspended) { ($0.keepAlive, $0.backgroundSince, $0.isWarnable) = (.seconds(60), .zero, false) }
        #expect(engine.words(fleet(599, .normal, [line])) == [])
        #expect(engine.nextEvaluation(after: fleet(599, .normal, [line])) == .seconds(1))
        #expect(engine.words(fleet(600, .critical, [line])) == [])
        #expect(engine.words(fleet(601, .warning, [line]), failure: nil) == ["voip: resume keep-alive"])
        (line.state, line.since, line.lastWoken) = (.running, .seconds(601), .seconds(601))
        #expect(engine.words(fleet(602, .critical, short: 10, [line])) == [])
        #expect(engine.words(fleet(611, .normal, [line]), failure: nil) == ["voip: suspend"])
        (line.state, line.since) = (.suspended, .seconds(611))
        #expect(engine.words(fleet(1200, .normal, [line])) == [])
        #expect(engine.words(fleet(1201, .normal, [line])) == ["voip: resume keep-alive"])
    }
}
