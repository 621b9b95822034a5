import CPlimsollSupervisor
import Glibc
import Synchronization

/// Freezing and thawing. If the unit has a group, these operations allocate nothing unless they fail.
extension UnitGroup {
    /// Freezes all processes, including those forked in the meantime. Returns before all are frozen; check `isFrozen`
    /// (K36).
    ///
    /// Without a freezer, sends SIGSTOP repeatedly until no running process is found.
    package func freeze() throws(GroupError) {
        try check(for: .freeze)
        switch freezer {
        case .unified(let file): try write("1", to: file, for: .freeze)
        case .version1(let file): try write("FROZEN", to: file, for: .freeze)
        case .signals: signalUntilNone(SIGSTOP)
        }
    }

    package func thaw() throws(GroupError) {
        try check(for: .thaw)
        switch freezer {
        case .unified(let file): try write("0", to: file, for: .thaw)
        case .version1(let file): try write("THAWED", to: file, for: .thaw)
        case .signals: signalUntilNone(SIGCONT)
        }
    }

    /// True if all processes are frozen, as reported by the kernel. The freeze of an ancestor counts, too (K36).
    package var isFrozen: Bool {
        switch freezer {
        case .unified: event("frozen 1") > 0
        case .version1(let file): plimsoll_text_has(file, "FROZEN") > 0
        case .signals:
            members.allSatisfy { pid in
                ProcessTable.stat(of: pid).map(Self.isHalted) ?? ProcessTable.isOver(pid)
            }
        }
    }

    /// True if the unit itself was thawed. A frozen group may report for a moment that not all processes are frozen, as
    /// when one of them is killed. False if that can't be found out now.
    var isThawed: Bool {
        switch freezer {
        case .unified(let file): plimsoll_text_has(file, "0") > 0
        case .version1(let file): plimsoll_text_has(file, "THAWED") > 0
        case .signals: members.contains { ProcessTable.stat(of: $0).map { !Self.isHalted($0) } ?? false }
        }
    }

    /// Returns true if a process is stopped, traced, or will run no more.
    private static func isHalted(_ stat: ProcessStat) -> Bool {
        stat.isOver || stat.state == UInt8(ascii: "T") || stat.state == UInt8(ascii: "t")
    }

    /// True if no process is left in the group. Zombies do not count where the kernel reports `populated`. False if
    /// that can't be found out now.
    package var isEmpty: Bool {
        // The files of a removed group can't be read any more (ENODEV), and only empty groups are removed.
        if eventsFile >= 0 {
            let result = event("populated 1")
            return result == 0 || result == -ENODEV
        }
        if !directories.isEmpty { return directories.allSatisfy(\.isEmpty) }
        return members.allSatisfy { ProcessTable.isOver($0) }
    }

    /// The processes of the unit. Without a group, includes leaders that may have ended: they are known even when no
    /// process can be read.
    private var members: Set<Int32> {
        guard directories.isEmpty else { return processes }
        let all = ProcessTable.all(), pids = ProcessTable.pids(of: leaders.withLock { $0 }, among: all)
        return ProcessTable.tree(of: pids, among: all).union(pids)
    }

    /// Waits until all processes are frozen. Returns false if the limit passes first.
    package func waitUntilFrozen(_ limit: Duration) -> Bool { wait(limit) { isFrozen } }

    /// Waits until all processes have ended. Returns false if the limit passes first.
    package func waitUntilEmpty(_ limit: Duration) -> Bool { wait(limit) { isEmpty } }

    /// Waits for a notification of the kernel on version 2; polls every two milliseconds elsewhere.
    private func wait(_ limit: Duration, until isDone: () -> Bool) -> Bool {
        let deadline = ContinuousClock.now + limit
        while !isDone() {
            let rest = deadline - .now
            guard rest > .zero else { return false }
            let milliseconds = Int32(clamping: Int64(rest / .milliseconds(1)) + 1)
            _ =
                eventsFile >= 0
                ? plimsoll_ready(eventsFile, POLLPRI, milliseconds) : plimsoll_ready(-1, 0, min(2, milliseconds))
        }
        return true
    }

    /// Sends the signal until two passes in a row reach no process: a process being forked may be missing from one
    /// list. A process in disk sleep stops when the disk has answered; this function does not wait for that.
    func signalUntilNone(_ signal: Int32) {
        var quiet = 0
        for _ in 0..<256 where quiet < 2 {
            quiet = signalAll(signal) > 0 ? 0 : quiet + 1
            sched_yield()
        }
    }

    /// Sends SIGSTOP, SIGCONT or SIGKILL to each process, except to the supervisor. A process in several hierarchies
    /// may receive the signal several times. Returns the number of processes reached.
    private func signalAll(_ signal: Int32) -> Int {
        if directories.isEmpty { return ProcessTable.signal(signal) { processes } }
        var reached = 0
        for directory in directories {
            reached += max(0, Int(plimsoll_group_signal(directory.descriptor, signal, getpid())))
        }
        return reached
    }

    func write(_ text: StaticString, to file: Int32, for act: GroupError.Act) throws(GroupError) {
        if let number = GroupText.write(text, to: file) { throw GroupError(act, path, .kernel(number)) }
    }

    /// Returns 1 if `cgroup.events` has that line, 0 if not, or a negative errno. Reading the file also re-arms its
    /// readiness for the next change.
    private func event(_ line: String) -> Int32 { plimsoll_text_has(eventsFile, line) }
}
