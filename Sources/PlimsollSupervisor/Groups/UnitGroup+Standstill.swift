import CPlimsollSupervisor
import Glibc
import Synchronization

/// Standing still. The paths that act allocate nothing unless they fail, where there is a group.
extension UnitGroup {
    /// Has all its processes stand still, those too that they start meanwhile. It takes its time: `isFrozen` says when it is done (K36).
    ///
    /// By SIGSTOP where there is no freezer: again and again until none is found running.
    package func freeze() throws(GroupError) {
        try check(for: .freeze)
        switch freezer {
        case .unified(let file): try write("1", to: file, for: .freeze)
        case .version1(let file): try write("FROZEN", to: file, for: .freeze)
        case .signals: signalUntilNone(SIGSTOP)
        }
    }

    /// Lets them run again.
    package func thaw() throws(GroupError) {
        try check(for: .thaw)
        switch freezer {
        case .unified(let file): try write("0", to: file, for: .thaw)
        case .version1(let file): try write("THAWED", to: file, for: .thaw)
        case .signals: signalUntilNone(SIGCONT)
        }
    }

    /// Whether they all stand still, as the kernel says. An ancestor's freeze counts, too (K36).
    package var isFrozen: Bool {
        switch freezer {
        case .unified: event("frozen 1")
        case .version1(let file): plimsoll_text_has(file, "FROZEN") != 0
        case .signals:
            members.allSatisfy { pid in
                guard let state = ProcessTable.stat(of: pid)?.state else { return ProcessTable.isOver(pid) }
                return [UInt8(ascii: "T"), UInt8(ascii: "t"), UInt8(ascii: "Z"), UInt8(ascii: "X")].contains(state)
            }
        }
    }

    /// Whether no process is left in it; zombies do not count where the kernel tells (`populated`).
    package var isEmpty: Bool {
        // A removed group's files can't be read any more (ENODEV), and only empty ones are removed.
        if eventsFile >= 0 { return !event("populated 1") }
        if !directories.isEmpty { return directories.allSatisfy(\.isEmpty) }
        return members.allSatisfy { ProcessTable.isOver($0) }
    }

    /// Its processes, and without a group also the first ones that may have ended by now: those are known where no process can be looked at.
    private var members: Set<Int32> {
        directories.isEmpty ? processes.union(leaders.withLock { $0 }) : processes
    }

    /// Waits until they all stand still. False if they don't within the limit.
    package func waitUntilFrozen(_ limit: Duration) -> Bool { wait(limit) { isFrozen } }

    /// Waits until all have ended. False if they haven't within the limit.
    package func waitUntilEmpty(_ limit: Duration) -> Bool { wait(limit) { isEmpty } }

    /// By the kernel's word on version 2, by looking every two milliseconds elsewhere.
    private func wait(_ limit: Duration, until isDone: () -> Bool) -> Bool {
        let deadline = ContinuousClock.now + limit
        while !isDone() {
            let rest = deadline - .now
            guard rest > .zero else { return false }
            let milliseconds = Int32(clamping: Int64(rest / .milliseconds(1)) + 1)
            _ = eventsFile >= 0 ? plimsoll_ready(eventsFile, POLLPRI, milliseconds) : plimsoll_ready(-1, 0, min(2, milliseconds))
        }
        return true
    }

    /// Sends to all until two passes find nobody to send to: one who was just being started may be missing from a list. A process that waits for a disk
    /// stops when that has answered: not waited for here.
    func signalUntilNone(_ signal: Int32) {
        var quiet = 0
        for _ in 0..<256 where quiet < 2 {
            quiet = signalAll(signal) > 0 ? 0 : quiet + 1
            sched_yield()
        }
    }

    /// Sends to each process once, but not to the supervisor; how many it reached.
    @discardableResult
    func signalAll(_ signal: Int32) -> Int {
        if directories.isEmpty { return ProcessTable.signal(signal, treeOf: leaders.withLock { $0 }) }
        var reached = 0
        for directory in directories { reached += max(0, Int(plimsoll_group_signal(directory.descriptor, signal, getpid()))) }
        return reached
    }

    func write(_ text: StaticString, to file: Int32, for act: GroupError.Act) throws(GroupError) {
        if let number = GroupText.write(text, to: file) { throw GroupError(act, path, .kernel(number)) }
    }

    /// Whether `cgroup.events` has that line. Reading it is also what makes the next change ready the file again.
    private func event(_ line: String) -> Bool { plimsoll_text_has(eventsFile, line) != 0 }
}
