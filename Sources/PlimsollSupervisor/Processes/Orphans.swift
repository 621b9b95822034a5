import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// Processes whose parents have ended, where those become this process's children: in a container whose first process the supervisor is, say. Nobody else
/// waits for them, and as zombies they would count until no process can be made any more (pids.max).
enum Orphans {
    static var areOurs: Bool { plimsoll_inherits_children() != 0 }

    /// Waits for those that have ended. What somebody in this process has started is left to that somebody: units and their helpers are all in sessions of
    /// their own, what a program starts elsewhere is in its own session.
    static func reap() {
        // Not while a child of this process is being started: it isn't known as such yet.
        _ = Child.known.withLockIfAvailable { known in
            let session = getsid(0), living = known
            func isOrphan(_ stat: ProcessStat) -> Bool { !living.contains(stat.pid) && stat.session != session }
            for _ in 0..<4096 {
                let pid = plimsoll_ended_child()
                guard pid > 0 else { return }
                // Another's comes first, and hides those behind it.
                guard let stat = ProcessTable.stat(of: pid), isOrphan(stat) else { return reapOthers(isOrphan) }
                guard plimsoll_reap(pid) == 0 else { return }
            }
        }
    }

    private static func reapOthers(_ isOrphan: (ProcessStat) -> Bool) {
        for stat in ProcessTable.all() where stat.parent == getpid() && stat.isOver && isOrphan(stat) {
            _ = plimsoll_reap(stat.pid)
        }
    }
}

extension Child {
    /// A process that was killed may take long to end, on a machine that is busy or in a group that is frozen: nobody is kept waiting, and no zombie is left.
    ///
    /// - Parameter file: its pidfd, closed afterwards.
    static func reapLater(_ file: Int32) {
        let isStarted = Thread.start("plimsoll-reap") {
            var status: Int32 = 0
            _ = plimsoll_ready(file, POLLIN, -1)
            _ = plimsoll_pidfd_wait(file, 0, &status)
            close(file)
        }
        if !isStarted { close(file) }
    }
}
