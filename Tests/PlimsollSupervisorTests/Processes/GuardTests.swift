import CPlimsollSupervisor
import CSystemCallFaults
import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized) struct GuardTests {
    /// The answer for a guard that a supervisor of another test has waited for. As the first process of a machine, a
    /// supervisor waits for every process that is unknown to that supervisor.
    private let reaped = -ECHILD

    /// Starts a unit that writes for as long as the unit runs: new output after a freeze shows that the unit runs
    /// again.
    private func busy(in group: UnitGroup?) throws -> (child: Child, output: Output) { try Workbench.shell("while :; do echo x; done", in: group) }

    /// True if the unit has written since the freeze: more bytes come than the pipe could hold at that time.
    private func writes(_ output: Output) -> Bool { output.take(2 * 65536) }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `T32 a unit frozen by a killed supervisor runs again`() async throws {
        let group = try Workbench.root().make("web")
        let (child, output) = try busy(in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "x")
        let path = try #require(group.unified?.path)
        await #expect(processExitsWith: .signal(SIGKILL)) { [path = path as String] in
            let guardian = try Guard(patience: Workbench.limit)
            let group = try Workbench.found.adopt("web", at: path)
            try guardian.watch(group)
            try group.freeze()
            precondition(group.waitUntilFrozen(Workbench.limit))
            kill(getpid(), SIGKILL)
            withExtendedLifetime(guardian) {}
        }
        // Only the ended process knows that the unit was frozen then: a failed precondition would have ended that
        // process with another signal.
        #expect(writes(output))
    }

    @Test func `T32 a process stopped by a killed supervisor runs again`() async throws {
        let (child, output) = try busy(in: nil)
        defer {
            child.signal(SIGKILL)
            child.waitForEnd()
        }
        #expect(output.line() == "x")
        let pid = child.pid
        await #expect(processExitsWith: .signal(SIGKILL)) { [pid = pid as Int32] in
            let guardian = try Guard(patience: Workbench.limit)
            let child = try Child.adopt(pid)
            try guardian.watch(child)
            child.signal(SIGSTOP)
            blockUntil("the stop") { ProcessTable.stat(of: pid)?.state == UInt8(ascii: "T") }
            kill(getpid(), SIGKILL)
            withExtendedLifetime(guardian) {}
        }
        #expect(writes(output))
    }

    /// Freezes the group, watched by a new guard.
    private static func guardOfFrozen(_ group: UnitGroup) throws -> Guard {
        let guardian = try Guard(patience: Workbench.limit)
        try guardian.watch(group)
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        return guardian
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `T32 a killed guard is noticed, and the next guard watches the same groups`() throws {
        let group = try Workbench.root().make("web")
        let (child, output) = try busy(in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "x")
        var guardian: Guard? = try Self.guardOfFrozen(group)
        let first = guardian!.pid
        #expect(plimsoll_pidfd_signal(guardian!.descriptor, SIGKILL) == 0)
        #expect(plimsoll_ready(guardian!.descriptor, POLLIN, 20_000) != 0 && !guardian!.isAlive)
        #expect(group.isFrozen)
        #expect(throws: GroupError.self) { try guardian!.watch(group) }
        try guardian!.restart()
        #expect(guardian!.isAlive && guardian!.pid != first && group.isFrozen)
        guardian = nil
        #expect(!group.isFrozen)
        #expect(writes(output))
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `a forgotten group stays frozen`() throws {
        let group = try Workbench.root().make("web")
        let (child, output) = try busy(in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "x")
        var guardian: Guard? = try Guard(patience: Workbench.limit)
        try guardian!.watch(group)
        guardian!.forget(group)
        try group.freeze()
        #expect(group.waitUntilFrozen(Workbench.limit))
        guardian = nil
        #expect(group.isFrozen)
    }

    @Test func `T32 stopped groups and processes without a group are continued`() throws {
        let loose = try UnitGroup("loose", [], own: OwnGroups())
        var groups = [loose]
        if Workbench.hasVersion1Memory { groups.append(try Workbench.root(version1: [.memory]).make("old")) }
        for group in groups {
            let (child, output) = try busy(in: group)
            defer { Workbench.clear(group, child) }
            #expect(output.line() == "x")
            var guardian: Guard? = try Self.guardOfFrozen(group)
            try guardian!.watch(group)
            guardian = nil
            #expect(writes(output))
        }
    }

    @Test(.needs(faults_work(), "a sanitizer has these calls for itself"), arguments: [1, 2])
    func `T32 a supervisor killed between two messages to the guard leaves no process stopped`(lost: Int) throws {
        let group = try UnitGroup("loose", [], own: OwnGroups())
        let (child, output) = try busy(in: group)
        defer { Workbench.clear(group, child) }
        #expect(output.line() == "x")
        var guardian: Guard? = try Self.guardOfFrozen(group)
        // The guard receives no more of the update, and then the end.
        socket_faults_begin(lost, ENOBUFS, true)
        try? guardian!.watch(group)
        #expect(socket_faults_end())
        guardian = nil
        #expect(writes(output))
    }

    @Test(.needs(faults_work(), "a sanitizer has these calls for itself"))
    func `T32 a limit whose file can't be opened now is not taken for the limit of a removed group`() throws {
        let folder = Fixture.Directory(), files = ["cgroup.procs", "limit"].map { "\(folder.path)/\($0)" }
        for file in files { close(open(file, O_WRONLY | O_CREAT, 0o600)) }
        defer { for file in files { unlink(file) } }
        let group = try UnitGroup("loose", [], own: OwnGroups())
        let limit = LiftedLimit(try GroupDirectory(.cpu, folder.path, isOurs: false), "limit", "free")
        var guardian: Guard? = try Guard(patience: Workbench.limit)
        func reason(failing number: Int32) -> GroupError.Reason? {
            faults_begin(1, number, false)
            defer { _ = faults_end() }
            do throws(GroupError) { try guardian!.watch([limit], .throttle, of: group) } catch { return error.reason }
            return nil
        }
        for number in [EMFILE, ENFILE, ENOMEM] { #expect(reason(failing: number) == .kernel(number)) }
        for number in [ENOENT, ENODEV] { #expect(reason(failing: number) == nil) }
        try guardian!.watch([limit], .throttle, of: group)
        guardian = nil
        #expect(try GroupText.read(files[1]).get() == Array("free".utf8))
    }

    @Test func `T32 the guard survives the signals that end the supervisor, and holds none of the supervisor's descriptors`() throws {
        let output = Output()
        let guardian = try Guard(patience: Workbench.limit)
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1] { #expect(plimsoll_pidfd_signal(guardian.descriptor, signal) == 0) }
        output.closeWrite()
        #expect(output.hasEnded)
        // The guard's answer comes after all effects of the signals.
        let group = try UnitGroup("loose", [], own: OwnGroups())
        let (child, ready) = try Workbench.shell("echo ready; exec sleep 1000", in: group)
        defer { Workbench.clear(group, child) }
        #expect(ready.line() == "ready")
        try guardian.watch(group)
        #expect(guardian.isAlive)
        let stat = try #require(ProcessTable.stat(of: guardian.pid))
        #expect(stat.session == guardian.pid && stat.parent == getpid())
    }

    @Test func `a guard created first has less than a mebibyte of private dirty memory`() async {
        await #expect(processExitsWith: .success) {
            let guardian = try Guard()
            let rollup = String(decoding: try GroupText.read("/proc/\(guardian.pid)/smaps_rollup").get(), as: UTF8.self)
            let dirty = rollup.split(separator: "\n").first { $0.hasPrefix("Private_Dirty:") }
            let kibibytes = try #require(dirty.flatMap { GroupText.number(Array($0.dropFirst(14).utf8)) })
            #expect(kibibytes < 1024)
        }
    }

    private func record(_ kind: plimsoll_guard_kind, _ key: UInt64) -> plimsoll_guard_record {
        var record = plimsoll_guard_record()
        (record.kind, record.key) = (kind.rawValue, key)
        return record
    }

    @Test func `the guard holds no more records than the capacity, and answers further records with a refusal`() throws {
        var (socket, pidfd, pid): (Int32, Int32, pid_t) = (-1, -1, 0)
        #expect(plimsoll_guard_start(nil, 0, &socket, &pidfd, &pid) == 0)
        defer {
            close(socket)
            var status: Int32 = 0
            let ended = plimsoll_pidfd_wait(pidfd, 1, &status)
            #expect(ended == 1 && status == 0 || ended == reaped)
            close(pidfd)
        }
        let file = plimsoll_pidfd_open(getpid())
        defer { close(file) }
        var answer: Int32 = 0, count = 0
        while answer == 0, count < 2 * Int(PLIMSOLL_GUARD_CAPACITY) {
            var record = record(PLIMSOLL_GUARD_UNIFIED, UInt64(count) + 1)
            answer = plimsoll_guard_send(socket, &record, file, 20_000)
            count += 1
        }
        #expect(count == Int(PLIMSOLL_GUARD_CAPACITY) + 1 && answer == -ENOSPC || answer == -EMFILE)
        var forget = record(PLIMSOLL_GUARD_FORGET, 1)
        #expect(plimsoll_guard_send(socket, &forget, -1, 20_000) == 0)
        var again = record(PLIMSOLL_GUARD_UNIFIED, 50_000)
        #expect(plimsoll_guard_send(socket, &again, file, 20_000) == 0)
    }

    @Test func `a late answer is not taken for the answer to another record`() throws {
        var (socket, pidfd, pid): (Int32, Int32, pid_t) = (-1, -1, 0)
        #expect(plimsoll_guard_start(nil, 0, &socket, &pidfd, &pid) == 0)
        defer {
            close(socket)
            var status: Int32 = 0
            let ended = plimsoll_pidfd_wait(pidfd, 1, &status)
            #expect(ended == 1 || ended == reaped)
            close(pidfd)
        }
        #expect(plimsoll_pidfd_signal(pidfd, SIGSTOP) == 0)
        // No file comes with the record, so the guard refuses the record.
        var refused = record(PLIMSOLL_GUARD_UNIFIED, 1)
        #expect(plimsoll_guard_send(socket, &refused, -1, 50) == -ETIMEDOUT)
        #expect(plimsoll_pidfd_signal(pidfd, SIGCONT) == 0)
        var forget = record(PLIMSOLL_GUARD_FORGET, 2)
        #expect(plimsoll_guard_send(socket, &forget, -1, 20_000) == 0)
    }

    @Test func `T32 a silent guard is replaced by a guard that knows the stopped processes`() throws {
        let (child, output) = try busy(in: nil), (other, words) = try busy(in: nil)
        defer {
            for child in [child, other] {
                child.signal(SIGKILL)
                child.waitForEnd()
            }
        }
        #expect(output.line() == "x" && words.line() == "x")
        var guardian: Guard? = try Guard(patience: .seconds(10))
        try guardian!.watch(child)
        let former = try Child.adopt(guardian!.pid)
        former.signal(SIGSTOP)
        try guardian!.watch(other)
        #expect(guardian!.isAlive && guardian!.pid != former.pid && former.waitForEnd(within: Workbench.limit) != nil)
        // A silent guard is also replaced after an order to forget.
        let next = try Child.adopt(guardian!.pid)
        next.signal(SIGSTOP)
        guardian!.forget(other)
        #expect(guardian!.isAlive && guardian!.pid != next.pid && next.waitForEnd(within: Workbench.limit) != nil)
        for child in [child, other] {
            child.signal(SIGSTOP)
            blockUntil("the stop") { ProcessTable.stat(of: child.pid)?.state == UInt8(ascii: "T") }
        }
        guardian = nil
        #expect(writes(output))
        #expect(ProcessTable.stat(of: other.pid)?.state == UInt8(ascii: "T"))
    }

    @Test func `T32 a pause of the whole machine does not count as silence of the guard`() async throws {
        await #expect(processExitsWith: .success) {
            let guardian = try Guard(patience: .seconds(4)), first = guardian.pid
            // As on a host that pauses its machines: this process and the guard stand still, and continue one after the
            // other.
            let (pauser, output) = try Workbench.shell(
                "kill -STOP \(first) \(getpid()); sleep 5; kill -CONT \(getpid()); sleep 0.1; kill -CONT \(first); echo over", in: nil)
            while plimsoll_ready(output.read, POLLIN, 0) == 0 {
                try guardian.watch(pauser)
                guardian.forget(pauser)
            }
            precondition(output.line() == "over" && guardian.isAlive && guardian.pid == first)
            pauser.waitForEnd()
        }
    }

    @Test(.needs(Workbench.hasFreezer, "no version 2 freezer here", or: .virtualMachine))
    func `T32 a silent guard is replaced by a guard that knows all records, and thaws nothing later`() throws {
        let root = Workbench.root(), first = try root.make("first"), second = try root.make("second")
        let (child, output) = try busy(in: first)
        defer { Workbench.clear(first, child) }
        defer { try? second.remove(within: Workbench.limit) }
        #expect(output.line() == "x")
        var guardian: Guard? = try Guard(patience: .seconds(10))
        func files() -> Int { RunningFleet.names(in: "/proc/\(guardian!.pid)/fd").count }
        try guardian!.watch(second)
        let one = files()
        try guardian!.watch(first)
        let two = files()
        let former = try Child.adopt(guardian!.pid)
        former.signal(SIGSTOP)
        try guardian!.watch(second)
        #expect(guardian!.isAlive && guardian!.pid != former.pid && former.waitForEnd(within: Workbench.limit) != nil)
        #expect(two == one + 1 && files() == two)
        try first.freeze()
        #expect(first.waitUntilFrozen(Workbench.limit))
        // A silent guard is also replaced after an order to forget.
        let next = try Child.adopt(guardian!.pid)
        next.signal(SIGSTOP)
        guardian!.forget(second)
        #expect(guardian!.pid != next.pid && files() == one && first.isFrozen)
        guardian = nil
        #expect(!first.isFrozen)
    }
}
