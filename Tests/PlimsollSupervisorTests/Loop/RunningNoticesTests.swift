import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests of units' notices about their start and their processes.
@Suite(.serialized, .needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket")) struct RunningNoticesTests {
    private static let say = #"sub say_it { socket(S, AF_UNIX, SOCK_DGRAM, 0); send(S, $_[0], 0, sockaddr_un($ENV{NOTIFY_SOCKET})) or die $! } "#

    private func perl(_ name: String, _ script: String, _ change: (inout ServiceUnit) -> Void = { _ in }) -> ServiceUnit {
        var unit = ServiceUnit(name: name, origin: .command(["/usr/bin/perl", "-MSocket", "-e", Self.say + script]))
        unit.restart = .never
        change(&unit)
        return unit
    }

    @Test func `a unit with readiness notices counts as started from the notice on, and not before`() async throws {
        let directory = Fixture.Directory(), go = "\(directory.path)/go"
        let database = perl("database", "select(undef, undef, undef, 0.01) until -e '\(go)'; say_it('READY=1'); sleep 1000") {
            // On a busy machine the polls below take longer than the default.
            ($0.notify, $0.startTime) = (true, .seconds(1000))
        }
        let fleet = try RunningFleet([database, .shell("web") { $0.dependencies = ["database"] }])
        #expect(await fleet.waits { fleet.state("database") == .starting })
        let turns = fleet.supervisor.turns.load(ordering: .relaxed)
        var polls = 0
        #expect(
            await fleet.waits {
                polls += 1
                return polls > 50
            })
        #expect(fleet.state("web") == .stopped && fleet.state("database") == .starting)
        #expect(fleet.supervisor.turns.load(ordering: .relaxed) - turns < 10)
        close(open(go, O_CREAT | O_WRONLY, 0o600))
        #expect(await fleet.waits { fleet.state("web") == .running && fleet.state("database") == .running })
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        unlink(go)
    }

    @Test func `a unit without a timely notice has failed, and is started again`() async throws {
        let web = perl("web", "sleep 1000") { ($0.notify, $0.startTime, $0.restart) = (true, .milliseconds(100), .onFailure) }
        let fleet = try RunningFleet([web])
        #expect(await fleet.waits { fleet.problems.count > 1 }, "\(fleet.problems) \(String(describing: fleet.report("web")))")
        #expect(fleet.problems.allSatisfy { $0 == "web: killed: it did not report in time that it had started (READY=1)" })
        #expect(await fleet.stop())
    }

    /// A notice that came while no supervisor ran is lost, and must get no unit killed.
    @Test(arguments: [false, true])
    func `a unit taken over while starting counts as started from the notice on, or after the time for a start`(isLost: Bool) async throws {
        let directory = Fixture.Directory(), go = "\(directory.path)/go"
        let script = "select(undef, undef, undef, 0.01) until -e '\(go)'; say_it('READY=1'); sleep 1000"
        var database = perl("database", script) { ($0.notify, $0.startTime) = (true, .seconds(1000)) }
        let web = ServiceUnit.shell("web") { $0.dependencies = ["database"] }
        let first = try RunningFleet([database, web]) { $0.leavesUnits = true }
        #expect(await first.waits { first.state("database") == .starting })
        let process = try #require(ProcessNote(first.directory.path, "database").read()?.pid)
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        if isLost { database.startTime = .milliseconds(50) }
        let next = try RunningFleet([database, web], after: first)
        if !isLost {
            #expect(await next.waits { next.report("database") != nil })
            #expect(next.state("database") == .starting && next.state("web") == .stopped)
            close(open(go, O_CREAT | O_WRONLY, 0o600))
        }
        #expect(await next.waits { next.state("web") == .running && next.process("database") == process })
        #expect(RunningFleet.isRunning(process))
        #expect(await next.stop() && next.problems.isEmpty, "\(next.problems)")
        unlink(go)
    }

    @Test func `the time of a start does not count for the watchdog`() async throws {
        // The start takes longer than the watchdog's interval. The other unit starts in the turn that reads `READY=1`.
        let start = "say_it('WATCHDOG_USEC=100000'); select(undef, undef, undef, 1); say_it('READY=1'); sleep 1000"
        let database = perl("database", start) { ($0.notify, $0.startTime) = (true, .seconds(1000)) }
        let fleet = try RunningFleet([database, .shell("web") { $0.dependencies = ["database"] }])
        #expect(await fleet.waits { fleet.state("web") == .running })
        #expect(await fleet.stop())
    }

    @Test func `C48 a leaving unit that gives up a file lock is frozen without any further event`() async throws {
        let directory = Fixture.Directory(), go = "\(directory.path)/go", file = "\(Workbench.directory)/\(Workbench.prefix())"
        defer { for path in [go, file] { unlink(path) } }
        let script = """
            open(F, '>', '\(file)') or die $!; flock(F, 2) or die $!;
            socket(L, AF_UNIX, SOCK_STREAM, 0); connect(L, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
            syswrite(L, "1 hello v=1\\n2 suspend\\n"); select(undef, undef, undef, 0.01) until -e '\(go)'; close(F); sleep 1000
            """
        let fleet = try RunningFleet([perl("job", script) { $0.role = .background }]) { $0.policy.leaveTime = .milliseconds(50) }
        #expect(await fleet.waits { fleet.state("job") == .leaving })
        // By then the time to leave is over, and the lock is known.
        var polls = 0
        #expect(
            await fleet.waits {
                polls += 1
                return polls > 200
            })
        #expect(fleet.state("job") == .leaving)
        close(open(go, O_CREAT | O_WRONLY, 0o600))
        #expect(await fleet.waits { fleet.state("job") == .suspended })
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here"))
    func `C33 C48 a unit woken for keep-alive is not frozen again while a file lock is held`() async throws {
        let directory = Fixture.Directory(), file = "\(Workbench.directory)/\(Workbench.prefix())"
        let (take, held, go) = ("\(directory.path)/take", "\(directory.path)/held", "\(directory.path)/go")
        defer { for path in [take, held, go, file] { unlink(path) } }
        let script = """
            socket(L, AF_UNIX, SOCK_STREAM, 0); connect(L, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!;
            syswrite(L, "1 hello v=1\\n2 suspend\\n"); select(undef, undef, undef, 0.01) until -e '\(take)';
            open(F, '>', '\(file)') or die $!; flock(F, 2) or die $!; open(H, '>', '\(held)'); close(H);
            select(undef, undef, undef, 0.01) until -e '\(go)'; close(F); sleep 1000
            """
        let job = perl("job", script) { ($0.role, $0.keepAlive) = (.background, .milliseconds(100)) }
        let fleet = try RunningFleet([job]) {
            ($0.policy.leaveTime, $0.policy.keepAliveInterval) = (.milliseconds(50), .milliseconds(100))
            $0.policy.keepAliveBudget = .milliseconds(100)
        }
        #expect(await fleet.waits { fleet.state("job") == .suspended })
        // The unit takes the lock during one of the wakes, and the end of that wake or of the next one finds the lock.
        close(open(take, O_CREAT | O_WRONLY, 0o600))
        #expect(
            await fleet.waits {
                access(held, F_OK) == 0 && fleet.report("job").map { $0.state == .running && $0.holdsLocks } ?? false
            })
        close(open(go, O_CREAT | O_WRONLY, 0o600))
        #expect(await fleet.waits { fleet.state("job") == .suspended })
        #expect(await fleet.stop())
    }

    @Test func `K38 a process that a unit names as the main process is followed, and a foreign process is not`() async throws {
        let stranger = try Workbench.shell("exec sleep 1000", in: nil).child
        defer {
            stranger.signal(SIGKILL)
            stranger.waitForEnd()
        }
        // The first process names both processes as the main one, and exits with success. Its child runs until SIGTERM.
        let script = """
            $| = 1; my $child = fork; if (!$child) { $SIG{TERM} = sub { exit 0 }; sleep 1000 while 1 }
            say_it("MAINPID=\(stranger.pid)"); say_it("MAINPID=$child\\nREADY=1"); exit 0
            """
        let fleet = try RunningFleet([perl("web", script) { $0.notify = true }])
        func main() -> Int32? { Int32(fleet.text("web.process").prefix { $0 != " " }) }
        #expect(await fleet.waits { fleet.state("web") == .running && !fleet.problems.isEmpty })
        #expect(fleet.problems == ["web: ignored process \(stranger.pid) as main process: it is not a process of the unit"])
        let child = try #require(main())
        #expect(fleet.state("web") == .running && RunningFleet.isRunning(child))
        kill(child, SIGTERM)
        #expect(await fleet.waits { fleet.state("web") == .stopped })
        #expect(RunningFleet.isRunning(stranger.pid))
        #expect(await fleet.stop())
    }

    @Test func `a unit that reports stopping has the stop time and no more`() async throws {
        let directory = Fixture.Directory(), note = "\(directory.path)/pid"
        defer { unlink(note) }
        let script = "$SIG{TERM} = 'IGNORE'; open(F, '>', '\(note)'); print F $$; close F; say_it('STOPPING=1'); sleep 1000 while 1"
        func pid() -> Int32? { Int32((try? GroupText.read(note).get()).map { String(decoding: $0, as: UTF8.self) } ?? "") }

        // The unit ends within the stop time. The time is so long that the test sees the unit before the time is over.
        let patient = try RunningFleet([perl("web", script)]) { $0.policy.grace = .seconds(1000) }
        #expect(await patient.waits { patient.state("web") == .ending })
        let first = try #require(pid())
        #expect(RunningFleet.isRunning(first))
        kill(first, SIGKILL)
        #expect(await patient.waits { patient.state("web") == .stopped })
        #expect(await patient.stop() && patient.problems.isEmpty)

        // The unit never ends on its own.
        let fleet = try RunningFleet([perl("web", script)])
        #expect(await fleet.waits { pid().map { $0 != first } ?? false && fleet.state("web") == .stopped })
        #expect(pid().map { RunningFleet.isRunning($0) } == false)
        #expect(await fleet.stop() && fleet.problems.isEmpty)
    }

    @Test(.needs(access("/usr/bin/python3", X_OK) == 0, "no python here that would send descriptors"))
    func `descriptors that a unit has stored are passed to the next start`() async throws {
        // The first run stores a pair of sockets, twice under one name, and another socket that the run removes. The
        // next run reports the descriptors it finds.
        let script = """
            import os, socket, signal
            say = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            say.connect(os.environ['NOTIFY_SOCKET'])
            if 'LISTEN_FDS' not in os.environ:
                one, other = socket.socketpair()
                one.send(b'still here')
                for name in ['pair', 'pair', 'gone']:
                    socket.send_fds(say, [('FDSTORE=1\\nFDNAME=' + name).encode()], [one.fileno(), other.fileno()])
                say.send(b'FDSTOREREMOVE=1\\nFDNAME=gone')
                os._exit(1)
            mine = os.environ['LISTEN_PID'] == str(os.getpid())
            text = socket.socket(fileno=4).recv(100).decode()
            print(os.environ['LISTEN_FDS'], os.environ['LISTEN_FDNAMES'], mine, text, file=open(os.environ['TELL'], 'w'), flush=True)
            signal.pause()
            """
        let directory = Fixture.Directory(), statusFile = "\(directory.path)/told"
        var unit = ServiceUnit(name: "web", origin: .command(["/usr/bin/python3", "-c", script]))
        unit.environment = ["TELL": statusFile]
        let fleet = try RunningFleet([unit])
        func text() -> String { (try? GroupText.read(statusFile).get()).map { String(decoding: $0, as: UTF8.self) } ?? "" }
        #expect(await fleet.waits { text().hasSuffix("\n") })
        #expect(text() == "2 pair:pair True still here\n")
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
        unlink(statusFile)
    }

    @Test(.needs(getuid() == 0, "only root can be somebody else"))
    func `T34 K38 messages of units of other users are accepted, and messages of strangers are not`() async throws {
        let nobody = "$( = $) = '65534 65534'; $< = $> = 65534; die unless $> == 65534; "
        let listen = "socket(L, AF_UNIX, SOCK_STREAM, 0); connect(L, sockaddr_un($ENV{MEMORY_PRESSURE_WATCH})) or die $!; "
        let link =
            "socket(P, AF_UNIX, SOCK_STREAM, 0); connect(P, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!; syswrite(P, qq(1 hello v=1\\n2 saved is=yes\\n)); "
        let unit = perl("web", nobody + listen + link + "say_it('READY=1'); sleep 1000") { $0.notify = true }
        let other = ServiceUnit.shell("other") { $0.dependencies = ["web"] }
        // Before the unit starts: the process becomes another user, and needs the directory at once.
        let fleet = try RunningFleet([unit, other]) { _ = chmod($0.directory, 0o711) }
        #expect(await fleet.waits { fleet.state("web") == .running && (fleet.report("web")?.isSaved ?? false) && fleet.state("other") == .running })
        // A stranger with the same message is refused.
        let output = Output(), path = fleet.directory.path
        let listens = "$SIG{PIPE} = 'IGNORE'; " + nobody + listen + link + "say_it('WATCHDOG=trigger'); "
        let prints = "$| = 1; sysread(P, $t, 100); print $t; print 0 + sysread(L, $t, 100)"
        var launch = Child.Launch(["/usr/bin/perl", "-MSocket", "-e", Self.say + listens + prints])
        launch.environment = [
            "NOTIFY_SOCKET": path + "/notify", "MEMORY_PRESSURE_WATCH": path + "/other.pressure", "PLIMSOLL_SUPERVISOR": path + "/supervisor",
        ]
        launch.output = output.write
        let stranger = try Child.start(launch)
        output.closeWrite()
        #expect(output.line() == "1 refused because=unknown-process" && output.line() == "0")
        #expect(stranger.waitForEnd() == .exited(0))
        #expect(fleet.report("other")?.isWarnable == false && fleet.state("web") == .running && fleet.state("other") == .running)
        #expect(await fleet.stop())
    }
}
