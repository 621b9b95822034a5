import CPlimsollSupervisor
import Glibc
import Synchronization

/// The cgroups of one unit: one in each useful hierarchy. Without any group, the unit consists of the entered
/// processes and their descendants.
///
/// The files for freeze, thaw and kill are opened at the start, and the texts written to them are constants: these
/// operations must work when memory is exhausted. May be used from any thread.
package final class UnitGroup: Sendable {
    package let name: String
    package let directories: [GroupDirectory]
    /// The group on version 2.
    package let unified: GroupDirectory?
    /// The group with the memory controller, of either version; `nil` if there is none.
    package let memory: GroupDirectory?
    let cpu: GroupDirectory?
    let disk: GroupDirectory?
    let freezer: Freezer
    /// `cgroup.kill`; -1 if there is none.
    let killFile: Int32
    /// `cgroup.events` of version 2. Ready for `POLLPRI` when `frozen` or `populated` has changed since the last
    /// read. -1 if there is none.
    package let eventsFile: Int32
    /// The processes entered without a group; empty if the unit has a group.
    let leaders = Mutex<Set<ProcessTable.Leader>>([])
    /// True if a new process enters the version 2 group by itself instead of being created there. A process created
    /// in a group that was ever killed by `cgroup.kill` is killed as well (seen on Linux 6.18). In
    /// kernel/cgroup/cgroup.c, `cgroup_css_set_fork` takes `kill_seq` of the parent's group while the child's is
    /// unknown, and `cgroup_post_fork` compares it with the child's. `plimsoll_start` notices such an end, also
    /// after another process has written that file, and starts the process again.
    // Relaxed everywhere: the same thread kills the group and starts the next process in the group.
    let isEntered = Atomic(false)
    private let own: OwnGroups

    /// The mechanism that freezes the unit.
    package enum Freezer: Sendable, Equatable {
        /// `cgroup.freeze` of version 2, open.
        case unified(Int32)
        /// `freezer.state` of version 1, open.
        case version1(Int32)
        /// SIGSTOP to each process.
        case signals
    }

    /// Creates a unit of `directories`, at most one in each hierarchy.
    ///
    /// - Throws: if one of them is the supervisor's own group, or above that group.
    package init(_ name: String, _ directories: [GroupDirectory], own: OwnGroups) throws(GroupError) {
        for directory in directories where own.contains(directory) || directory.processes().contains(getpid()) {
            throw GroupError(.adopt, directory.path, .supervisors)
        }
        (self.name, self.directories, self.own) = (name, directories, own)
        func first(_ name: String) -> GroupDirectory? { directories.first { $0.has(name) } }
        unified = directories.first { $0.hierarchy == .unified }
        memory = first("memory.current") ?? first("memory.usage_in_bytes")
        cpu = first("cpu.weight") ?? first("cpu.shares")
        disk = first("io.weight") ?? first("blkio.bfq.weight") ?? first("blkio.weight")
        let freeze = unified?.open("cgroup.freeze", O_RDWR) ?? -1
        let state =
            freeze >= 0 ? -1 : directories.first { $0.hierarchy == .freezer }?.open("freezer.state", O_RDWR) ?? -1
        freezer = freeze >= 0 ? .unified(freeze) : state >= 0 ? .version1(state) : .signals
        killFile = unified?.open("cgroup.kill", O_WRONLY) ?? -1
        eventsFile = unified?.open("cgroup.events", O_RDONLY) ?? -1
    }

    deinit {
        switch freezer {
        case .unified(let file), .version1(let file): close(file)
        case .signals: break
        }
        if killFile >= 0 { close(killFile) }
        if eventsFile >= 0 { close(eventsFile) }
    }

    /// The unit's name in errors.
    package var path: String { directories.first?.path ?? "the processes of \(name)" }

    /// The mechanism that suspends the unit.
    package var suspension: ServiceUnit.Suspension { freezer == .signals ? .stop : .freeze }

    /// Throws if a directory has been replaced, or the supervisor has moved into one. Allocates nothing unless a
    /// group has changed.
    package func check(for act: GroupError.Act) throws(GroupError) {
        for directory in directories { try directory.check(for: act) }
        if own.isCurrent { return }
        let now = OwnGroups()
        for directory in directories where now.contains(directory) {
            throw GroupError(act, directory.path, .supervisors)
        }
    }

    // MARK: Processes

    /// All processes in the group, and in groups below.
    package var processes: Set<Int32> {
        if directories.isEmpty { return ProcessTable.tree(of: leaders.withLock { $0 }) }
        return directories.reduce(into: []) { $0.formUnion($1.processes()) }
    }

    /// Moves a running process into the group. The process's descendants stay where they are; `enterTree` moves them
    /// too.
    ///
    /// Version 2 does not move memory with the process: memory used so far stays charged to the old group
    /// (kernel/cgroup/cgroup.c).
    package func enter(_ pid: Int32) throws(GroupError) {
        guard pid > 0, pid != getpid() else { throw GroupError(.enter, path, .supervisors) }
        for directory in directories { try directory.write("\(pid)", to: "cgroup.procs", for: .enter) }
        note(pid)
    }

    /// Without a group, records the process as a leader whose children belong to the unit. Forgets the former leaders
    /// once nothing is left of them: other processes may get their pids, and leave sessions with these behind.
    func note(_ pid: Int32) {
        guard directories.isEmpty else { return }
        let isEmpty = isEmpty
        let leader = ProcessTable.Leader(pid: pid, started: ProcessTable.stat(of: pid)?.started)
        leaders.withLock { leaders in
            if isEmpty { leaders = [] }
            leaders.insert(leader)
        }
    }

    /// Moves a process and all its descendants into the group, until none is found outside. The processes may fork
    /// others in the meantime.
    ///
    /// - Parameter others: processes that must stay where they are: first processes of other units, the guard.
    /// - Throws: if the process has started one of those, or the supervisor. No process is moved then.
    package func enterTree(_ pid: Int32, sparing others: Set<Int32> = []) throws(GroupError) {
        let tree = ProcessTable.tree(of: [pid])
        if tree.contains(getpid()) { throw GroupError(.enter, path, .ancestor(pid, of: getpid())) }
        if let other = tree.intersection(others).min() { throw GroupError(.enter, path, .ancestor(pid, of: other)) }
        try enter(pid)
        if directories.isEmpty { return }
        // Each round catches one generation. Processes that fork faster than this can't be caught by moving.
        for _ in 0..<32 {
            let outside = ProcessTable.tree(of: [pid]).subtracting(processes).subtracting([getpid()])
            if outside.isEmpty { return }
            for other in outside {
                do throws(GroupError) { try enter(other) } catch {
                    // The process has ended in the meantime.
                    if error.reason != .kernel(ESRCH) { throw error }
                }
            }
        }
    }
}

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
        // A process is listed in each hierarchy, and a program may take a second signal for another request.
        _ = ProcessTable.signal(signal) { processes }
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
