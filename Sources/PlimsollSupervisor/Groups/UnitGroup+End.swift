import CPlimsollSupervisor
import Glibc
import Synchronization

/// The end of a unit.
extension UnitGroup {
    /// Kills all its processes at once, frozen ones too (K33), and those that they are just starting. They are gone when `isEmpty`.
    package func killAll() throws(GroupError) {
        try check(for: .kill)
        if killFile >= 0 {
            isEntered.store(true, ordering: .relaxed)
            try write("1", to: killFile, for: .kill)
            // Who was moved to another group of one hierarchy only is the unit's still, and would keep its other groups from being removed.
            for directory in directories where directory.hierarchy != .unified {
                plimsoll_group_signal(directory.descriptor, SIGKILL, getpid())
            }
            return
        }
        // Standing still, they start no others meanwhile.
        if case .signals = freezer { signalUntilNone(SIGSTOP) } else { try? freeze() }
        signalUntilNone(SIGKILL)
        // Version 1 keeps even the killed frozen (kernel/cgroup/legacy_freezer.c).
        if case .version1(let file) = freezer { try write("THAWED", to: file, for: .thaw) }
    }

    /// Sends `signal` to each of its processes once. A frozen one with a handler for it sees it when it runs again, and not before (K33).
    package func send(_ signal: Int32) throws(GroupError) {
        try check(for: .kill)
        signalAll(signal)
    }

    /// Removes the groups that were made for it, and those below them. Its processes must have ended; the last may take `limit` to go (K39).
    package func remove(within limit: Duration = .seconds(2)) throws(GroupError) {
        let ours = directories.filter(\.isOurs)
        guard !ours.isEmpty else { return }
        guard waitUntilEmpty(limit) else { throw GroupError(.remove, path, .occupied(processes.count)) }
        for directory in ours {
            do { try directory.check(for: .remove) } catch { continue }
            // On version 1 a group stays busy for a moment after its last process.
            for attempt in 0... {
                if rmdir(directory.path) == 0 || errno == ENOENT { break }
                directory.removeChildren()
                guard errno == EBUSY || errno == ENOTEMPTY, attempt < 400 else { throw GroupError(.remove, directory.path, .kernel(errno)) }
                _ = plimsoll_ready(-1, 0, attempt == 0 ? 0 : 5)
            }
        }
    }
}
