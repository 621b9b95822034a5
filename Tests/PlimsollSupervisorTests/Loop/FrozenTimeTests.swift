import Plimsoll
import PlimsollLinux
import Testing

@testable import PlimsollSupervisor

/// Tests of the times of a unit that the supervisor has frozen. The unit has no process, and the test tells the time.
@Suite struct FrozenTimeTests {
    private let directory = Fixture.Directory()

    /// Returns a unit that is in the background from 10 s on, and frozen from 20 s on.
    private func frozen(_ change: (UnitRun) -> Void) throws -> UnitRun {
        var unit = ServiceUnit.shell("job")
        (unit.role, unit.allowance) = (.background, .seconds(30))
        let group = try UnitGroup("job", [], own: OwnGroups())
        let pressure = try PressureSocket(directory: directory.path, unit: "job") { _, _ in false }
        let run = UnitRun(id: 1, unit, group, pressure)
        run.goOn(at: .zero)
        run.enter(.leaving, at: .seconds(10))
        run.backgroundSince = .seconds(10)
        change(run)
        run.enter(.suspending, at: .seconds(20))
        run.enter(.suspended, at: .seconds(21))
        return run
    }

    @Test func `C36 K35 the time of a freeze counts against neither the allowance nor the grace of a throttled unit`() throws {
        let run = try frozen { $0.throttledSince = .seconds(15) }
        run.goOn(at: .seconds(620))
        #expect(run.backgroundSince == .seconds(610) && run.throttledSince == .seconds(615))
        run.throttledSince = nil
        var engine = SupervisorEngine()
        #expect(engine.words(fleet(639, .warning, [run.report(at: .seconds(639))])) == [])
        #expect(engine.words(fleet(640, .warning, [run.report(at: .seconds(640))])) == ["job: throttle"])
    }

    @Test func `T33 K35 the time of a freeze does not count against background tasks`() throws {
        // Of the tasks' time, 20 s are left at the freeze.
        let run = try frozen { ($0.tokens, $0.tokensEnd) = (1, .seconds(40)) }
        var report = run.report(at: .seconds(300)), engine = SupervisorEngine()
        report.charge = .mebibytes(100)
        #expect(engine.words(fleet(300, .warning, short: 50, [report])).last == "job: ask 20 s")
        run.goOn(at: .seconds(620))
        #expect(run.report(at: .seconds(625)).tokensEnd == .seconds(640))
    }

    @Test func `the time of a freeze does not count against background tasks of a link that waits for another`() throws {
        let run = try frozen { run in
            run.messages.add(7)
            _ = run.messages.note(.tasks(1, until: .seconds(20)), 2, of: 7, at: .seconds(15))
        }
        run.goOn(at: .seconds(620))
        run.excuse(.seconds(5))
        let next = run.messages.takeNext(), times = next.map { $0.messages.map { $0.at } }
        #expect(times == [Duration.seconds(620)])
    }

    @Test func `K35 a pause of the machine counts against no time of a unit on the way out, and once for a frozen unit`() throws {
        let run = try frozen { ($0.tokens, $0.tokensEnd, $0.throttledSince) = (1, .seconds(40), .seconds(15)) }
        run.excuse(.seconds(60))
        run.goOn(at: .seconds(620))
        #expect(run.tokensEnd == .seconds(640) && run.backgroundSince == .seconds(610) && run.throttledSince == .seconds(615))
        run.enter(.leaving, at: .seconds(630))
        run.excuse(.seconds(60))
        let report = run.report(at: .seconds(691))
        #expect(report.since == .seconds(690) && report.tokensEnd == .seconds(700))
        #expect(report.backgroundSince == .seconds(670) && report.throttledSince == .seconds(675))
    }

    @Test func `a frozen unit is woken an interval after the start of this freeze, and not by the wakes of an earlier one`() throws {
        let run = try frozen { $0.keepAlive = .seconds(600) }
        run.goOn(at: .seconds(621))
        run.lastWoken = .seconds(621)
        run.enter(.suspended, at: .seconds(631))
        var engine = SupervisorEngine()
        #expect(engine.words(fleet(1220, .warning, [run.report(at: .seconds(1220))])) == [])
        #expect(engine.words(fleet(1221, .warning, [run.report(at: .seconds(1221))])) == ["job: resume keep-alive"])
        // The unit comes back, works for an hour, and is frozen once more.
        run.goOn(at: .seconds(1221))
        run.enter(.leaving, at: .seconds(5000))
        run.enter(.suspended, at: .seconds(5005))
        engine = SupervisorEngine()
        #expect(engine.words(fleet(5604, .warning, [run.report(at: .seconds(5604))])) == [])
        #expect(engine.words(fleet(5605, .warning, [run.report(at: .seconds(5605))])) == ["job: resume keep-alive"])
    }
}
