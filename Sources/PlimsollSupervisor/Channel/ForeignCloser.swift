import CPlimsollSupervisor
import Glibc
import Plimsoll
import Synchronization

/// Closes descriptors that other processes have chosen, on threads that may hang: such a close takes as long as the other process likes (a lingering TCP
/// socket, a file of a file system whose server does not answer).
///
/// Each owner has one thread at a time, so one owner's descriptors never wait for another's, and there are at most `mostThreads` threads. An owner whose
/// descriptors are closed too slowly is full after `mostWaiting` of them: its sockets are not read until there is room again.
package final class ForeignCloser: Sendable {
    /// The closer of this process, as descriptors are the process's.
    package static let shared = ForeignCloser()

    /// Threads at once. Sixteen owners must act together to have others' descriptors wait.
    static let mostThreads = 16
    /// Descriptors of one owner that may wait before its sockets rest; one more message adds at most 253.
    static let mostWaiting = 512

    private struct Job {
        let file: Int32
        let isOwnSocket: Bool
    }

    private struct Lane {
        var jobs: ArraySlice<Job> = []
        /// A thread closes a descriptor of this owner, or is about to.
        var isTaken = false
    }

    private struct State {
        var lanes: [String: Lane] = [:]
        /// Owners that a thread may take up.
        var ready: ArraySlice<String> = []
        var threads = 0
        /// The first thread stays, parked, so that a single close starts no thread.
        var hasFirst = false
        var isFirstIdle = false
        var waiting = 0
    }

    private enum Hand { case none, unpark, start(isFirst: Bool) }

    private let state = Mutex(State())
    private let parker = Parker()
    private let closing: @Sendable (_ file: Int32, _ isOwnSocket: Bool) -> Void

    /// - Parameter closing: closes a descriptor, however long that takes.
    package init(closing: @escaping @Sendable (Int32, Bool) -> Void = { plimsoll_close_foreign($0, $1 ? 1 : 0) }) { self.closing = closing }

    /// Starts the first thread, so that later closes need none.
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

    /// Closes `files`, soon, and never waits for that.
    ///
    /// - Parameters:
    ///   - owner: whose doing a slow close would be; empty for strangers.
    ///   - isOwnSocket: whether they are sockets of this process alone, in which unread messages may hold more descriptors.
    package func close(_ files: some Collection<Int32>, of owner: String, isOwnSocket: Bool = false) {
        guard !files.isEmpty else { return }
        // The other end sees the end now; this closes nothing.
        if isOwnSocket { for file in files { shutdown(file, Int32(SHUT_RDWR)) } }
        let hand = state.withLock { state in
            state.lanes[owner, default: Lane()].jobs.append(contentsOf: files.lazy.map { Job(file: $0, isOwnSocket: isOwnSocket) })
            state.waiting += files.count
            if state.lanes[owner]?.isTaken == false {
                state.lanes[owner]?.isTaken = true
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

    /// Whether so many descriptors wait, of `owner` or of all, that none more should be received from `owner`.
    package func isFull(_ owner: String) -> Bool {
        state.withLock { state in
            // Owners with nothing to close go on until half of what this process may open is waiting.
            let own = state.lanes[owner]?.jobs.count ?? 0, quarter = Self.openLimit / 4
            return own >= Self.mostWaiting || (own > 0 && state.waiting >= quarter) || state.waiting >= quarter * 2
        }
    }

    /// How many descriptors this process may have open (RLIMIT_NOFILE).
    static var openLimit: Int {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        return Int(min(limit.rlim_cur, 1 << 20))
    }

    /// How many descriptors were handed over and are not closed yet.
    package var waiting: Int { state.withLock { $0.waiting } }
    package var threads: Int { state.withLock { $0.threads } }

    /// Who takes up what is ready.
    ///
    /// - Parameter besidesCaller: whether the caller itself takes up one owner.
    private static func hand(_ state: inout State, besidesCaller: Bool = false) -> Hand {
        guard state.ready.count > (besidesCaller ? 1 : 0) else { return .none }
        if state.isFirstIdle {
            state.isFirstIdle = false
            return .unpark
        }
        // What no thread can take up now, the next one that is done does.
        guard state.threads < mostThreads else { return .none }
        state.threads += 1
        defer { state.hasFirst = true }
        return .start(isFirst: !state.hasFirst)
    }

    private func start(isFirst: Bool) -> Bool {
        let isStarted = Thread.start("plimsoll-closer") { [self] in work(isFirst: isFirst) }
        if !isStarted {
            // Tried again with the next descriptor; until then the lanes keep what they have.
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
                if state.lanes[owner]?.jobs.isEmpty == false { state.ready.append(owner) } else { state.lanes[owner] = nil }
                return Self.hand(&state, besidesCaller: true)
            }
            if case .start(let isFirst) = hand { _ = start(isFirst: isFirst) } else if case .unpark = hand { parker.unpark() }
        }
    }

    private func next(isFirst: Bool) -> (owner: String, job: Job)? {
        state.withLock { state in
            guard let owner = state.ready.popFirst(), let job = state.lanes[owner]?.jobs.popFirst() else {
                if isFirst { state.isFirstIdle = true } else { state.threads -= 1 }
                return nil
            }
            return (owner, job)
        }
    }
}
