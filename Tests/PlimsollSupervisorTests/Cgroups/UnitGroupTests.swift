import CSystemCallFaults
import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized) struct UnitGroupTests {
    @Test(.needs(Workbench.hasCharge, "no memory controller here", or: .virtualMachine))
    func `a unit is in the unit's groups from the start, and memory use is charged there`() throws {
        let group = try Workbench.root().make("web"), file = "\(Workbench.directory)/\(Workbench.prefix())"
        // Page cache is charged to the group that brought the pages in.
        let (child, output) = try Workbench.shell("head -c 8000000 /dev/zero > \(file); echo ready; sleep 1000", in: group)
        defer {
            Workbench.clear(group, child)
            unlink(file)
        }
        #expect(output.line() == "ready")
        #expect(group.processes.contains(child.pid))
        for directory in group.directories { #expect(directory.processes().contains(child.pid), "\(directory.path)") }
        #expect(try #require(group.charge) > .mebibytes(4))
        #expect(group.reclaimable <= group.charge!)
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `C4 K36 a freeze counts by the kernel's report, not by the write`() throws {
        let group = try Workbench.root().make("web")
        let (child, output) = try Workbench.shell("echo ready; while :; do :; done", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready" && !group.isFrozen)
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit) && group.isFrozen)
        try group.thaw()
        #expect(!group.isFrozen || !group.waitUntilFrozen(.zero))
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `K33 a frozen unit gets SIGTERM after the thaw, and SIGKILL at once`() throws {
        let group = try Workbench.root().make("web")
        let (polite, output) = try Workbench.shell("trap 'echo asked; exit 7' TERM; echo ready; while :; do :; done", in: group)
        let (deaf, other) = try Workbench.shell("trap '' TERM; echo ready; while :; do :; done", in: group)
        defer { Workbench.clear(group, polite, deaf) }
        #expect(output.line() == "ready" && other.line() == "ready")
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        try group.send(SIGTERM)
        // The end of `deaf` takes long enough: if `polite` had run meanwhile, an answer would be there.
        deaf.signal(SIGKILL)
        #expect(deaf.waitForEnd(within: Workbench.limit) == .killed(signal: SIGKILL, dumpedCore: false))
        #expect(!output.isReady && polite.ending == nil && group.isFrozen)
        try group.thaw()
        #expect(output.line() == "asked")
        #expect(polite.waitForEnd(within: Workbench.limit) == .exited(7))
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `K33 a frozen unit is killed without a thaw, and the unit's groups are removed`() throws {
        let group = try Workbench.root().make("web")
        let (child, output) = try Workbench.shell("sleep 1000 & sleep 1000 & echo ready; wait", in: group)
        #expect(output.line() == "ready" && group.processes.count >= 3)
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        try group.killAll()
        #expect(group.waitUntilEmpty(Workbench.limit))
        #expect(child.waitForEnd(within: Workbench.limit) == .killed(signal: SIGKILL, dumpedCore: false))
        try group.remove(within: Workbench.limit)
        for directory in group.directories { #expect(access(directory.path, F_OK) != 0) }
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `K36 processes that fork without end can be frozen, and end when killed`() throws {
        let group = try Workbench.root().make("storm")
        let (child, output) = try Workbench.shell(Workbench.storm, in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        let still = group.processes
        #expect(!still.isEmpty && group.processes == still)
        try group.thaw()
        try group.killAll()
        #expect(group.waitUntilEmpty(Workbench.limit) && group.processes.isEmpty)
    }

    @Test(.needs(Workbench.hasVersion1Memory, "no version 1 memory controller here"))
    func `C14 signals stop, continue and kill a storm without a freezer`() throws {
        let group = try Workbench.root(version1: [.memory]).make("storm")
        let (child, output) = try Workbench.shell(Workbench.storm, in: group)
        defer { Workbench.clear(group, child) }
        #expect(group.suspension == .stop && output.line() == "ready")
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        try group.thaw()
        #expect(!group.isFrozen)
        try group.killAll()
        #expect(group.waitUntilEmpty(Workbench.limit))
    }

    @Test(.needs(Workbench.hasVersion1Freezer, "no version 1 freezer here"))
    func `C14 the version 1 freezer's killed processes end, and the group is removed`() throws {
        let group = try Workbench.root(version1: [.freezer, .memory]).make("old")
        let (child, output) = try Workbench.shell(Workbench.storm, in: group)
        defer { Workbench.clear(group, child) }
        #expect(group.suspension == .freeze && output.line() == "ready")
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        try group.thaw()
        #expect(!group.isFrozen)
        try group.killAll()
        #expect(group.waitUntilEmpty(Workbench.limit))
        try group.remove(within: Workbench.limit)
    }

    @Test func `C14 a process without any group is stopped, continued and killed with all children`() throws {
        let group = try UnitGroup("loose", [], own: OwnGroups())
        let (child, output) = try Workbench.shell("(sleep 1000 &) ; sleep 1000 & echo ready; wait", in: group)
        #expect(output.line() == "ready" && group.processes.count >= 3)
        #expect(group.charge.map { $0 > .zero } == true)
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        try group.thaw()
        #expect(!group.isFrozen)
        try group.killAll()
        #expect(child.waitForEnd(within: Workbench.limit) == .killed(signal: SIGKILL, dumpedCore: false))
        #expect(group.waitUntilEmpty(Workbench.limit))
    }

    @Test func `K38 without a group, a process that got the pid of an ended one is left alone`() throws {
        let group = try UnitGroup("loose", [], own: OwnGroups())
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        let (stranger, words) = try Workbench.shell("echo ready; exec sleep 1000", in: nil)
        defer { Workbench.clear(group, child) }
        defer {
            stranger.signal(SIGKILL)
            stranger.waitForEnd()
        }
        #expect(output.line() == "ready" && words.line() == "ready")
        let started = try #require(stranger.started)
        // As if the unit had ended, and the kernel had given the pid to a stranger.
        let ended = ProcessTable.Leader(pid: stranger.pid, started: started - 1)
        group.leaders.withLock { leaders in _ = leaders.insert(ended) }
        #expect(group.processes == [child.pid])
        try group.killAll()
        #expect(child.waitForEnd() == .killed(signal: SIGKILL, dumpedCore: false))
        #expect(group.isEmpty && stranger.ending == nil)
        // Nothing is left of the former processes.
        let next = try Child.start(.init(["/bin/sleep", "1000"]), in: group)
        let leaders = group.leaders.withLock { leaders in leaders.map(\.pid) }
        #expect(leaders == [next.pid])
        next.signal(SIGKILL)
        next.waitForEnd()
    }

    @Test func `K38 a signal reaches all processes, with a bounded number of descriptors at a time`() throws {
        let children = try (0..<5).map { _ in try Child.start(.init(["/bin/sleep", "1000"])) }
        let pids = Set(children.map(\.pid)), before = Self.descriptors(of: pids)
        var most = 0
        let reached = ProcessTable.signal(SIGKILL, atOnce: 2) {
            most = max(most, Self.descriptors(of: pids) - before)
            return pids
        }
        #expect(reached == 5 && most == 2)
        for child in children { #expect(child.waitForEnd() == .killed(signal: SIGKILL, dumpedCore: false)) }
    }

    /// Returns the number of this process's descriptors that stand for one of the processes.
    private static func descriptors(of pids: Set<Int32>) -> Int {
        RunningFleet.names(in: "/proc/self/fdinfo").count { file in
            guard case .success(let text) = GroupText.read("/proc/self/fdinfo/\(file)") else { return false }
            return String(decoding: text, as: UTF8.self).split(separator: "\n").contains { line in
                line.hasPrefix("Pid:") && pids.contains(Int32(line.dropFirst(4).trimmingPrefix(while: \.isWhitespace)) ?? 0)
            }
        }
    }

    @Test(
        .needs(
            Workbench.found.parents.count > 1 && access("/usr/bin/python3", X_OK) == 0,
            "no groups in two hierarchies, or no python that counts signals, here"))
    func `a signal reaches each process once, also where several hierarchies list the process`() throws {
        // The kernel queues signals of these numbers, and delivers the lower number first.
        let script = """
            import signal
            signal.pthread_sigmask(signal.SIG_BLOCK, [40, 41])
            print('ready', flush=True)
            while True: print(int(signal.sigwait([40, 41])), flush=True)
            """
        let group = try Workbench.root().make("web")
        let (child, output) = try Workbench.shell("exec /usr/bin/python3 -c \"\(script)\"", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        try group.send(40)
        child.signal(41)
        #expect(output.line() == "40" && output.line() == "41")
    }

    @Test(.needs(Workbench.found.parents[.unified] != nil, "no version 2 groups here"))
    func `a group whose events can't be read does not count as empty, unless the group was removed`() throws {
        let group = try Workbench.root().make("web"), pipe = Output()
        defer { Workbench.clear(group) }
        let events = dup(group.eventsFile)
        defer { close(events) }
        try #require(events >= 0 && group.isEmpty)
        // A pipe can't be read at an offset (ESPIPE), and stands for a file whose read fails.
        #expect(dup2(pipe.read, group.eventsFile) >= 0)
        #expect(!group.isEmpty)
        #expect(dup2(events, group.eventsFile) >= 0)
        #expect(group.isEmpty)
        try group.remove(within: Workbench.limit)
        #expect(group.isEmpty)
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `K38 a group that was removed and made again is left alone`() throws {
        let group = try Workbench.root().make("web")
        let path = try #require(group.unified?.path)
        #expect(rmdir(path) == 0 && mkdir(path, 0o755) == 0)
        for act: (UnitGroup) throws -> Void in [{ try $0.freeze() }, { try $0.thaw() }, { try $0.killAll() }, { try $0.enter(1) }] {
            #expect { try act(group) } throws: { ($0 as? GroupError)?.reason == .replaced }
        }
        rmdir(path)
        try? group.remove(within: Workbench.limit)
    }

    @Test func `T32 the supervisor's own groups, their ancestors and the roots are never a unit's`() throws {
        let root = Workbench.root()
        var refused = 0
        for case .directory(var path, let top) in root.own.places.values {
            while true {
                // Another path to the same directory counts, too.
                for path in [path, "/proc/self/root" + path] {
                    #expect { _ = try root.adopt("web", at: path) } throws: { ($0 as? GroupError)?.reason == .supervisors }
                    refused += 1
                }
                guard path != top, let slash = path.lastIndex(of: "/") else { break }
                path = String(path[..<slash])
            }
        }
        #expect(refused > 0 || root.own.places.values.allSatisfy { $0.path == nil })
        let group = try root.make("web")
        defer { Workbench.clear(group) }
        #expect { try group.enter(getpid()) } throws: { ($0 as? GroupError)?.reason == .supervisors }
        #expect { _ = try root.adopt("web", at: "/tmp") } throws: { ($0 as? GroupError)?.reason == .noGroup }
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `a running process enters a group with all descendants, and an adopted group is never removed`() throws {
        let (child, output) = try Workbench.shell("sleep 1000 & sleep 1000 & echo ready; wait", in: nil)
        #expect(output.line() == "ready")
        let root = Workbench.root()
        let group = try root.make("found")
        defer { Workbench.clear(group, child) }
        try group.enterTree(child.pid)
        #expect(group.processes.count == 3)
        let adopted = try root.adopt("other", at: #require(group.unified?.path))
        #expect(adopted.processes == group.processes)
        try adopted.killAll()
        #expect(adopted.waitUntilEmpty(Workbench.limit))
        try adopted.remove()
        #expect(access(adopted.path, F_OK) == 0)
    }

    @Test(.needs(Workbench.hasVersion1Memory, "no version 1 memory controller here"))
    func `C36 C37 limits, weights and throttle are set, or reported as not set`() throws {
        let group = try Workbench.root().make("web")
        defer { Workbench.clear(group) }
        let skipped = try group.setLimits(request: .mebibytes(16), limit: .mebibytes(64), high: .mebibytes(60))
        #expect(skipped.count == 2 && group.memory?.number("memory.limit_in_bytes") == 64 << 20)
        try group.setLimits(request: nil, limit: nil)
        #expect(try #require(group.memory?.number("memory.limit_in_bytes")) > 1 << 60)
        let unweighted = try group.setWeights(for: .background)
        #expect(group.cpu == nil || group.cpu?.number("cpu.shares") == 256)
        #expect(!unweighted.isEmpty || group.disk != nil)
        if try group.throttle(true) == nil { #expect(group.cpu?.number("cpu.cfs_quota_us") == 10000) }
        try group.throttle(false)
    }

    @Test(.needs(Workbench.hasVersion1Memory && Workbench.hasFreezer, "no version 1 memory controller with a freezer here"))
    func `T31 a frozen unit gives page cache back, and a running unit is left alone`() throws {
        let group = try Workbench.root().make("web")
        let file = "\(Workbench.directory)/\(Workbench.prefix())"
        defer { unlink(file) }
        let (child, output) = try Workbench.shell("head -c 16000000 /dev/zero > \(file); sync \(file); echo ready; sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        #expect { try group.reclaim(.mebibytes(8)) } throws: { ($0 as? GroupError)?.reason == .runs }
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        let reclaimable = group.reclaimable, charge = try #require(group.charge)
        try group.reclaim(.mebibytes(8))
        // The amount holds only as far as the files of that directory are charged at all.
        if reclaimable > .mebibytes(12) { #expect(try #require(group.charge) < charge - .mebibytes(7)) }
        #expect(try #require(group.memory?.number("memory.limit_in_bytes")) > 1 << 60)
    }

    @Test(
        .needs(
            Workbench.hasVersion1Memory && Workbench.hasFreezer && faults_work(),
            "no version 1 memory controller with a freezer here, or calls that can't be made to fail"))
    func `T31 T32 a limit lowered for a moment is put back, with any failing call and any ending process`() throws {
        let group = try Workbench.root().make("web")
        let file = "\(Workbench.directory)/\(Workbench.prefix())"
        defer { unlink(file) }
        let (child, output) = try Workbench.shell("head -c 32000000 /dev/zero > \(file); sync \(file); echo ready; sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        try group.setLimits(request: nil, limit: .mebibytes(64))
        // The amount holds only as far as the files of that directory are charged at all.
        let isCached = group.reclaimable > .mebibytes(24)
        var (nth, wasReached, wereLowered) = (0, true, 0)
        while wasReached, nth < 60 {
            nth += 1
            for isSticky in [false, true] {
                var guardian: Guard? = try Guard(patience: Workbench.limit)
                faults_begin(nth, EIO, isSticky)
                let pushed = Result { try group.reclaim(.kibibytes(256), guardian: guardian) }
                wasReached = faults_end()
                let limit = group.memory?.number("memory.limit_in_bytes")
                if limit != 64 << 20 { wereLowered += 1 }
                // The caller repairs a single failed call. Where no call works any more, the guard puts the limit back.
                if !isSticky { #expect(limit == 64 << 20, "\(nth): \(pushed)") }
                guardian = nil
                #expect(group.memory?.number("memory.limit_in_bytes") == 64 << 20, "\(nth), sticky: \(isSticky): \(pushed)")
            }
        }
        #expect(nth > 4 && nth < 60 && (wereLowered > 0 || !isCached), "\(nth), \(wereLowered)")
    }

    @Test func `T33 a group whose processes were killed takes new processes, also when another supervisor finds the group`() throws {
        let root = Workbench.root()
        for _ in 0..<3 {
            let group = try root.make("web")
            let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
            #expect(output.line() == "ready")
            try group.killAll()
            #expect(child.waitForEnd() == .killed(signal: SIGKILL, dumpedCore: false) && group.waitUntilEmpty(Workbench.limit))
            let (next, nextOutput) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
            #expect(nextOutput.line() == "ready")
            try group.killAll()
            next.waitForEnd()
        }
        Workbench.clear(try root.make("web"))
    }

    @Test(.needs(Workbench.found.capabilities["throttle"]!.isLive, "no processor quota here"))
    func `T32 C36 the guard lifts a unit's throttle when the supervisor ends`() throws {
        let group = try Workbench.root().make("web")
        defer { Workbench.clear(group) }
        let cpu = try #require(group.cpu), file = cpu.has("cpu.max") ? "cpu.max" : "cpu.cfs_quota_us"
        func quota() throws -> String { String(decoding: try GroupText.read(file, in: cpu.descriptor).get(), as: UTF8.self) }
        let free = try quota(), throttle = group.throttle()
        var guardian: Guard? = try Guard(patience: Workbench.limit)
        try guardian!.watch(throttle.lift, .throttle, of: group)
        try group.apply(throttle)
        #expect(try quota().hasPrefix("10000") && free != quota())
        guardian = nil
        #expect(try quota() == free)
        // A limit that was already lifted keeps the value that the owner sets from then on.
        guardian = try Guard(patience: Workbench.limit)
        try guardian!.watch(throttle.lift, .throttle, of: group)
        guardian!.forget(.throttle, of: group)
        try group.apply(throttle)
        guardian = nil
        #expect(try quota() != free)
        try group.throttle(false)
        #expect(try quota() == free)
    }

    @Test(.needs(Workbench.found.capabilities["throttle"]!.isLive, "no processor quota here"))
    func `C36 the next supervisor lifts the noted limits, and leaves limits set since`() throws {
        let group = try Workbench.root().make("web"), directory = Fixture.Directory(), note = ProcessNote(directory.path, "web")
        defer { Workbench.clear(group) }
        let cpu = try #require(group.cpu), isNew = cpu.has("cpu.max"), file = isNew ? "cpu.max" : "cpu.cfs_quota_us"
        func quota() throws -> String { String(decoding: try GroupText.read(file, in: cpu.descriptor).get(), as: UTF8.self) }
        let own = isNew ? "50000 100000" : "50000"
        try cpu.write(own, to: file, for: .throttle)
        let throttle = group.throttle(keepsOwn: true)
        #expect(note.write(nil, nil, throttle.lift) == nil)
        try group.apply(throttle)
        #expect(try quota().hasPrefix("10000"))
        for limit in note.limits { limit.lift() }
        #expect(try quota() == own + "\n" && note.limits.count == throttle.lift.count && note.groups.isEmpty && note.read() == nil)
        try cpu.write(isNew ? "70000 100000" : "70000", to: file, for: .throttle)
        for limit in note.limits { limit.lift() }
        #expect(try quota().hasPrefix("70000"))
        note.remove()
    }

    @Test func `T32 a process that started the supervisor or another unit is put into no group`() throws {
        let group = try Workbench.root().make("web"), (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: nil)
        defer { Workbench.clear(group, child) }
        defer { child.signal(SIGKILL) }
        #expect(output.line() == "ready")
        let before = try GroupText.read("/proc/self/cgroup").get()
        #expect { try group.enterTree(getppid()) } throws: { "\($0)".contains("the supervisor is process \(getppid()) or its descendant") }
        #expect { try group.enterTree(child.pid, sparing: [child.pid]) } throws: {
            "\($0)".contains("process \(child.pid), which is not of the unit")
        }
        #expect(try GroupText.read("/proc/self/cgroup").get() == before && group.processes.isEmpty)
    }

    @Test func `C48 a process with more descriptors than the scan's bound counts as holding a lock`() throws {
        let (child, output) = try Workbench.shell("for i in 3 4 5 6 7 8 9; do eval \"exec $i</dev/null\"; done; echo ready; exec sleep 1000", in: nil)
        let path = "\(Workbench.directory)/\(Workbench.prefix())", file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        defer {
            child.signal(SIGKILL)
            child.waitForEnd()
            close(file)
            unlink(path)
        }
        // Descriptors are scanned only while the machine has a file lock.
        #expect(output.line() == "ready" && flock(file, LOCK_EX | LOCK_NB) == 0)
        #expect(LockTable.holders(among: [child.pid]).isEmpty)
        #expect(LockTable.holders(among: [child.pid], most: 5) == [child.pid])
    }

    @Test func `a note is replaced as a whole, and a failed write is reported`() throws {
        let directory = Fixture.Directory(), note = ProcessNote(directory.path, "web")
        #expect(note.write(nil, nil) == nil && RunningFleet.names(in: directory.path) == ["web.process"])
        // Leaves a former note that was cut off half way.
        let cut = open("\(directory.path)/web.process.new", O_WRONLY | O_CREAT, 0o600)
        write(cut, "1", 1)
        close(cut)
        let child = try Child.start(.init(["/bin/true"]))
        #expect(note.write(child, nil) == nil && RunningFleet.names(in: directory.path) == ["web.process"] && note.read()?.pid == child.pid)
        child.waitForEnd()
        note.remove()
        let problem = ProcessNote("/nonexistent", "web").write(nil, nil)
        #expect(
            problem
                == "cannot write the note /nonexistent/web.process, so the next supervisor may not find the process: No such file or directory")
    }
}
