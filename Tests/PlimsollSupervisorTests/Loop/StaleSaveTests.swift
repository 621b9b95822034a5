import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests of a unit's word that nothing would be lost, once that word no longer holds. The loop does not run: the test
/// does each step.
@Suite(.serialized, .needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"))
struct StaleSaveTests {
    private let directory = Fixture.Directory(), files = Fixture.Directory()

    /// Returns a loop with one unit that has said that nothing would be lost, and that then does `script`.
    private func saved(_ script: String, root: GroupRoot? = nil) throws -> (loop: SupervisorLoop, run: UnitRun) {
        let link = """
            $SIG{TERM} = 'IGNORE'; sub mark { open(my $f, '>', $_[0]) or die; close $f }
            socket(L, AF_UNIX, SOCK_STREAM, 0); connect(L, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
            syswrite(L, "1 hello v=1\\n2 saved is=yes\\n");

            """
        var unit = ServiceUnit(name: "job", origin: .command(["/usr/bin/perl", "-MSocket", "-e", link + script]))
        (unit.restart, unit.role) = (.never, .background)
        var options = Supervisor.Options(directory: directory.path)
        (options.prefix, options.guardPatience) = (root?.prefix ?? Workbench.prefix(), .seconds(20))
        let loop = try SupervisorLoop(Supervisor([], options, source: ScriptedPressureSource(), root: root))
        loop.take([unit])
        let run = try #require(loop.byName["job"])
        #expect(blockUntil("the unit's word", limit: Workbench.limit) { hears(loop) && run.isSaved })
        return (loop, run)
    }

    /// Reads the units' links, and returns true.
    private func hears(_ loop: SupervisorLoop) -> Bool {
        loop.handle(SupervisorLoop.Token.channel)
        return true
    }

    private func has(_ name: String) -> Bool { access("\(files.path)/\(name)", F_OK) == 0 }

    /// Ends the unit, and removes all remains.
    private func clear(_ loop: SupervisorLoop, _ run: UnitRun) {
        loop.stop()
        loop.kill(run)
        loop.awaitEnd(of: run)
        #expect(loop.runs.isEmpty)
        for path in [directory.path, files.path] {
            for name in RunningFleet.names(in: path) { unlink("\(path)/\(name)") }
        }
    }

    @Test func `C90 T33 an ending unit that has taken back its word is not taken at that word, even if nothing was read since`() throws {
        let (loop, run) = try saved(
            """
            select(undef, undef, undef, 0.01) until -e '\(files.path)/go';
            syswrite(L, "3 tasks n=2\\n4 saved is=no\\n"); mark('\(files.path)/said'); sleep 1000 while 1
            """)
        loop.askToEnd(run, .seconds(3600))
        // The decisions of a shortage follow, as after any operation.
        run.underWay = (1, Decision(at: loop.now, unit: "job", action: .end(.ask(grace: .seconds(3600))), reason: ""), .zero)
        #expect(run.state == .ending && loop.readFleet().units.map(\.isSaved) == [true])
        close(open("\(files.path)/go", O_CREAT | O_WRONLY | O_CLOEXEC, 0o600))
        #expect(blockUntil("the second message", limit: Workbench.limit) { has("said") })
        #expect(run.isSaved, "the message waits in the socket")
        let report = try #require(loop.readFleet().units.first)
        #expect(!report.isSaved && report.tokens == 2)
        clear(loop, run)
    }

    @Test func `C90 K38 a unit is not taken at the word of a former unit of the same name`() throws {
        let loop: SupervisorLoop
        // A unit that is still referred to keeps a socket open.
        do {
            let (made, former) = try saved(
                """
                socket(M, AF_UNIX, SOCK_STREAM, 0); connect(M, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
                select(undef, undef, undef, 0.01) until -e '\(files.path)/go';
                syswrite(M, "1 hello v=1\\n2 saved is=yes\\n"); mark('\(files.path)/said'); sleep 1000 while 1
                """)
            loop = made
            #expect(blockUntil("the second link", limit: Workbench.limit) { hears(loop) && loop.channel.connectionCount == 2 })
            close(open("\(files.path)/go", O_CREAT | O_WRONLY | O_CLOEXEC, 0o600))
            #expect(blockUntil("the second link's word", limit: Workbench.limit) { has("said") })
            loop.dismiss(former, within: .seconds(3600))
            loop.kill(former)
            loop.awaitEnd(of: former)
        }
        try #require(loop.runs.isEmpty)
        // The word of the second link is still unread.
        loop.add(.shell("job"))
        loop.startWaiting()
        let run = try #require(loop.byName["job"])
        #expect(run.state == .running && hears(loop))
        #expect(run.peer == nil && !run.isSaved)
        clear(loop, run)
    }

    @Test func `a frozen unit that is asked to end is not taken at its word, as the unit works again`() throws {
        let (loop, run) = try saved("sleep 1000 while 1")
        loop.carryOut(Decision(at: loop.now, unit: "job", action: .suspend, reason: ""), loop.readFleet())
        #expect(run.group.waitUntilFrozen(Workbench.limit))
        loop.groupChanged(run)
        #expect(run.state == .suspended && run.isSaved)
        // As for a reload that changes the unit's command.
        loop.askToEnd(run, .seconds(3600))
        #expect(run.state == .ending && !run.isSaved)
        clear(loop, run)
    }

    private func touch(_ name: String) { close(open("\(files.path)/\(name)", O_CREAT | O_WRONLY | O_CLOEXEC, 0o600)) }

    @Test func `a unit that is woken for keep-alive is asked for its word again, as a link tells only changes`() throws {
        let (loop, run) = try saved(
            """
            my $heard = ''; while ($heard !~ /checkpoint/) { sysread(L, my $more, 4096) or die; $heard .= $more }
            syswrite(L, "3 saved is=yes\\n"); sleep 1000 while 1
            """)
        loop.carryOut(Decision(at: loop.now, unit: "job", action: .suspend, reason: ""), loop.readFleet())
        #expect(run.group.waitUntilFrozen(Workbench.limit))
        loop.groupChanged(run)
        #expect(run.state == .suspended)
        loop.carryOut(Decision(at: loop.now, unit: "job", action: .resume(.keepAlive), reason: ""), loop.readFleet())
        #expect(run.state == .running && !run.isSaved)
        #expect(blockUntil("the unit's word after the wake", limit: Workbench.limit) { hears(loop) && run.isSaved })
        clear(loop, run)
    }

    @Test func `a unit that says it is in the foreground before it hears the order to leave is called back`() throws {
        let (loop, run) = try saved(
            """
            my $heard = ''; while ($heard !~ /background/) { sysread(L, my $more, 4096) or die; $heard .= $more }
            syswrite(L, "3 state is=foreground\\n");
            while ($heard !~ /resume/) { sysread(L, my $more, 4096) or die; $heard .= $more }
            mark('\(files.path)/told'); sleep 1000 while 1
            """)
        loop.carryOut(Decision(at: loop.now, unit: "job", action: .background, reason: ""), loop.readFleet())
        #expect(run.state == .leaving)
        #expect(blockUntil("the unit's word", limit: Workbench.limit) { hears(loop) && run.state == .running })
        #expect(run.backgroundSince == nil)
        #expect(blockUntil("the order to return", limit: Workbench.limit) { hears(loop) && has("told") })
        clear(loop, run)
    }

    @Test func `a foreground unit whose link ends in the background does not stay in the background for good`() throws {
        let (loop, run) = try saved(
            """
            syswrite(L, "3 state is=background\\n");
            select(undef, undef, undef, 0.01) until -e '\(files.path)/go'; close(L); sleep 1000 while 1
            """)
        run.unit.role = .foreground
        #expect(blockUntil("the background", limit: Workbench.limit) { hears(loop) && run.backgroundSince != nil })
        touch("go")
        #expect(blockUntil("the end of the link", limit: Workbench.limit) { hears(loop) && run.peer == nil })
        #expect(run.backgroundSince == nil && run.report(at: loop.now).backgroundSince == nil)
        clear(loop, run)
    }

    @Test func `what a second link said counts from that time, not from the end of the first link`() throws {
        let (loop, run) = try saved(
            """
            socket(M, AF_UNIX, SOCK_STREAM, 0); connect(M, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
            syswrite(M, "1 hello v=1\\n2 tasks n=1 until=10000\\n3 suspend\\n");
            select(undef, undef, undef, 0.01) until -e '\(files.path)/go'; close(L); sleep 1000 while 1
            """)
        let hasSecond = blockUntil("the second link's words", limit: Workbench.limit) {
            hears(loop) && run.messages.waiting.values.contains { $0[.suspend] != nil }
        }
        #expect(hasSecond && run.tokens == 0 && run.suspensionRequestedAt == nil)
        let said = loop.now
        loop.now += .seconds(60)
        touch("go")
        #expect(blockUntil("the end of the first link", limit: Workbench.limit) { hears(loop) && run.tokens == 1 })
        // The tasks' time is over, and so is the request.
        #expect(run.tokensEnd == said + .seconds(10) && run.suspensionRequestedAt == said)
        clear(loop, run)
    }

    /// The hierarchies of the unit's groups; `nil` for those found here.
    private static let roots: [[Hierarchy]?] = [nil, [.memory, .freezer], []]

    /// A thaw is noticed by an event of the group, or at the latest by an evaluation while memory is short.
    @Test(arguments: roots, [true, false])
    func `C90 a unit that another party has thawed counts as running, is told, and is not taken at its word`(
        hierarchies: [Hierarchy]?, isEvent: Bool
    ) throws {
        let (loop, run) = try saved(
            """
            my $heard = ''; while ($heard !~ /resume/) { sysread(L, my $more, 4096) or die; $heard .= $more }
            mark('\(files.path)/told'); sleep 1000 while 1
            """, root: hierarchies.map { Workbench.root(version1: $0) })
        loop.carryOut(Decision(at: loop.now, unit: "job", action: .suspend, reason: ""), loop.readFleet())
        #expect(run.group.waitUntilFrozen(Workbench.limit))
        loop.groupChanged(run)
        // A change of the group that is no thaw.
        loop.groupChanged(run)
        #expect(run.state == .suspended && run.isSaved && !run.group.isThawed)
        try run.group.thaw()
        if isEvent {
            loop.groupChanged(run)
        } else {
            run.underWay = (1, Decision(at: loop.now, unit: "job", action: .reclaim(.mebibytes(1)), reason: ""), .zero)
        }
        let report = try #require(loop.readFleet().units.first)
        #expect(report.state == .running && !report.isSaved)
        #expect(blockUntil("the order to return", limit: Workbench.limit) { hears(loop) && has("told") })
        clear(loop, run)
    }
}
