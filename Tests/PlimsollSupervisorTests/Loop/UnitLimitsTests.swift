import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests of time limits, groups and links that end or change while a unit runs on. The loop does not run: the test does
/// each step.
@Suite(.serialized) struct UnitLimitsTests {
    private let directory = Fixture.Directory(), files = Fixture.Directory()

    private func loop() throws -> SupervisorLoop {
        var options = Supervisor.Options(directory: directory.path)
        (options.prefix, options.guardPatience) = (Workbench.prefix(), .seconds(20))
        return try SupervisorLoop(Supervisor([], options, source: ScriptedPressureSource()))
    }

    /// Removes the written files.
    private func clear() {
        for path in [directory.path, files.path] { for name in RunningFleet.names(in: path) { unlink("\(path)/\(name)") } }
    }

    /// Handles the end of the unit's processes, and removes the unit.
    private func finish(_ loop: SupervisorLoop, _ run: UnitRun) {
        loop.awaitEnd(of: run)
        loop.stop()
        #expect(loop.runs.isEmpty)
        clear()
    }

    @Test func `a pause of the whole machine counts against no time limit of a unit`() throws {
        let loop = try loop()
        loop.take([.shell("web")])
        let run = try #require(loop.byName["web"])
        (run.watchdog, run.startBy, run.killAt) = (.seconds(30), .seconds(9), .seconds(10))
        loop.stopBy = .seconds(20)
        let lastAlive = run.lastAlive
        // A supervisor that is late by a second, and one that waits for as long as asked.
        for (took, asked) in [(6, 5), (3600, 3600)] { loop.noteWait(.seconds(took), asked: .seconds(asked)) }
        #expect(run.lastAlive == lastAlive && run.startBy == .seconds(9))
        #expect(run.killAt == .seconds(10) && loop.stopBy == .seconds(20))
        loop.noteWait(.seconds(61), asked: .seconds(5))
        #expect(run.lastAlive - lastAlive == .seconds(61) && run.startBy == .seconds(70))
        #expect(run.killAt == .seconds(71) && loop.stopBy == .seconds(81))
        loop.stopBy = nil
        loop.kill(run)
        finish(loop, run)
    }

    @Test func `a unit whose time has passed during a long turn is not waited for`() throws {
        let loop = try loop()
        loop.take([.shell("web")])
        let run = try #require(loop.byName["web"])
        // The turn began an hour ago.
        loop.now = loop.time.elapsed() - .seconds(3600)
        run.killAt = loop.now + .seconds(3600)
        #expect(loop.wait() == .zero)
        loop.kill(run)
        finish(loop, run)
    }

    @Test func `C33 a reload that changes other keys keeps the keep-alive interval that was granted to the unit`() throws {
        let loop = try loop()
        loop.take([.shell("web") { $0.keepAlive = .seconds(600) }])
        let run = try #require(loop.byName["web"])
        run.keepAlive = .seconds(1200)
        loop.take([.shell("web") { ($0.keepAlive, $0.importance) = (.seconds(600), 900) }])
        #expect(run.unit.importance == 900 && run.keepAlive == .seconds(1200))
        loop.take([.shell("web") { ($0.keepAlive, $0.importance) = (.seconds(900), 900) }])
        #expect(run.keepAlive == .seconds(900))
        loop.kill(run)
        finish(loop, run)
    }

    @Test(.needs(!Workbench.found.parents.isEmpty, "no groups here"))
    func `a unit's first process is killed although it was moved out of the unit's group`() throws {
        let loop = try loop()
        loop.take([.shell("web")])
        let run = try #require(loop.byName["web"]), child = try #require(run.child)
        for directory in run.group.directories {
            let path = try #require(loop.supervisor.root.own.places[directory.hierarchy]?.path)
            #expect(GroupText.write("\(child.pid)", to: "\(path)/cgroup.procs") == nil)
        }
        #expect(run.group.waitUntilEmpty(Workbench.limit))
        loop.kill(run)
        #expect(child.waitForEnd(within: Workbench.limit) != nil)
        child.signal(SIGKILL)
        finish(loop, run)
    }

    @Test func `a former main process that announces its end does not end the unit of its successor`() throws {
        let loop = try loop()
        loop.take([.shell("web", "sleep 1000 & exec sleep 1000")])
        let run = try #require(loop.byName["web"]), former = try #require(run.child)
        #expect(blockUntil("the other process", limit: Workbench.limit) { run.group.processes.count == 2 })
        let other = try #require(run.group.processes.subtracting([former.pid]).first)
        func say(_ process: Int32, _ change: (inout NotifyMessage) -> Void) {
            var message = NotifyMessage()
            change(&message)
            let sender = NotifySocket.Sender(process: process, user: geteuid())
            loop.take(NotifySocket.Notice(sender: sender, unit: "web", message: message, descriptors: []), of: run)
        }
        say(former.pid) { $0.mainProcess = other }
        #expect(run.child?.pid == other)
        say(former.pid) { $0.isStopping = true }
        #expect(run.state == .running && run.killAt == nil)
        say(other) { $0.isStopping = true }
        #expect(run.state == .ending && run.killAt != nil)
        loop.kill(run)
        former.waitForEnd()
        finish(loop, run)
    }

    @Test(.needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"))
    func `a unit that is released and runs on loses the link, and so the supervisor's orders`() throws {
        let script = """
            select(undef, undef, undef, 0.01) until -e '\(files.path)/go';
            socket(L, AF_UNIX, SOCK_STREAM, 0); connect(L, sockaddr_un('\(directory.path)/supervisor')) or die $!;
            syswrite(L, "1 hello v=1\\n2 saved is=yes\\n"); while (sysread(L, my $more, 4096)) {}
            open(my $f, '>', '\(files.path)/alone') or die; close $f; sleep 1000 while 1
            """
        var launch = Child.Launch(["/usr/bin/perl", "-MSocket", "-e", script])
        launch.environment = ["PATH": "/usr/bin:/bin", OrphanCleanup.variable: OrphanCleanup.mark]
        let child = try Child.start(launch), loop = try loop()
        loop.take([ServiceUnit(name: "job", process: child.pid)])
        let run = try #require(loop.byName["job"]), group = run.group
        close(open("\(files.path)/go", O_CREAT | O_WRONLY | O_CLOEXEC, 0o600))
        let isLinked = blockUntil("the link", limit: Workbench.limit) {
            loop.handle(SupervisorLoop.Token.channel)
            return run.isSaved
        }
        #expect(isLinked)
        loop.take([])
        #expect(loop.runs.isEmpty && RunningFleet.isRunning(child.pid) && loop.channel.connectionCount == 0)
        #expect(blockUntil("the end of the link", limit: Workbench.limit) { access("\(files.path)/alone", F_OK) == 0 })
        child.signal(SIGKILL)
        Workbench.clear(group, child)
        clear()
    }
}
