import CPlimsollSupervisor
import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// Tests of the processes that may send for a unit, and of the sockets for that.
@Suite(
    .serialized, .needs(access("/usr/bin/perl", X_OK) == 0, "no perl here that can write to a socket"),
    .needs(getuid() == 0, "only root can be somebody else"))
struct RunningSendersTests {
    /// `say_it(TEXT)` notifies as sd_notify(3) does; `link_up` returns a link that has said hello; `become(USER)`
    /// changes the user for good; `await_file(PATH)` waits for a file.
    private static let words = #"""
        $| = 1;
        # A link that was refused is closed while more is said.
        $SIG{PIPE} = 'IGNORE';
        sub say_it { socket(my $s, AF_UNIX, SOCK_DGRAM, 0); send($s, $_[0], 0, sockaddr_un($ENV{NOTIFY_SOCKET})) }
        sub link_up { socket(my $l, AF_UNIX, SOCK_STREAM, 0); connect($l, sockaddr_un($ENV{PLIMSOLL_SUPERVISOR})) or die $!; syswrite($l, "1 hello v=1\n"); $l }
        sub become { $( = $) = "$_[0] $_[0]"; $< = $> = $_[0]; die unless $> == $_[0] }
        sub await_file { select(undef, undef, undef, 0.01) until -e $_[0] }
        sub mark { open(my $f, '>', $_[0]) or die; close $f }

        """#

    private let directory = Fixture.Directory()

    private func perl(_ name: String, _ script: String, _ change: (inout ServiceUnit) -> Void = { _ in }) -> ServiceUnit {
        var unit = ServiceUnit(name: name, origin: .command(["/usr/bin/perl", "-MSocket", "-e", Self.words + script]))
        unit.restart = .never
        change(&unit)
        return unit
    }

    private func fleet(_ units: [ServiceUnit], _ change: (inout Supervisor.Options) -> Void = { _ in }) throws -> RunningFleet {
        // Before the units start: a process of another user may need the directories at once.
        chmod(directory.path, 0o777)
        return try RunningFleet(units) { options in
            chmod(options.directory, 0o711)
            change(&options)
        }
    }

    private func touch(_ name: String) { close(open("\(directory.path)/\(name)", O_CREAT | O_WRONLY | O_CLOEXEC, 0o644)) }
    private func has(_ name: String) -> Bool { access("\(directory.path)/\(name)", F_OK) == 0 }
    private func clear() { for name in RunningFleet.names(in: directory.path) { unlink("\(directory.path)/\(name)") } }

    /// A worker of another user that sends all harmful messages, by both channels, and stays: the unit of an ended
    /// process would be unknown.
    private var hostileWorker: String {
        """
        if (!fork) {
            become(65534);
            say_it("MAINPID=$$"); say_it("STOPPING=1"); say_it("WATCHDOG=trigger"); say_it("FDSTOREREMOVE=1\\nFDNAME=x"); say_it("WATCHDOG_USEC=1000");
            my $l = eval { link_up() };
            if ($l) { syswrite($l, "2 saved is=yes\\n"); sysread($l, my $t, 100); open(my $f, '>', '\(directory.path)/received'); print $f $t; close $f }
            mark('\(directory.path)/worker'); sleep 1000 while 1;
        }
        """
    }

    @Test func `a worker of another user decides nothing for the unit, and is refused with one line`() async throws {
        let fleet = try fleet([perl("web", hostileWorker + "sleep 1000 while 1")])
        defer { clear() }
        // The supervisor may refuse all messages in the first turn. The first report follows at the end of that turn.
        #expect(await fleet.waits { has("worker") && fleet.problems.count > 1 && fleet.report("web") != nil })
        let main = try #require(Int32(fleet.text("web.process").prefix { $0 != " " }))
        let report = try #require(fleet.report("web"), "\(fleet.problems)")
        #expect(report.state == .running && !report.isSaved && report.isWarnable == false, "\(report)")
        #expect(RunningFleet.isRunning(main))
        #expect(
            (try? GroupText.read("\(directory.path)/received").get()).map { String(decoding: $0, as: UTF8.self) }
                == "1 refused because=unknown-process\n")
        let line = "user 65534: notifyAccess: main allows the main process, its user and root"
        #expect(fleet.problems.allSatisfy { $0.hasPrefix("web: ") && $0.hasSuffix(line) }, "\(fleet.problems)")
        #expect(await fleet.stop())
    }

    @Test func `notifyAccess all lets a worker send for the unit, and none lets no process send`() async throws {
        // The worker stays here, too, so that its unit stays known.
        let ready = "if (!fork) { become(65534); say_it('READY=1'); sleep 1000 while 1 } sleep 1000 while 1"
        let all = perl("all", ready) { ($0.notify, $0.notifyAccess) = (true, .all) }
        let mute = perl("mute", "say_it('STOPPING=1'); mark('\(directory.path)/said'); sleep 1000 while 1") { $0.notifyAccess = .none }
        let fleet = try fleet([all, mute])
        defer { clear() }
        #expect(await fleet.waits { fleet.state("all") == .running && has("said") && !fleet.problems.isEmpty })
        #expect(fleet.state("mute") == .running)
        #expect(
            fleet.problems.allSatisfy {
                $0.hasPrefix("mute: refused a notification of process") && $0.hasSuffix("notifyAccess: none allows no process")
            })
        #expect(await fleet.stop())
    }

    @Test func `C43 a newer link represents the unit once the older one has closed, with the newer link's earlier messages`() async throws {
        let path = directory.path
        let script = """
            my $one = link_up(); syswrite($one, "2 saved is=no\\n3 locks held=yes\\n"); await_file('\(path)/second');
            my $two = link_up(); syswrite($two, "2 saved is=yes\\n3 tasks n=3\\n"); mark('\(path)/opened'); await_file('\(path)/third');
            syswrite($one, "4 tasks n=7\\n"); await_file('\(path)/close'); close($one); sleep 1000 while 1
            """
        let fleet = try fleet([perl("web", script)])
        defer { clear() }
        #expect(await fleet.waits { fleet.report("web")?.holdsLocks == true })
        touch("second")
        #expect(await fleet.waits { has("opened") })
        touch("third")
        // The older link's next message comes after all messages of the newer link.
        #expect(await fleet.waits { fleet.report("web")?.tokens == 7 })
        #expect(fleet.report("web")?.isSaved == false)
        touch("close")
        #expect(await fleet.waits { fleet.report("web")?.isSaved == true })
        #expect(fleet.report("web")?.tokens == 3 && fleet.report("web")?.holdsLocks == false)
        #expect(await fleet.stop())
    }

    // MARK: Sockets

    private func mode(_ path: String) -> String {
        var status = stat()
        return lstat(path, &status) == 0 ? String(status.st_mode & 0o777, radix: 8) + " \(status.st_uid)" : "none"
    }

    @Test func `each unit has separate sockets, for the unit's user alone once that user is known`() async throws {
        let path = directory.path
        let tell =
            "open(my $f, '>', '\(path)/names'); print $f join(' ', map { $ENV{$_} } qw(NOTIFY_SOCKET PLIMSOLL_SUPERVISOR MEMORY_PRESSURE_WATCH)); close $f;"
        let learned = perl("learned", tell + "await_file('\(path)/go'); become(65534); say_it('READY=1'); sleep 1000") { $0.notify = true }
        let owned = perl("owned", "sleep 1000") { $0.socketOwner = 65533 }
        let fleet = try fleet([learned, owned])
        defer { clear() }
        let base = fleet.directory.path
        #expect(await fleet.waits { fleet.state("owned") == .running && has("names") })
        #expect(await fleet.waits { (try? GroupText.read("\(path)/names").get())?.isEmpty == false })
        let names = String(decoding: try GroupText.read("\(path)/names").get(), as: UTF8.self)
        #expect(names == "\(base)/learned.notify \(base)/learned.link \(base)/learned.pressure")
        for name in ["notify", "link", "pressure"] { #expect(mode("\(base)/owned.\(name)") == "600 65533", "\(name)") }
        #expect(mode("\(base)/learned.notify") == "666 0" && mode("\(base)/learned.link") == "666 0")
        touch("go")
        #expect(await fleet.waits { fleet.state("learned") == .running })
        #expect(mode("\(base)/learned.notify") == "600 65534" && mode("\(base)/learned.link") == "600 65534")
        #expect(await fleet.stop() && fleet.problems.isEmpty, "\(fleet.problems)")
    }

    @Test func `a unit of a former supervisor reaches the next supervisor at the same socket`() async throws {
        let script = "await_file('\(directory.path)/go'); until (say_it('STOPPING=1')) { select(undef, undef, undef, 0.01) } sleep 1000 while 1"
        let unit = perl("web", "$SIG{TERM} = 'IGNORE'; " + script)
        let first = try fleet([unit]) { $0.leavesUnits = true }
        defer { clear() }
        #expect(await first.waits { first.state("web") == .running })
        first.supervisor.stop()
        #expect(await first.waits { first.isOver })
        let next = try RunningFleet([unit], after: first)
        #expect(await next.waits { next.state("web") == .running })
        touch("go")
        #expect(await next.waits { next.state("web") == .ending || next.state("web") == .stopped })
        #expect(await next.stop())
    }

    @Test func `messages from strangers get no healthy unit killed, and do not cause a scan of all units each`() async throws {
        // The unit reports to be alive for longer than the watchdog's time, as a busy machine needs, and then sets a
        // long time.
        let alive = """
            become(65534); say_it("WATCHDOG_USEC=15000000\\nREADY=1"); mark('\(directory.path)/up');
            for (1..160) { select(undef, undef, undef, 0.1); for (1..50) { last if say_it('WATCHDOG=1'); select(undef, undef, undef, 0.005) } }
            until (say_it('WATCHDOG_USEC=600000000')) { select(undef, undef, undef, 0.005) }
            mark('\(directory.path)/well'); sleep 1000 while 1
            """
        let fleet = try fleet([perl("web", alive) { $0.notify = true }])
        defer { clear() }
        #expect(await fleet.waits { fleet.state("web") == .running })
        let path = fleet.directory.path
        let flood =
            "become(65533); for my $n (0..400000) { for my $p ('notify', 'web.notify') { send($s, 'WATCHDOG=1', 0, sockaddr_un(\"\(path)/$p\")) } }"
        let senders = try (0..<2).map { _ in
            var launch = Child.Launch(["/usr/bin/perl", "-MSocket", "-e", Self.words + "socket($s, AF_UNIX, SOCK_DGRAM, 0); " + flood])
            launch.environment = ["PATH": "/usr/bin:/bin"]
            return try Child.start(launch)
        }
        defer {
            for sender in senders {
                sender.signal(SIGKILL)
                sender.waitForEnd()
            }
        }
        let begin = ContinuousClock.now, evaluations = fleet.supervisor.evaluations.load(ordering: .relaxed)
        #expect(await fleet.waits { has("well") })
        #expect(fleet.state("web") == .running && fleet.problems.isEmpty, "\(fleet.problems)")
        let count = fleet.supervisor.evaluations.load(ordering: .relaxed) - evaluations
        // At most one evaluation in 20 ms, however long the flood took, and a few for text without meaning.
        let ticks = Int((ContinuousClock.now - begin) / .milliseconds(20))
        #expect(count <= ticks + 20, "\(count) evaluations in \(ticks) ticks")
        #expect(await fleet.stop())
    }

    @Test func `A7 messages above the rate are read later, and the supervisor sleeps meanwhile`() async throws {
        let words = 1500
        let script = """
            await_file('\(directory.path)/go'); for (1..\(words)) { say_it('STATUS=1') or die $! } mark('\(directory.path)/said'); sleep 1000 while 1
            """
        let fleet = try fleet([perl("web", script)])
        defer { clear() }
        #expect(await fleet.waits { fleet.state("web") == .running })
        let begin = ContinuousClock.now, before = fleet.supervisor.turns.load(ordering: .relaxed)
        touch("go")
        #expect(await fleet.waits { has("said") })
        let passed = ContinuousClock.now - begin, turns = fleet.supervisor.turns.load(ordering: .relaxed) - before
        // 512 messages at once and 1000 a second. Messages in the socket's queue are sent, but not read.
        let queue = (try? GroupText.read("/proc/sys/net/unix/max_dgram_qlen").get()).flatMap { Int(String(decoding: $0.dropLast(), as: UTF8.self)) }
        let held = try #require(queue) + 2
        #expect(passed >= .milliseconds(words - 512 - held), "\(passed)")
        // One turn for each message at most, two for each pause, one for each evaluation.
        let most = words + 2 * Int(passed / .milliseconds(50)) + Int(passed / .milliseconds(20)) + 50
        #expect(turns <= most, "\(turns) turns in \(passed)")
        #expect(fleet.state("web") == .running && fleet.problems.isEmpty, "\(fleet.problems)")
        #expect(await fleet.stop())
    }

    @Test func `A7 a message queued at a paused socket is read before the unit is killed for silence`() async throws {
        let path = directory.path
        let web = """
            await_file('\(path)/go'); say_it('WATCHDOG_USEC=2000000'); mark('\(path)/armed'); await_file('\(path)/rests');
            say_it('WATCHDOG_USEC=3600000000'); mark('\(path)/said'); select(undef, undef, undef, 2.1); open(my $f, '>', '\(path)/late'); syswrite($f, 'x'); sleep 1000 while 1
            """
        let noisy = """
            await_file('\(path)/armed'); select(undef, undef, undef, 0.1);
            if (!fork) { become(65534); say_it('STOPPING=1'); mark('\(path)/refused'); sleep 1000 while 1 } sleep 1000 while 1
            """
        let pipe = "\(path)/late"
        #expect(mkfifo(pipe, 0o666) == 0 && chmod(path, 0o777) == 0)
        let late = open(pipe, O_RDWR | O_NONBLOCK | O_CLOEXEC)
        defer { close(late) }
        let units = [perl("web", web), perl("noisy", noisy)], fleet = try fleet(units)
        defer { clear() }
        let turns = Mutex<Int?>(nil)
        fleet.supervisor.onProblem { [supervisor = fleet.supervisor, base = fleet.directory.path] problem in
            guard problem.hasPrefix("noisy: "), turns.withLock({ $0 }) == nil else { return }
            // Runs on the supervisor's thread: as if the socket were paused, while the thread has much else to do.
            if let socket = Self.socket(at: "\(base)/web.notify") { supervisor.queue.unwatch(socket) }
            close(open("\(path)/rests", O_CREAT | O_WRONLY | O_CLOEXEC, 0o644))
            #expect(plimsoll_ready(late, POLLIN, 60_000) & POLLIN != 0)
            turns.withLock { $0 = supervisor.turns.load(ordering: .relaxed) }
        }
        // Each turn takes this lock after reading messages, and before checking the watchdog's time. So the problem
        // comes before that check, even if the units take longer than the watchdog's time to send both messages.
        fleet.supervisor.requests.withLock { _ in
            touch("go")
            blockUntil("both messages are sent") { has("refused") }
        }
        #expect(await fleet.waits { turns.withLock { $0 } != nil })
        // The next turn checks the watchdog's time, and the turn after that shows that the check is over.
        let held = try #require(turns.withLock { $0 })
        #expect(await fleet.waits { fleet.supervisor.turns.load(ordering: .relaxed) > held })
        fleet.supervisor.reload(units)
        #expect(await fleet.waits { fleet.supervisor.turns.load(ordering: .relaxed) > held + 1 })
        #expect(has("said") && fleet.state("web") == .running)
        #expect(fleet.problems.allSatisfy { $0.hasPrefix("noisy: ") }, "\(fleet.problems)")
        #expect(await fleet.stop())
    }

    /// Returns the descriptor of this process that listens at `path`.
    private static func socket(at path: String) -> Int32? {
        RunningFleet.names(in: "/proc/self/fd").lazy.compactMap { Int32($0) }.first { file in
            var address = sockaddr_un(), length = socklen_t(MemoryLayout<sockaddr_un>.size)
            let result = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(file, $0, &length) }
            }
            guard result == 0, address.sun_family == AF_UNIX else { return false }
            return withUnsafeBytes(of: &address.sun_path) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) } == path
        }
    }

    @Test func `K38 a process that sends often is looked up once, and a new process with the same pid again`() throws {
        let cache = SenderCache(), child = try Workbench.shell("exec sleep 1000", in: nil).child
        var finds = 0
        func send(_ user: UInt32 = 0, isKnown: Bool = false, at now: Duration, run: UInt64? = 7) -> UInt64? {
            cache.sender(child.pid, as: user, isKnown: isKnown, at: now) {
                finds += 1
                return .init(run: run, users: [0])
            }.run
        }
        for _ in 0..<1000 { #expect(send(at: .seconds(1)) == 7) }
        #expect(finds == 1)
        // The sender is looked up again for another user, and after a while.
        _ = send(5, at: .seconds(1))
        #expect(finds == 2 && send(at: .milliseconds(2500)) == 7 && finds == 3)
        child.signal(SIGKILL)
        child.waitForEnd()
        // The pid may belong to another process by now.
        #expect(send(at: .milliseconds(2500), run: nil) == nil && finds == 4)
        // A stranger may have become a process of a unit.
        #expect(send(isKnown: true, at: .milliseconds(2500)) == 7 && finds == 5)
    }

    /// Found by `make soak`: the supervisor kept a descriptor for each of the last 128 processes that had ended.
    @Test func `processes that have sent nothing for a while cost no descriptors`() throws {
        let cache = SenderCache()
        let children = try (0..<3).map { _ in try Workbench.shell("exec sleep 1000", in: nil).child }
        for (second, child) in children.enumerated() {
            _ = cache.sender(child.pid, as: 0, isKnown: true, at: .seconds(2 * second)) { .init(run: 7, users: [0]) }
            #expect(cache.count == 1)
        }
        for child in children {
            child.signal(SIGKILL)
            child.waitForEnd()
        }
    }
}
