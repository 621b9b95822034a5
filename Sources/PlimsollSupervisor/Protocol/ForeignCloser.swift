import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// Closes descriptors that other processes have chosen, on threads that may hang. Such a close takes as long as the
/// other process likes. Examples are a lingering TCP socket, and a file of a file system whose server does not answer.
///
/// Each owner has at most one thread at a time, so the descriptors of one owner never wait for those of another.
/// There are at most `mostThreads` threads. An owner is full when `mostWaiting` of its descriptors wait: its sockets
/// are not read until the queue is shorter.
package final class ForeignCloser: Sendable {
    /// The closer of this process; descriptors belong to the process as a whole.
    package static let shared = ForeignCloser()

    /// Greatest number of threads. Sixteen owners would have to collude to delay other owners' descriptors.
    static let mostThreads = 16
    /// Number of waiting descriptors of one owner at which its sockets are no longer read. One more message adds at
    /// most 253.
    static let mostWaiting = 512

    private struct Job {
        let file: Int32
        let isOwnSocket: Bool
    }

    private struct OwnerQueue {
        var jobs: ArraySlice<Job> = []
        /// True while a thread closes a descriptor of this owner, or is about to.
        var isTaken = false
    }

    private struct State {
        var queues: [String: OwnerQueue] = [:]
        /// Owners whose next descriptor a thread may take.
        var ready: ArraySlice<String> = []
        var threads = 0
        /// True once the first thread has been started. The first thread parks instead of ending, so that a single
        /// close starts no thread.
        var hasFirst = false
        var isFirstIdle = false
        var waiting = 0
    }

    private enum Hand { case none, unpark, start(isFirst: Bool) }

    private let state = Mutex(State())
    private let parker = Parker()
    private let closing: @Sendable (_ file: Int32, _ isOwnSocket: Bool) -> Void

    /// - Parameter closing: closes a descriptor; may block for any time.
    package init(closing: @escaping @Sendable (Int32, Bool) -> Void = { plimsoll_close_foreign($0, $1 ? 1 : 0) }) {
        self.closing = closing
    }

    /// Starts the first thread, so that later closes need no new thread.
    ///
    /// - Returns: false if the process may start no more threads.
    package func prepare() -> Bool {
        let isNeeded = state.withLock { state in
            guard !state.hasFirst else { return false }
            (state.hasFirst, state.threads) = (true, state.threads + 1)
            return true
        }
        return !isNeeded || start(isFirst: true)
    }

    /// Closes `files` asynchronously. Never blocks.
    ///
    /// - Parameters:
    ///   - owner: the unit to blame for a slow close; empty for strangers.
    ///   - isOwnSocket: true for sockets of this process alone. Unread messages in them may hold more descriptors.
    package func close(_ files: some Collection<Int32>, of owner: String, isOwnSocket: Bool = false) {
        guard !files.isEmpty else { return }
        // The other end sees the end of the connection now. `shutdown` closes no descriptor.
        if isOwnSocket { for file in files { shutdown(file, Int32(SHUT_RDWR)) } }
        let hand = state.withLock { state in
            state.queues[owner, default: OwnerQueue()].jobs.append(
                contentsOf: files.lazy.map { Job(file: $0, isOwnSocket: isOwnSocket) })
            state.waiting += files.count
            if state.queues[owner]?.isTaken == false {
                state.queues[owner]?.isTaken = true
                state.ready.append(owner)
            }
            return Self.hand(&state)
        }
        switch hand {
        case .none: break
        case .unpark: parker.unpark()
        case .start(let isFirst): _ = start(isFirst: isFirst)
        }
    }

    /// Returns true if too many descriptors of `owner`, or of all owners, wait: receive no more from `owner`.
    package func isFull(_ owner: String) -> Bool {
        state.withLock { state in
            // Owners with an empty queue continue until half of the process's descriptor limit is waiting.
            let own = state.queues[owner]?.jobs.count ?? 0, quarter = Self.openLimit / 4
            return own >= Self.mostWaiting || (own > 0 && state.waiting >= quarter) || state.waiting >= quarter * 2
        }
    }

    /// Number of descriptors that this process may have open (RLIMIT_NOFILE).
    static var openLimit: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        return Int(min(limit.rlim_cur, 1 << 20))
    }

    /// Number of descriptors that were handed over and are not closed yet.
    package var waiting: Int { state.withLock { $0.waiting } }
    package var threads: Int { state.withLock { $0.threads } }

    /// Selects the thread that serves the ready owners.
    ///
    /// - Parameter besidesCaller: true if the calling thread itself serves one of the owners.
    private static func hand(_ state: inout State, besidesCaller: Bool = false) -> Hand {
        guard state.ready.count > (besidesCaller ? 1 : 0) else { return .none }
        if state.isFirstIdle {
            state.isFirstIdle = false
            return .unpark
        }
        // At the limit, the next thread that finishes serves the remaining owners.
        guard state.threads < mostThreads else { return .none }
        state.threads += 1
        defer { state.hasFirst = true }
        return .start(isFirst: !state.hasFirst)
    }

    private func start(isFirst: Bool) -> Bool {
        let isStarted = Thread.start("plimsoll-closer") { [self] in work(isFirst: isFirst) }
        if !isStarted {
            // The start is retried with the next descriptor. Until then the queues keep their jobs.
            state.withLock { state in
                state.threads -= 1
                if isFirst { state.hasFirst = false }
            }
        }
        return isStarted
    }

    private func work(isFirst: Bool) {
        while true {
            guard let (owner, job) = next(isFirst: isFirst) else {
                guard isFirst else { return }
                parker.park()
                continue
            }
            closing(job.file, job.isOwnSocket)
            let hand = state.withLock { state in
                state.waiting -= 1
                if state.queues[owner]?.jobs.isEmpty == false {
                    state.ready.append(owner)
                } else {
                    state.queues[owner] = nil
                }
                return Self.hand(&state, besidesCaller: true)
            }
            if case .start(let isFirst) = hand {
                _ = start(isFirst: isFirst)
            } else if case .unpark = hand {
                parker.unpark()
            }
        }
    }

    private func next(isFirst: Bool) -> (owner: String, job: Job)? {
        state.withLock { state in
            guard let owner = state.ready.popFirst(), let job = state.queues[owner]?.jobs.popFirst() else {
                if isFirst { state.isFirstIdle = true } else { state.threads -= 1 }
                return nil
            }
            return (owner, job)
        }
    }
}
