import CPlimsollSupervisor
import Glibc
import Synchronization

/// The groups that one unit's processes are in: one in each hierarchy that has a use. Without any, the processes it was given and what they have started.
///
/// The files to freeze, thaw and kill it by are open from the beginning, and what is written to them is constant: it must go when nothing else does.
/// May be used from any thread.
package final class UnitGroup: Sendable {
    package let name: String
    package let directories: [GroupDirectory]
    /// Of version 2.
    package let unified: GroupDirectory?
    /// Of whichever version has the memory controller; `nil` if none has.
    package let memory: GroupDirectory?
    let cpu: GroupDirectory?
    let disk: GroupDirectory?
    let freezer: Freezer
    /// `cgroup.kill`; -1 without.
    let killFile: Int32
    /// `cgroup.events` of version 2: ready for `POLLPRI` when its text has changed since it was read last, as `frozen` and `populated` do. -1 without.
    package let eventsFile: Int32
    /// What was entered where there is no group to enter; empty where there is.
    let leaders = Mutex<Set<Int32>>([])
    /// Whether a process goes into the version 2 group by itself instead of being made there: whoever is made in a group that was ever killed by `cgroup.kill`
    /// is killed as well (seen on Linux 6.18; kernel/cgroup/cgroup.c: `cgroup_css_set_fork` takes `kill_seq` of the parent's group as long as the child's is not
    /// known, and `cgroup_post_fork` compares it with the child's).
    // Relaxed, everywhere: who kills it and who starts the next process in it is one thread.
    let isEntered = Atomic(false)
    private let own: OwnGroups

    /// How it is made to stand still here.
    package enum Freezer: Sendable, Equatable {
        /// `cgroup.freeze` of version 2, open.
        case unified(Int32)
        /// `freezer.state` of version 1, open.
        case version1(Int32)
        /// SIGSTOP to each.
        case signals
    }

    /// Takes `directories`, at most one of a hierarchy.
    ///
    /// - Throws: if one of them is the supervisor's own group, or above it.
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
        let state = freeze >= 0 ? -1 : directories.first { $0.hierarchy == .freezer }?.open("freezer.state", O_RDWR) ?? -1
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

    /// What it is called in an error.
    package var path: String { directories.first?.path ?? "the processes of \(name)" }

    /// How it can be made to stand still.
    package var suspension: ServiceUnit.Suspension { freezer == .signals ? .stop : .freeze }

    /// Throws if a directory is another one by now, or the supervisor has got into it. Allocates nothing unless something has changed.
    package func check(for act: GroupError.Act) throws(GroupError) {
        for directory in directories { try directory.check(for: act) }
        if own.isCurrent { return }
        let now = OwnGroups()
        for directory in directories where now.contains(directory) { throw GroupError(act, directory.path, .supervisors) }
    }

    // MARK: Processes

    /// All processes in it, and in groups below it.
    package var processes: Set<Int32> {
        if directories.isEmpty { return ProcessTable.tree(of: leaders.withLock { $0 }) }
        return directories.reduce(into: []) { $0.formUnion($1.processes()) }
    }

    /// Puts a process that already runs into it. What it has started stays where it is: `enterTree` takes that along.
    ///
    /// Version 2 does not move memory with the process: what it has used so far stays charged where it was (kernel/cgroup/cgroup.c).
    package func enter(_ pid: Int32) throws(GroupError) {
        guard pid > 0, pid != getpid() else { throw GroupError(.enter, path, .supervisors) }
        for directory in directories { try directory.write("\(pid)", to: "cgroup.procs", for: .enter) }
        if directories.isEmpty { leaders.withLock { _ = $0.insert(pid) } }
    }

    /// Puts a process and all that it has started into it, until nobody is found outside: they may go on starting others meanwhile.
    ///
    /// - Parameter others: processes that must stay where they are: first ones of other units, the guard.
    /// - Throws: if the process has started one of those, or the supervisor; nothing is moved then.
    package func enterTree(_ pid: Int32, sparing others: Set<Int32> = []) throws(GroupError) {
        let tree = ProcessTable.tree(of: [pid])
        if tree.contains(getpid()) { throw GroupError(.enter, path, .ancestor(pid, of: getpid())) }
        if let other = tree.intersection(others).min() { throw GroupError(.enter, path, .ancestor(pid, of: other)) }
        try enter(pid)
        if directories.isEmpty { return }
        // Each round takes a generation; who outruns this many is not to be caught by moving.
        for _ in 0..<32 {
            let outside = ProcessTable.tree(of: [pid]).subtracting(processes).subtracting([getpid()])
            if outside.isEmpty { return }
            for other in outside {
                do throws(GroupError) { try enter(other) } catch {
                    // It has ended since.
                    if error.reason != .kernel(ESRCH) { throw error }
                }
            }
        }
    }
}
