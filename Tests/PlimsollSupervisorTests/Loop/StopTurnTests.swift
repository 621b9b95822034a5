import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import Testing

@testable import PlimsollSupervisor

/// Tests of the times of units during the stop. The loop does not run: the test does each step, and no time passes.
@Suite(.serialized) struct StopTurnTests {
    @Test(arguments: [false, true])
    func `at the stop, a unit that wants more time leaves the units that it needs their turns`(isRemoved: Bool) throws {
        let directory = Fixture.Directory()
        defer { for name in RunningFleet.names(in: directory.path) { unlink("\(directory.path)/\(name)") } }
        var options = Supervisor.Options(directory: directory.path)
        (options.prefix, options.guardPatience) = (Workbench.prefix(), .seconds(20))
        options.policy.grace = .seconds(30)
        let loop = try SupervisorLoop(Supervisor([], options, source: ScriptedPressureSource()))
        let units: [ServiceUnit] = [.shell("db"), .shell("web") { $0.dependencies = ["db"] }]
        loop.take(units)
        let db = try #require(loop.byName["db"]), web = try #require(loop.byName["web"])
        let process = try #require(web.child?.pid)
        /// Ends the unit's process, and handles the event of that end.
        func end(_ run: UnitRun) {
            loop.kill(run)
            loop.awaitEnd(of: run)
        }

        // The whole time is left to a unit that a reload removes.
        if isRemoved { loop.take(Array(units.prefix(1))) }
        loop.stop()
        #expect(web.state == .ending && web.killAt == .seconds(15) && db.state == .running)
        var message = NotifyMessage()
        message.timeoutExtension = .seconds(60)
        let sender = NotifySocket.Sender(process: process, user: geteuid())
        loop.take(NotifySocket.Notice(sender: sender, unit: "web", message: message, descriptors: []), of: web)
        #expect(web.killAt == .seconds(15))

        end(web)
        #expect(db.state == .ending && db.killAt == .seconds(15))
        // No unit waits for this one.
        let other = NotifySocket.Sender(process: db.child?.pid ?? 0, user: geteuid())
        loop.take(NotifySocket.Notice(sender: other, unit: "db", message: message, descriptors: []), of: db)
        #expect(db.killAt == .seconds(30))
        end(db)
        #expect(loop.runs.isEmpty)
    }
}
