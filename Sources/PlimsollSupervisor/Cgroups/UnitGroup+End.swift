import CPlimsollSupervisor
import Glibc
import Synchronization

/// Operations that end a unit.
extension UnitGroup {
    /// Kills all processes at once, including frozen ones (K33) and those being forked. The processes are gone when
    /// `isEmpty`.
    package func killAll() throws(GroupError) {
        try check(for: .kill)
        if killFile >= 0 {
            isEntered.store(true, ordering: .relaxed)
            try write("1", to: killFile, for: .kill)
            // A process that was moved to another version 2 group still belongs to the unit by its other hierarchies.
            // Such a process would keep those groups from being removed.
            for directory in directories where directory.hierarchy != .unified {
                plimsoll_group_signal(directory.descriptor, SIGKILL, getpid())
            }
            return
        }
        // Frozen processes fork no others in the meantime.
        if case .signals = freezer { signalUntilNone(SIGSTOP) } else { try? freeze() }
        signalUntilNone(SIGKILL)
        // Version 1 keeps even killed processes frozen (kernel/cgroup/legacy_freezer.c).
        if case .version1(let file) = freezer { try write("THAWED", to: file, for: .thaw) }
    }

    /// Sends `signal` to each process once. A frozen process with a handler runs the handler after the thaw, and not
    /// before (K33).
    package func send(_ signal: Int32) throws(GroupError) {
        try check(for: .kill)
        signalAll(signal)
    }

    /// Removes the groups made for the unit, and those below. The processes must have ended; the last may take up to
    /// `limit` to disappear (K39).
    package func remove(within limit: Duration = .seconds(2)) throws(GroupError) {
        let ours = directories.filter(\.isOurs)
        guard !ours.isEmpty else { return }
        guard waitUntilEmpty(limit) else { throw GroupError(.remove, path, .occupied(processes.count)) }
        for directory in ours {
            do { try directory.check(for: .remove) } catch { continue }
            // On version 1 a group stays busy for a moment after the last process has left.
            for attempt in 0... {
                if rmdir(directory.path) == 0 || errno == ENOENT { break }
                directory.removeChildren()
                guard errno == EBUSY || errno == ENOTEMPTY, attempt < 400 else {
                    throw GroupError(.remove, directory.path, .kernel(errno))
                }
                _ = plimsoll_ready(-1, 0, attempt == 0 ? 0 : 5)
            }
        }
    }
}
