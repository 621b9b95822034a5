import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// Orphaned processes that become this process's children, for example when the supervisor is the first process of a
/// container. No other process waits for them. As zombies they would count against pids.max until no process can be
/// forked any more.
enum Orphans {
    static var areOurs: Bool { plimsoll_inherits_children() != 0 }

    /// Waits for orphans that have ended. Children of other code in this process are left to that code: units and
    /// their helpers have sessions of their own, and other children share the session of this program.
    static func reap() {
        // Skip while a child is being started, since that child is not recorded as known yet.
        _ = Child.known.withLockIfAvailable { known in
            let session = getsid(0), living = known
            func isOrphan(_ stat: ProcessStat) -> Bool { !living.contains(stat.pid) && stat.session != session }
            for _ in 0..<4096 {
                let pid = plimsoll_ended_child()
                guard pid > 0 else { return }
                // A child of other code comes first in the queue, and hides those behind.
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
    /// Reaps a killed process on a thread of its own, so that no caller waits and no zombie is left. On a busy
    /// machine or in a frozen group, the end may take long.
    ///
    /// - Parameter file: the pidfd, which is closed afterwards.
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
