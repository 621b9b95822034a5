import Glibc
import Plimsoll
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized) struct ChildTests {
    @Test(arguments: [("exit 0", Child.Ending.exited(0)), ("exit 41", .exited(41)), ("kill -9 $$", .killed(signal: 9, dumpedCore: false))])
    func `a child's ending is known from the descriptor`(script: String, ending: Child.Ending) throws {
        let child = try Child.start(.init(["/bin/sh", "-c", script]))
        #expect(child.waitForEnd() == ending && child.ending == ending)
        #expect(!child.signal(SIGKILL), "the number may belong to another process by now")
    }

    @Test func `an object that goes after the end of its process forgets no later child with the same pid`() throws {
        var child: Child? = try Child.start(.init(["/bin/true"]))
        let pid = try #require(child).pid
        #expect(Child.known.withLock { $0.contains(pid) } && child?.waitForEnd() == .exited(0))
        #expect(!Child.known.withLock { $0.contains(pid) })
        // Another child has been started meanwhile, and has this pid.
        Child.known.withLock { _ = $0.insert(pid) }
        child = nil
        #expect(Child.known.withLock { $0.remove(pid) } == pid)
    }

    @Test func `a child gets the given variables, directory and output, no descriptors and a new session`() throws {
        let output = Output()
        let script = #"""
            echo "$A $(pwd)"
            ls /proc/$$/fd; echo end; cut -d' ' -f6 /proc/$$/stat; echo $$; cat /proc/$$/oom_score_adj
            """#
        var launch = Child.Launch(["/bin/sh", "-c", script])
        launch.environment = ["A": "b c", "PATH": "/usr/bin:/bin"]
        launch.directory = "/usr"
        launch.output = output.write
        launch.oomScoreAdjust = 100
        let held = open("/dev/null", O_RDONLY)
        defer { close(held) }
        let child = try Child.start(launch)
        output.closeWrite()
        #expect(output.line() == "b c /usr")
        // The script sends the list through no pipe of the shell, as that pipe would be in the list. Descriptors from
        // 10 on are the shell's own.
        var files: [Int] = []
        while let line = output.line(), line != "end" { files += [Int(line)].compactMap { $0 } }
        #expect(files.filter { $0 < 10 }.sorted() == [0, 1, 2])
        let session = output.line()
        #expect(session == "\(child.pid)" && output.line() == "\(child.pid)" && output.line() == "100")
        #expect(child.waitForEnd() == .exited(0))
    }

    /// Uses `grep` rather than a shell, which sets signals of its own.
    @Test func `a child has no signals blocked or ignored, with any mask in the parent`() throws {
        let output = Output(), path = access("/bin/grep", X_OK) == 0 ? "/bin/grep" : "/usr/bin/grep"
        var launch = Child.Launch([path, "-E", "^Sig(Blk|Ign)", "/proc/self/status"])
        launch.output = output.write
        let child = try Child.start(launch)
        output.closeWrite()
        // Signals 32 and 33 belong to the C library, which lets no program change them: they keep the state from the
        // start of the test run.
        let masks = [output.line(), output.line()].map { $0?.split(separator: "\t").last.flatMap { UInt64($0, radix: 16) }.map { $0 & ~(3 << 31) } }
        #expect(masks == [0, 0])
        #expect(child.waitForEnd() == .exited(0))
    }

    @Test func `a failed start names the command and the reason`() throws {
        func message(_ launch: Child.Launch) -> String {
            do {
                try Child.start(launch).waitForEnd()
                return "started"
            } catch { return "\(error)" }
        }
        #expect(message(.init(["/nowhere/at all"])) == "cannot start /nowhere/at all: No such file or directory")
        #expect(message(.init(["/etc/passwd"])) == "cannot start /etc/passwd: Permission denied")
        #expect(message(.init([])) == "cannot start nothing: a command needs a path: Invalid argument")
        var launch = Child.Launch(["/bin/true"])
        launch.directory = "/nowhere"
        #expect(message(launch) == "cannot start /bin/true: /nowhere: No such file or directory")
        #expect(message(.init(["/bin/true", "a\0b"])).contains("a zero byte"))
    }

    @Test(.needs(Workbench.found.capabilities["kill"]!.isLive, "no cgroup.kill here", or: .virtualMachine))
    func `T33 a unit starts again after another process has killed the group's processes`() throws {
        let group = try Workbench.root().make("web"), path = try #require(group.unified?.path)
        defer { Workbench.clear(group) }
        for _ in 0..<3 {
            let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
            #expect(output.line() == "ready")
            #expect(GroupText.write("1", to: path + "/cgroup.kill") == nil)
            #expect(child.waitForEnd() == .killed(signal: SIGKILL, dumpedCore: false))
            #expect(group.waitUntilEmpty(Workbench.limit))
        }
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `no process is started in a frozen group`() throws {
        let group = try Workbench.root().make("web")
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        #expect { _ = try Child.start(.init(["/bin/true"]), in: group) } throws: { "\($0)".contains("is frozen: thaw the group first") }
    }

    @Test(.needs(Workbench.hasVersion1Freezer, "no version 1 freezer here"))
    func `K36 a child whose group is frozen before exec does not block the caller, and is reaped after the thaw`() throws {
        let group = try Workbench.root(version1: [.freezer]).make("web")
        try group.freeze()
        // On a busy machine a child has not entered the group within the shortest limit, and the next child gets
        // longer.
        for limit in [Duration.milliseconds(100), .seconds(1), .seconds(10)] where group.processes.isEmpty {
            #expect { _ = try Child.start(.init(["/bin/sleep", "1000"]), in: group, within: limit) } throws: {
                "\($0)".contains("the program was not executed in time")
            }
        }
        let stuck = group.processes
        #expect(stuck.count == 1)
        try group.thaw()
        blockUntil("no process is left") { stuck.allSatisfy { ProcessTable.stat(of: $0) == nil } }
        try group.remove(within: Workbench.limit)
    }

    @Test(.needs(Workbench.hasVersion1Freezer, "no version 1 freezer here"))
    func `a descriptor that hangs as the child becomes the program does not block the caller`() throws {
        let group = try Workbench.root(version1: [.freezer]).make("web")
        try group.freeze()
        // Such a descriptor of a unit may arrive while another unit starts: then the child has a copy. The kernel
        // closes the highest number first, and would close the pipe that reports the program's start only after a
        // minute.
        let lingering = try #require(LingeringSockets(1)), started = Mutex<Result<Child, any Error>?>(nil)
        let file = fcntl(lingering.files[0], F_DUPFD_CLOEXEC, 500)
        #expect(file >= 500)
        lingering.letGo()
        #expect(
            Thread.start("starter") {
                let result = Swift.Result { try Child.start(.init(["/bin/sleep", "1000"]), in: group, within: .seconds(50)) }
                started.withLock { $0 = result }
            })
        blockUntil("the child to be frozen") { group.processes.count == 1 }
        // The close is fast, because the child has the last copy now.
        close(file)
        try group.thaw()
        blockUntil("the start") { started.withLock { $0 != nil } }
        let child = try #require(started.withLock { $0 }).get()
        child.signal(SIGKILL)
        withExtendedLifetime(lingering) {}
        child.waitForEnd()
        try group.remove(within: Workbench.limit)
    }

    @Test func `K38 an adopted process is the intended one, and the process's end is seen`() throws {
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: nil)
        #expect(output.line() == "ready")
        let started = try #require(child.started)
        #expect { _ = try Child.adopt(child.pid, started: started + 1) } throws: {
            "\($0)".contains("the process has ended and another has its number")
        }
        let adopted = try Child.adopt(child.pid, started: started)
        #expect(adopted.isAdopted && adopted.ending == nil && adopted.started == started)
        child.signal(SIGKILL)
        #expect(adopted.waitForEnd() == .gone)
        #expect(child.waitForEnd() == .killed(signal: SIGKILL, dumpedCore: false))
        #expect { _ = try Child.adopt(child.pid, started: started) } throws: { ($0 as? ChildError)?.number == ESRCH }
        #expect { _ = try Child.adopt(getpid()) } throws: { "\($0)".contains("the supervisor itself") }
    }

    @Test(.needs(access("/usr/bin/flock", X_OK) == 0, "no flock to take a lock with"))
    func `C48 the process that holds a lock is found, and no other process`() throws {
        let file = "\(Workbench.directory)/\(Workbench.prefix())"
        defer { unlink(file) }
        let (holder, output) = try Workbench.shell("exec 9>\(file); flock 9; echo ready; sleep 1000 9>&-", in: nil)
        let (other, second) = try Workbench.shell("echo ready; exec sleep 1000", in: nil)
        defer {
            for child in [holder, other] { for pid in ProcessTable.tree(of: [child.pid]) { kill(pid, SIGKILL) } }
            holder.waitForEnd()
            other.waitForEnd()
        }
        #expect(output.line() == "ready" && second.line() == "ready")
        #expect(LockTable.holders(among: [holder.pid, other.pid]) == [holder.pid])
    }

    @Test func `a constant stream of signals does not end a child during the start`() async {
        await #expect(processExitsWith: .success) {
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { _ in }
            precondition(sigaction(SIGALRM, &action, nil) == 0)
            // The signal goes to this very thread, which the pool created with signals blocked. The kernel would
            // deliver a signal for the process to another thread.
            var signals = sigset_t()
            sigemptyset(&signals)
            sigaddset(&signals, SIGALRM)
            pthread_sigmask(SIG_UNBLOCK, &signals, nil)
            let thread = pthread_self(), isOver = Mutex(false)
            let isSending = Plimsoll.Thread.start("signals") {
                blockUntil("the end") {
                    isOver.withLock { isOver in
                        if !isOver { pthread_kill(thread, SIGALRM) }
                        return isOver
                    }
                }
            }
            precondition(isSending)
            defer { isOver.withLock { $0 = true } }
            let guardian = try Guard(patience: Workbench.limit)
            for _ in 0..<200 {
                let child = try Child.start(.init(["/bin/sleep", "1000"]))
                try guardian.watch(child)
                child.signal(SIGKILL)
                #expect(child.waitForEnd() == .killed(signal: SIGKILL, dumpedCore: false))
                guardian.forget(child)
            }
        }
    }
}
