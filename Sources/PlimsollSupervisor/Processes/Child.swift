import CPlimsollSupervisor
import Glibc
import Synchronization

/// A unit's first process: started here or found running, and from then on known by a descriptor that no other process ever gets (K38).
///
/// It is never ended because this object or the supervisor is. May be used from any thread.
package final class Child: Sendable {
    /// What to start.
    package struct Launch: Sendable {
        /// The program's path and its arguments; the path is the first of them, too.
        package var command: [String]
        /// All of its variables.
        package var environment: [String: String] = [:]
        /// Where it starts; `nil` for where the supervisor is.
        package var directory: String?
        /// Descriptors that become its standard output and error; `nil` for the supervisor's.
        package var output: Int32?
        package var errors: Int32?
        /// What it finds from descriptor 3 on, as `LISTEN_FDS` and its like tell it (sd_listen_fds(3)); at most `PLIMSOLL_MOST_KEPT`.
        package var kept: [(name: String, file: Int32)] = []
        /// How readily the kernel kills it when memory has run out, -1000 to 1000. Without a word it would have the supervisor's own protection.
        package var oomScoreAdjust = 0

        package init(_ command: [String]) { self.command = command }
    }

    /// How it came to its end.
    package enum Ending: Sendable, Hashable {
        case exited(Int32)
        case killed(signal: Int32, dumpedCore: Bool)
        /// It is no child of ours, and its status is its parent's to know.
        case gone
    }

    package let pid: Int32
    /// Ready to be read when it has ended.
    package let descriptor: Int32
    /// It ran before, and is another's child.
    package let isAdopted: Bool
    private let start: Mutex<UInt64?>
    private let outcome = Mutex<Ending?>(nil)
    /// The numbers of children whose status is still to be taken, by whoever started them.
    static let known = Mutex<Set<Int32>>([])

    init(pid: Int32, descriptor: Int32, isAdopted: Bool, started: UInt64?) {
        (self.pid, self.descriptor, self.isAdopted) = (pid, descriptor, isAdopted)
        start = Mutex(started)
    }

    deinit {
        close(descriptor)
        if !isAdopted { Self.known.withLock { _ = $0.remove(pid) } }
    }

    /// Takes a process that already runs.
    ///
    /// - Parameter started: when it was started, if somebody wrote that down: another process with its number is refused.
    package static func adopt(_ pid: Int32, started: UInt64? = nil) throws(ChildError) -> Child {
        guard pid != getpid() else { throw ChildError(.adopt(pid), EINVAL, "that is the supervisor itself") }
        let file = plimsoll_pidfd_open(pid)
        guard file >= 0 else { throw ChildError(.adopt(pid), -file) }
        // Read once it is held, and believed only if it has not ended since: then it was its text, and not that of the next one with its number.
        let stat = ProcessTable.stat(of: pid), isOver = plimsoll_ready(file, POLLIN, 0) != 0
        guard let stat, !stat.isOver, !isOver else {
            close(file)
            // It runs, and only its text can't be read now.
            throw ChildError(.adopt(pid), stat == nil && !isOver ? EAGAIN : ESRCH)
        }
        guard started == nil || started == stat.started else {
            close(file)
            throw ChildError(.adopt(pid), ESRCH, "another process has that number now")
        }
        return Child(pid: pid, descriptor: file, isAdopted: true, started: stat.started)
    }

    /// When it was started, in clock ticks since the machine was; `nil` if that can't be read now, or it had ended before it could be.
    package var started: UInt64? {
        start.withLock { start in
            // As long as it is not waited for, its number is its own.
            if start == nil, !isAdopted, Self.known.withLock({ $0.contains(pid) }) { start = ProcessTable.stat(of: pid)?.started }
            return start
        }
    }

    // MARK: Its end

    /// How it ended; `nil` while it runs.
    package var ending: Ending? { wait(blocking: false) }

    /// Waits for its end.
    @discardableResult
    package func waitForEnd() -> Ending { wait(blocking: true) ?? .gone }

    /// Waits for its end, but no longer than `limit`; `nil` if it still runs.
    package func waitForEnd(within limit: Duration) -> Ending? {
        _ = plimsoll_ready(descriptor, POLLIN, Int32(clamping: Int64(limit / .milliseconds(1))))
        return ending
    }

    private func wait(blocking: Bool) -> Ending? {
        // Not inside the lock: others may ask meanwhile.
        if let ending = outcome.withLock({ $0 }) { return ending }
        if isAdopted || blocking {
            let isOver = plimsoll_ready(descriptor, POLLIN, blocking ? -1 : 0) != 0
            guard isOver || blocking else { return nil }
        }
        return outcome.withLock { known in
            if known != nil { return known }
            var status: Int32 = 0
            let result = isAdopted ? -ECHILD : plimsoll_pidfd_wait(descriptor, 0, &status)
            switch result {
            case 0: return nil
            case 1: known = .exited(status)
            case 2, 3: known = .killed(signal: status, dumpedCore: result == 3)
            // No child of ours, or a kernel that waits for no descriptor (before Linux 5.4).
            case -ECHILD, -EINVAL: known = .gone
            // To be asked again: until it is waited for, it is a zombie, and its number is no other's.
            default: return nil
            }
            // Its number may be another's from now on.
            if !isAdopted { Self.known.withLock { _ = $0.remove(pid) } }
            return known
        }
    }

    /// Sends it a signal; false if it has ended. Allocates nothing.
    @discardableResult
    package func signal(_ number: Int32) -> Bool { plimsoll_pidfd_signal(descriptor, number) == 0 }
}

/// Why a process could not be started or taken over.
package struct ChildError: Error, Hashable, Sendable, CustomStringConvertible {
    package enum Act: Hashable, Sendable {
        /// To start this program.
        case start(String)
        case adopt(Int32)
    }

    package var act: Act
    /// The errno.
    package var number: Int32
    /// What more is known.
    package var detail: String?

    package init(_ act: Act, _ number: Int32, _ detail: String? = nil) { (self.act, self.number, self.detail) = (act, number, detail) }

    package var description: String {
        let what =
            switch act {
            case .start(let path): "cannot start \(path)"
            case .adopt(let pid): "cannot take over process \(pid)"
            }
        return "\(what): \(detail.map { "\($0): " } ?? "")\(String(cString: strerror(number)))"
    }
}
