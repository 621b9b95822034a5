import CSystemCallFaults
import Glibc
import Plimsoll
import PlimsollLinux
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// A running supervisor whose calls about processes fail: once, a few times in a row, or each time.
///
/// The tests run one after the other, as a fault is armed for all threads that have joined.
@Suite(.serialized, .needs(faults_work(), "a sanitizer has these calls for itself")) struct SupervisorFaultTests {
    static let numbers = [EAGAIN, ENOMEM, EMFILE, EINTR, EPERM, ENOSYS, ESRCH]

    private func fleet(_ change: (inout ServiceUnit) -> Void = { _ in }) async throws -> RunningFleet {
        let fleet = try RunningFleet(
            [.shell("web", "exec sleep 1000") { unit in (unit.restart, _) = (.always, change(&unit)) }, .shell("other")], isFaulted: true)
        let isUp = await fleet.waits { fleet.process("web") != nil && fleet.process("other") != nil }
        #expect(isUp, "\(fleet.problems) \(fleet.supervisor.reports) \(fleet.records)")
        return fleet
    }

    /// Kills the unit's process. Returns true if another process then runs in its place.
    private func isStartedAgain(_ unit: String, of fleet: RunningFleet) async throws -> Bool {
        let first = try #require(fleet.process(unit))
        kill(first, SIGKILL)
        return await fleet.waits {
            fleet.state(unit) == .running && fleet.process(unit).map { $0 != first && RunningFleet.isRunning($0) } ?? false
        }
    }

    /// Returns guards that this process has started and no thread has waited for.
    private func guards() -> [Int32] {
        ProcessTable.all().filter { $0.parent == getpid() && $0.isOver }.map(\.pid).filter {
            (try? GroupText.read("/proc/\($0)/comm").get()) == Array("plimsoll-guard\n".utf8)
        }
    }

    /// Returns true if the supervisor still manages its units, and leaves no process behind at the end.
    private func endsWell(_ fleet: RunningFleet, _ others: Int32?) async -> Bool {
        faults_disarm()
        let processes = ["web", "other"].compactMap { fleet.process($0) }
        #expect(fleet.process("other") == others, "another unit was started again")
        let isOver = await fleet.stop()
        for process in processes { #expect(!RunningFleet.isRunning(process), "process \(process) is an orphan") }
        return isOver
    }

    @Test(arguments: numbers, [1, 5])
    func `a process start that fails is repeated later, and other units run on`(number: Int32, times: Int) async throws {
        defer { faults_disarm() }
        let fleet = try await fleet(), other = fleet.process("other")
        faults_arm(FAULT_CLONE3, 1, times, number)
        // Makes the fallback for a refused clone3(2) fail.
        faults_arm(FAULT_CLONE, 1, 1, number)
        #expect(try await isStartedAgain("web", of: fleet))
        #expect(faults_count(FAULT_CLONE3) >= 1)
        #expect(await endsWell(fleet, other))
    }

    @Test(arguments: numbers)
    func `K38 a process without a descriptor is not kept, and another process is started`(number: Int32) async throws {
        defer { faults_disarm() }
        let fleet = try await fleet(), other = fleet.process("other")
        faults_arm(FAULT_CLONE3, 1, 4, ENOSYS)
        faults_arm(FAULT_PIDFD_OPEN, 1, 1, number)
        #expect(try await isStartedAgain("web", of: fleet))
        #expect(faults_count(FAULT_PIDFD_OPEN) >= 1)
        #expect(fleet.problems.contains { $0.contains("web: cannot start /bin/sh: cannot fork") }, "\(fleet.problems)")
        #expect(await endsWell(fleet, other))
    }

    @Test(arguments: [EAGAIN, EINTR, EPERM, ECHILD], [1, 3])
    func `an end without a status is noticed all the same, and no child stays a zombie`(number: Int32, times: Int) async throws {
        defer { faults_disarm() }
        let fleet = try await fleet(), other = fleet.process("other"), first = try #require(fleet.process("web"))
        faults_arm(FAULT_WAITID, 1, times, number)
        #expect(try await isStartedAgain("web", of: fleet))
        #expect(faults_count(FAULT_WAITID) >= times || number == ECHILD)
        // The supervisor believes that the process is no child, and leaves the process to its parent.
        if number == ECHILD { waitpid(first, nil, 0) }
        #expect(ProcessTable.stat(of: first).map { $0.parent != getpid() } ?? true)
        #expect(await endsWell(fleet, other))
    }

    @Test(arguments: [EAGAIN, EPERM, ESRCH], [1, 100])
    func `a unit ends even if signals do not reach the unit`(number: Int32, times: Int) async throws {
        defer { faults_disarm() }
        let fleet = try await fleet { $0.restart = .never }, web = try #require(fleet.process("web")), other = fleet.process("other")
        faults_arm(FAULT_PIDFD_SIGNAL, 1, times, number)
        fleet.supervisor.reload([.shell("other")])
        #expect(await fleet.waits { fleet.report("web") == nil && !RunningFleet.isRunning(web) })
        #expect(faults_count(FAULT_PIDFD_SIGNAL) >= 1)
        #expect(await endsWell(fleet, other))
    }

    @Test(.needs(Workbench.hasVersion1Memory, "no version 1 groups here"), arguments: [EAGAIN, EPERM, EMFILE])
    func `a unit that a kill has missed is killed again`(number: Int32) async throws {
        defer { faults_disarm() }
        let fleet = try RunningFleet([.shell("web"), .shell("other")], root: Workbench.root(version1: [.memory]), isFaulted: true)
        #expect(await fleet.waits { fleet.process("web") != nil && fleet.process("other") != nil })
        let web = try #require(fleet.process("web")), other = fleet.process("other")
        // All calls of the request to end and of the first kill.
        faults_arm(number == EMFILE ? FAULT_PIDFD_OPEN : FAULT_PIDFD_SIGNAL, 1, number == EMFILE ? 4 : 5, number)
        fleet.supervisor.reload([.shell("other")])
        #expect(await fleet.waits { fleet.report("web") == nil && !RunningFleet.isRunning(web) })
        #expect(await endsWell(fleet, other))
    }

    @Test(.needs(Workbench.hasVersion1Memory, "no version 1 groups here"))
    func `a unit is started again only after a child missed by the first kill is gone`() async throws {
        defer { faults_disarm() }
        let directory = Fixture.Directory(), file = "\(directory.path)/children"
        let fleet = try RunningFleet(
            [.shell("web", "sleep 1000 & echo $! >> \(file); exec sleep 1000") { $0.restart = .always }],
            root: Workbench.root(version1: [.memory]), isFaulted: true)
        func children() -> [Int32] {
            let text = String(decoding: (try? GroupText.read(file).get()) ?? [], as: UTF8.self)
            return text.hasSuffix("\n") ? text.split(separator: "\n").compactMap { Int32($0) } : []
        }
        #expect(await fleet.waits { children().count == 1 && fleet.process("web") != nil })
        let child = try #require(children().first), first = try #require(fleet.process("web"))
        // Two passes each to stop and to kill the child.
        faults_arm(FAULT_PIDFD_SIGNAL, 1, 4, EPERM)
        kill(first, SIGKILL)
        var wasRunning = false
        #expect(
            await fleet.waits {
                guard children().count > 1 else { return false }
                // A child that runs now also ran when the next process was started.
                wasRunning = RunningFleet.isRunning(child)
                return true
            })
        #expect(!wasRunning && faults_count(FAULT_PIDFD_SIGNAL) > 4)
        #expect(await fleet.stop())
        unlink(file)
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine), arguments: [EAGAIN, EMFILE], [false, true])
    func `T32 a guard that can't be started, or has no descriptor, is started again`(number: Int32, isMade: Bool) async throws {
        defer { faults_disarm() }
        let fleet = try RunningFleet([.shell("web"), .shell("other"), .shell("hog") { $0.role = .background }], isFaulted: true) {
            $0.policy.leaveTime = .milliseconds(50)
        }
        #expect(await fleet.waits { fleet.process("hog") != nil && fleet.process("other") != nil })
        let other = fleet.process("other"), first = try #require(fleet.guardian)
        // Both descriptors fail: that of this process for the guard, and that of the guard.
        if isMade { faults_arm(FAULT_PIDFD_OPEN, 1, 2, number) } else { faults_arm(FAULT_CLONE, 1, 1, number) }
        kill(first, SIGKILL)
        // A guard without a descriptor exists for a moment. A guard that does not learn of all units within a second is
        // replaced, and a suspension that fails meanwhile is not repeated for long.
        let (kind, calls) = isMade ? (FAULT_PIDFD_OPEN, 2) : (FAULT_CLONE, 1)
        #expect(await fleet.waits { faults_count(kind) > calls && fleet.guardian(of: ["web", "other", "hog"]).map { $0 != first } ?? false })
        fleet.push()
        #expect(await fleet.waits { fleet.records.contains { $0.action == .suspend && $0.result != nil } })
        #expect(fleet.records.contains { $0.action == .suspend && $0.result != nil && $0.result?.failure == nil }, "\(fleet.records)")
        #expect(fleet.problems.contains { $0.contains("cannot restart the guard") }, "\(fleet.problems)")
        #expect(await endsWell(fleet, other))
        #expect(await fleet.waits { guards().isEmpty })
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine), arguments: [1, 2])
    func `T32 a silent guard whose replacement can't be started is replaced later`(times: Int) async throws {
        defer { faults_disarm() }
        let fleet = try RunningFleet([.shell("web"), .shell("other")], isFaulted: true) { $0.guardPatience = .seconds(2) }
        #expect(await fleet.waits { fleet.process("web") != nil && fleet.process("other") != nil })
        let other = fleet.process("other"), first = try #require(fleet.guardian)
        kill(first, SIGSTOP)
        faults_arm(FAULT_CLONE, 1, times, EAGAIN)
        // The guard is to hold the group of another unit, and does not answer.
        fleet.supervisor.reload([.shell("web"), .shell("other"), .shell("late")])
        #expect(await fleet.waits { fleet.guardian(of: ["web", "other", "late"]).map { $0 != first } ?? false })
        #expect(faults_count(FAULT_CLONE) > times)
        #expect(times == 1 || fleet.problems.contains { $0.contains("cannot restart the guard") }, "\(fleet.problems)")
        #expect(await endsWell(fleet, other))
        #expect(await fleet.waits { guards().isEmpty })
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `T32 a remade group that the guard refused is watched, and guarded once frozen`() async throws {
        defer { faults_disarm() }
        let directory = Fixture.Directory(), go = "\(directory.path)/go", ran = "\(directory.path)/ran"
        // If more processes run than the machine has processors, some freeze a moment later, and only the group's file
        // tells when.
        let work = "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; exec sleep 1000"
        let fleet = try RunningFleet(
            [
                .shell("hog", "[ -e \(go) ] || { : > \(ran); exit 1; }; \(work)") { ($0.restart, $0.role) = (.onFailure, .background) },
                .shell("other"),
            ], isFaulted: true
        ) { $0.policy.leaveTime = .milliseconds(50) }
        let path = try #require(fleet.group("hog"))
        #expect(await fleet.waits { access(ran, F_OK) == 0 && fleet.process("other") != nil })
        let other = fleet.process("other")
        // The guard is told to forget the former group and to hold the new one.
        faults_arm(FAULT_SENDMSG, 1, 2, ENOBUFS)
        #expect(await fleet.waits { rmdir(path) == 0 })
        #expect(await fleet.waits { faults_count(FAULT_SENDMSG) >= 2 })
        close(open(go, O_CREAT | O_WRONLY, 0o600))
        #expect(await fleet.waits { fleet.process("hog").map(RunningFleet.isRunning) ?? false })
        #expect(fleet.problems.contains { $0.contains("hog") && $0.contains("No buffer space available") }, "\(fleet.problems)")
        fleet.push()
        #expect(await fleet.waits { fleet.records.contains { $0.action == .suspend && $0.result != nil } })
        #expect(fleet.records.contains { $0.action == .suspend && $0.result != nil && $0.result?.failure == nil })
        // Compares the files' identities: the former group's file has the same path.
        let guardian = try #require(fleet.guardian), files = "/proc/\(guardian)/fd", freezer = GroupDirectory.Identity(at: path + "/cgroup.freeze")
        #expect(freezer != nil && RunningFleet.names(in: files).contains { GroupDirectory.Identity(at: "\(files)/\($0)") == freezer })
        #expect(await endsWell(fleet, other))
        for path in [go, ran] { unlink(path) }
    }

    @Test func `T32 a process without a descriptor does not count as ended, and is guarded once a descriptor exists`() throws {
        faults_join()
        defer {
            faults_disarm()
            faults_leave()
        }
        let group = try UnitGroup("loose", [], own: OwnGroups())
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready" && group.processes == [child.pid])
        var guardian: Guard? = try Guard(patience: Workbench.limit)
        for number in [EMFILE, ENOMEM] {
            faults_arm(FAULT_PIDFD_OPEN, 1, 1, number)
            #expect { try guardian!.watch(group) } throws: { ($0 as? GroupError)?.reason == .kernel(number) }
        }
        // An ended process needs no guard.
        faults_arm(FAULT_PIDFD_OPEN, 1, 1, ESRCH)
        try guardian!.watch(group)
        faults_disarm()
        try guardian!.watch(group)
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        guardian = nil
        blockUntil("the process runs again") { !group.isFrozen }
    }

    @Test(.needs(!Workbench.found.parents.isEmpty, "no groups here"), arguments: [EMFILE, ENFILE, ENOMEM, EAGAIN, EIO])
    func `a group with processes or subgroups that can't be read does not count as empty`(number: Int32) throws {
        faults_join()
        defer {
            faults_disarm()
            faults_leave()
        }
        let group = try Workbench.root().make("web")
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        for directory in group.directories {
            let below = directory.path + "/below"
            #expect(mkdir(below, 0o755) == 0 && GroupText.write("\(child.pid)", to: below + "/cgroup.procs") == nil, "\(below)")
            var nth = 0
            repeat {
                nth += 1
                faults_arm(FAULT_OPENAT, nth, 1, number)
                #expect(!directory.isEmpty, "\(directory.path), openat \(nth)")
            } while faults_count(FAULT_OPENAT) >= nth
            #expect(nth > 4)
            faults_disarm()
        }
        child.signal(SIGKILL)
        child.waitForEnd()
        for directory in group.directories {
            // No process can be in a missing directory.
            faults_arm(FAULT_OPENAT, 1, 1, ENOENT)
            #expect(directory.isEmpty)
            faults_disarm()
            blockUntil("the last process is gone") { directory.isEmpty }
        }
    }

    @Test(.needs(!Workbench.found.parents.isEmpty, "no groups here"), arguments: [FAULT_OPENAT, FAULT_OPEN].map(\.rawValue))
    func `K38 another owner's group that can't be read is not taken for an empty one`(kind: UInt32) throws {
        let root = Workbench.root(), group = try root.make("web")
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        faults_join()
        defer {
            faults_disarm()
            faults_leave()
        }
        // No list of processes can be opened, or no directory.
        faults_arm(fault_call(kind), 1, 1_000_000, EMFILE)
        #expect(throws: GroupError.self) { try root.clear("web", sparing: []) }
        #expect(faults_count(fault_call(kind)) > 0)
    }

    @Test func `C14 a process without a group that can't be inspected counts as neither ended nor stopped`() throws {
        faults_join()
        defer {
            faults_disarm()
            faults_leave()
        }
        let group = try UnitGroup("loose", [], own: OwnGroups())
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "ready")
        // The `nth` read fails, one after the other, of the texts of all processes, including this one.
        var nth = 0
        repeat {
            nth += 1
            faults_arm(FAULT_OPENAT, nth, 1, EMFILE)
            #expect(!group.isEmpty, "openat \(nth)")
            faults_arm(FAULT_OPENAT, nth, 1, EMFILE)
            #expect(!group.isFrozen, "openat \(nth)")
        } while faults_count(FAULT_OPENAT) >= nth
        #expect(nth > 1)
    }

    @Test(.needs(Workbench.found.parents[.unified] != nil, "no version 2 groups here"))
    func `T33 a process that can't enter the unit's group again is not started outside that group`() throws {
        let root = GroupRoot(prefix: Workbench.prefix()), group = try root.make("web")
        let (first, _) = try Workbench.shell("exec sleep 1000", in: group)
        // From now on processes enter by themselves.
        try group.killAll()
        #expect(first.waitForEnd() == .killed(signal: SIGKILL, dumpedCore: false))
        faults_join()
        defer {
            faults_disarm()
            faults_leave()
        }
        for nth in 1...8 {
            faults_arm(FAULT_OPENAT, nth, 1, EMFILE)
            guard let child = try? Child.start(.init(["/bin/sleep", "1000"]), in: group) else { continue }
            faults_disarm()
            #expect(group.processes.contains(child.pid) && !group.isEmpty, "openat \(nth)")
            child.signal(SIGKILL)
            _ = child.waitForEnd()
        }
        faults_disarm()
        try group.remove(within: Workbench.limit)
    }
}
