import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// The first process of a unit, started here or found running. A pidfd identifies the process, so another process
/// with the same pid is never mistaken for this one (K38).
///
/// The process outlives this object and the supervisor. May be used from any thread.
package final class Child: Sendable {
    /// The program to start, with environment and descriptors.
    package struct Launch: Sendable {
        /// The program's path and arguments. The path is the first element.
        package var command: [String]
        /// The complete environment.
        package var environment: [String: String] = [:]
        /// Working directory; `nil` for the supervisor's.
        package var directory: String?
        /// Descriptors that become standard output and standard error; `nil` for the supervisor's.
        package var output: Int32?
        package var errors: Int32?
        /// Descriptors that the program finds from 3 on, announced by `LISTEN_FDS` and its companions
        /// (sd_listen_fds(3)). At most `PLIMSOLL_MOST_KEPT`.
        package var kept: [(name: String, file: Int32)] = []
        /// The kernel's preference for killing the process when memory has run out, -1000 to 1000. Without a value
        /// the process would inherit the supervisor's protection.
        package var oomScoreAdjust = 0

        package init(_ command: [String]) { self.command = command }
    }

    /// The manner in which the process ended.
    package enum Ending: Sendable, Hashable {
        case exited(Int32)
        case killed(signal: Int32, dumpedCore: Bool)
        /// The process is not a child of ours, and only its parent can read the status.
        case gone
    }

    package let pid: Int32
    /// Readable when the process has ended.
    package let descriptor: Int32
    /// True if the process ran before and is the child of another process.
    package let isAdopted: Bool
    private let start: Mutex<UInt64?>
    private let outcome = Mutex<Ending?>(nil)
    /// Pids of children whose status the starting code has yet to read.
    static let known = Mutex<Set<Int32>>([])

    init(pid: Int32, descriptor: Int32, isAdopted: Bool, started: UInt64?) {
        (self.pid, self.descriptor, self.isAdopted) = (pid, descriptor, isAdopted)
        start = Mutex(started)
    }

    deinit {
        close(descriptor)
        // After the wait another child may have the pid.
        if !isAdopted, outcome.withLock({ $0 }) == nil { Self.known.withLock { _ = $0.remove(pid) } }
    }

    /// Takes over a running process.
    ///
    /// - Parameter started: the recorded start time, if known. Another process with the same pid is refused.
    package static func adopt(_ pid: Int32, started: UInt64? = nil) throws(ChildError) -> Child {
        guard pid != getpid() else { throw ChildError(.adopt(pid), EINVAL, "the process is the supervisor itself") }
        let file = plimsoll_pidfd_open(pid)
        guard file >= 0 else { throw ChildError(.adopt(pid), -file) }
        // Read the start time with the pidfd open, and trust the text only if the process has not ended since.
        // Otherwise the text may describe a later process with the same pid.
        let stat = ProcessTable.stat(of: pid), isOver = plimsoll_ready(file, POLLIN, 0) != 0
        guard let stat, !stat.isOver, !isOver else {
            close(file)
            // The process runs, and only the text can't be read now.
            throw ChildError(.adopt(pid), stat == nil && !isOver ? EAGAIN : ESRCH)
        }
        guard started == nil || started == stat.started else {
            close(file)
            throw ChildError(.adopt(pid), ESRCH, "the process has ended and another has its number")
        }
        return Child(pid: pid, descriptor: file, isAdopted: true, started: stat.started)
    }

    /// Start time in clock ticks since boot; `nil` if the time can't be read now, or could not be read before the
    /// process ended.
    package var started: UInt64? {
        start.withLock { start in
            // The pid is not reused until the process has been waited for.
            if start == nil, !isAdopted, Self.known.withLock({ $0.contains(pid) }) {
                start = ProcessTable.stat(of: pid)?.started
            }
            return start
        }
    }

    // MARK: End of the process

    /// The manner of the end; `nil` while the process runs.
    package var ending: Ending? { wait(blocking: false) }

    /// Waits until the process has ended.
    @discardableResult
    package func waitForEnd() -> Ending { wait(blocking: true) ?? .gone }

    /// Waits until the process has ended, for at most `limit`. Returns `nil` if the process still runs.
    package func waitForEnd(within limit: Duration) -> Ending? {
        _ = plimsoll_ready(descriptor, POLLIN, Int32(clamping: Int64(limit / .milliseconds(1))))
        return ending
    }

    private func wait(blocking: Bool) -> Ending? {
        // Wait outside the lock: other threads may ask in the meantime.
        if let ending = outcome.withLock({ $0 }) { return ending }
        let isOver = plimsoll_ready(descriptor, POLLIN, blocking ? -1 : 0) != 0
        guard isOver || blocking else { return nil }
        return outcome.withLock { known in
            if known != nil { return known }
            var status: Int32 = 0
            let result = isAdopted ? -ECHILD : waitOnce(&status)
            switch result {
            case 0: return nil
            case 1: known = .exited(status)
            case 2, 3: known = .killed(signal: status, dumpedCore: result == 3)
            // Not a child of ours, or a kernel that can't wait by descriptor (before Linux 5.4).
            case -ECHILD, -EINVAL: known = .gone
            // Retry later. Until waited for, the process is a zombie, and the pid is not reused.
            default: return nil
            }
            return known
        }
    }

    /// Waits for the process without blocking, and forgets the pid if the wait has succeeded or never will. One step:
    /// from then on another child may have the pid, and become known.
    private func waitOnce(_ status: inout Int32) -> Int32 {
        Self.known.withLock { pids in
            let result = plimsoll_pidfd_wait(descriptor, 0, &status)
            if result > 0 || result == -ECHILD || result == -EINVAL { pids.remove(pid) }
            return result
        }
    }

    /// Sends a signal to the process. Returns false if the process has ended. Allocates nothing.
    @discardableResult
    package func signal(_ number: Int32) -> Bool { plimsoll_pidfd_signal(descriptor, number) == 0 }
}

/// The reason why a process could not be started or taken over.
package struct ChildError: Error, Hashable, Sendable, CustomStringConvertible {
    package enum Act: Hashable, Sendable {
        /// Start of the program at this path.
        case start(String)
        case adopt(Int32)
    }

    package var act: Act
    /// The errno.
    package var number: Int32
    /// Further details, if known.
    package var detail: String?

    package init(_ act: Act, _ number: Int32, _ detail: String? = nil) {
        (self.act, self.number, self.detail) = (act, number, detail)
    }

    package var description: String {
        let what =
            switch act {
            case .start(let path): "cannot start \(path)"
            case .adopt(let pid): "cannot take over process \(pid)"
            }
        return "\(what): \(detail.map { "\($0): " } ?? "")\(String(cString: strerror(number)))"
    }
}

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
