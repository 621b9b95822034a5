import Synchronization

/// All background tasks of a manager, and their expiration.
final class BackgroundTaskRegistry: Sendable {
    private struct State {
        var nextID: UInt64 = 1
        /// Weak tokens: one nobody holds any more is a leak to report, not a reason to keep it.
        var running: [UInt64: Running] = [:]
        var expiry: Expiry?
        /// Set once the manager has shut down: nothing may be begun any more.
        var isClosed = false
        var leaked: [BackgroundTaskStatus] = []
        var waiting: [Parker] = []
    }

    private struct Running {
        let record: BackgroundTaskRecord
        weak var token: BackgroundTask?
    }

    private struct Expiry {
        var reason: ExpirationReason
        var deadline: Duration
    }

    private let state = Mutex(State())
    private let threads: HandlerThreads
    private let time: Timekeeper
    /// More tasks than this at once are a leak, not work.
    private let capacity: Int
    private static let mostLeaks = 64

    init(time: Timekeeper, threads: HandlerThreads, capacity: Int = 1 << 20) {
        self.time = time
        self.threads = threads
        self.capacity = capacity
    }

    func begin(_ name: String, origin: String, handler: BackgroundTaskRecord.Handler?) -> BackgroundTask {
        let now = time.elapsed()
        return state.withLock { state in
            let refusal: String? =
                if state.isClosed {
                    "background task \"\(name)\" begun after shutdown"
                } else if state.running.count >= capacity {
                    "background task \"\(name)\" is one more than the \(capacity) that may run at once"
                } else if let expiry = state.expiry, expiry.deadline > now {
                    "background task \"\(name)\" begun while tasks are being expired (\(expiry.reason.rawValue))"
                } else {
                    nil
                }
            let record = BackgroundTaskRecord(
                id: state.nextID, name: name, origin: origin, begun: now, refusal: refusal, handler: refusal == nil ? handler : nil)
            state.nextID += 1
            let token = BackgroundTask(record: record, registry: self)
            if refusal == nil { state.running[record.id] = Running(record: record, token: token) }
            return token
        }
    }

    func end(_ record: BackgroundTaskRecord) {
        guard record.advance(from: .active, to: .ended) || record.advance(from: .expiring, to: .ended) else { return }
        forget(record)
    }

    /// The last reference to a token went away.
    func dropped(_ record: BackgroundTaskRecord) {
        // While it expires its handler's work may go on without the token; the deadline ends it.
        guard record.advance(from: .active, to: .ended) else { return }
        let status = record.status(at: time.elapsed())
        state.withLock { state in
            if state.leaked.count >= Self.mostLeaks { state.leaked.removeFirst() }
            state.leaked.append(status)
        }
        forget(record)
    }

    private func forget(_ record: BackgroundTaskRecord) {
        // The handler and what it captures are released here, after the lock.
        let handler = record.handler.withLock { handler in
            let taken = handler
            handler = nil
            return taken
        }
        let (running, waiting) = state.withLock { ($0.running.removeValue(forKey: record.id), $0.waiting) }
        for parker in waiting { parker.unpark() }
        withExtendedLifetime((handler, running)) {}
    }

    func timeRemaining(_ record: BackgroundTaskRecord) -> Duration? {
        guard record.phase == .expiring else { return nil }
        let deadline = state.withLock { $0.expiry?.deadline }
        return deadline.map { max(.zero, $0 - time.elapsed()) }
    }

    var statuses: [BackgroundTaskStatus] {
        let now = time.elapsed()
        let records = state.withLock { $0.running.values.map(\.record) }
        return records.sorted { $0.id < $1.id }.map { $0.status(at: now) }
    }

    /// The last tasks dropped without end, oldest first.
    var leaks: [BackgroundTaskStatus] { state.withLock { $0.leaked } }

    func close() { state.withLock { $0.isClosed = true } }

    /// Asks every running task to stop: all handlers at once, under one deadline (T6).
    ///
    /// - Returns: the number of tasks asked. `stragglers` names those still running at the deadline.
    func expire(_ reason: ExpirationReason, within grace: Duration) -> Int {
        let deadline = time.elapsed() + grace
        // Tokens are taken strongly, so that none is dropped while its handler runs, and leave the lock before they may die.
        let running = state.withLock { state in
            state.expiry = Expiry(reason: reason, deadline: deadline)
            return state.running.values.map { ($0.record, $0.token) }
        }
        let expiring = running.filter { record, token in token != nil && record.advance(from: .active, to: .expiring) }
        for case (let record, let token?) in expiring {
            switch record.handler.withLock({ $0 }) {
            case .blocking(let handler): threads.run { handler(token, reason) }
            case .asynchronous(let handler): threads.run { await handler(token, reason) }
            case nil: break
            }
        }
        return expiring.count
    }

    /// Blocks until none that was asked to stop still runs, at most for `grace`.
    func awaitExpiry(within grace: Duration) {
        let parker = Parker()
        let deadline = time.elapsed() + grace
        state.withLock { $0.waiting.append(parker) }
        defer { state.withLock { $0.waiting.removeAll { $0 === parker } } }
        while isExpiring {
            let left = deadline - time.elapsed()
            if left <= .zero || !parker.park(atMost: left) { return }
        }
    }

    /// Gives up what is still expiring; call it at the deadline.
    ///
    /// - Returns: the names of the tasks given up.
    func giveUpStragglers() -> [String] {
        let stragglers = state.withLock { state in
            state.expiry = nil
            return state.running.values.map(\.record).filter { $0.phase == .expiring }
        }
        return stragglers.sorted { $0.id < $1.id }.compactMap { record in
            guard record.advance(from: .expiring, to: .givenUp) else { return nil }
            forget(record)
            return record.name
        }
    }

    /// Whether any task that was asked to stop still runs.
    var isExpiring: Bool { state.withLock { $0.running.values.contains { $0.record.phase == .expiring } } }
}
