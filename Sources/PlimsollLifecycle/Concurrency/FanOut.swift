import Plimsoll
import Synchronization

/// Calls many handlers under one deadline, a bounded number at a time, on the manager's threads (C30, T6, T7).
///
/// A handler that blocks delays the others only briefly. When a stride passes without progress, more handlers are
/// started.
final class FanOut: Sendable {
    struct Handler: Sendable {
        var name: String
        var origin = ""
        var body: @Sendable () async throws -> Void
    }

    struct Outcome: Sendable {
        var overran: [HandlerTiming] = []
        var unreached: [String] = []
        var failures: [String] = []
        var slowest: [HandlerTiming] = []
        /// True if a later stage of the same change repeats the work. Failures here are reported; only the outcome of
        /// the repeat counts.
        var isProvisional = false

        var isClean: Bool { isProvisional || (overran.isEmpty && unreached.isEmpty && failures.isEmpty) }
    }

    /// The order in which handlers are called.
    enum Order {
        /// Starts handlers in the order of registration, several at a time. Handlers not started by the deadline are
        /// not called.
        case forward
        /// Calls handlers one after the other, from the last to the first. All are called, however late: paused work
        /// must not stay paused (C6).
        case reverse

        var width: Int { self == .forward ? 8 : 1 }
    }

    private struct State {
        var next = 0
        var finished = 0
        var running: [Int: Duration] = [:]
        var seen = (next: 0, finished: 0)
        var tasks: [Task<Void, Never>] = []
        var outcome = Outcome()
        var continuation: CheckedContinuation<Outcome, Never>?
        /// The alarm of the deadline, while the call waits.
        var alarm: Alarms.Alarm?
        /// True once the deadline has passed and handlers must stop. Tasks that start later are cancelled too.
        var isCancelled = false
    }

    /// Number of running handlers from which no further threads are spent on handlers that block. Up to `order.width`
    /// more may start at once just below.
    private static let mostRunners = 64
    private static let mostSlowest = 8
    /// The least time for forward handlers. A handler that used up the time of the whole change cannot prevent the
    /// others from being called (T6).
    static let leastBudget = Duration.milliseconds(200)

    private let handlers: [Handler]
    private let order: Order
    private let alarms: Alarms
    private let threads: HandlerThreads
    private let state = Mutex(State())

    private init(_ handlers: [Handler], _ order: Order, _ alarms: Alarms, _ threads: HandlerThreads) {
        self.handlers = order == .forward ? handlers : handlers.reversed()
        self.order = order
        self.alarms = alarms
        self.threads = threads
    }

    /// Calls all handlers. Returns when all have returned, at `deadline` (running time) at the latest.
    ///
    /// In forward order, handlers have `leastBudget` even if the deadline has already passed.
    static func call(
        _ handlers: [Handler], _ order: Order, until deadline: Duration, _ alarms: Alarms, _ threads: HandlerThreads
    ) async -> Outcome {
        guard !handlers.isEmpty else { return Outcome() }
        let fanOut = FanOut(handlers, order, alarms, threads)
        let left = max(order == .forward ? leastBudget : .zero, deadline - alarms.heartbeat.running)
        return await withCheckedContinuation { continuation in
            // The continuation is stored before the alarm is set. An alarm that found none would leave the call
            // without a deadline.
            fanOut.state.withLock { $0.continuation = continuation }
            fanOut.start(min(order.width, handlers.count))
            fanOut.setAlarm(after: left)
            fanOut.watch()
        }
    }

    private func setAlarm(after left: Duration) {
        let alarm = alarms.set(.deadline, after: left) { self.end() }
        let isOver = state.withLock { state in
            if state.continuation != nil { state.alarm = alarm }
            return state.continuation == nil
        }
        // All handlers have returned meanwhile, or the alarm has fired.
        if isOver { alarm.cancel() }
    }

    private func start(_ count: Int) {
        for _ in 0..<count {
            let task = threads.run { await self.work() }
            let isLate = state.withLock { state in
                state.tasks.append(task)
                return state.isCancelled
            }
            if isLate { task.cancel() }
        }
    }

    private func work() async {
        while let index = begin() {
            var failure: String?
            do { try await handlers[index].body() } catch { failure = "\(handlers[index].name): \(error)" }
            guard let (continuation, alarm) = finish(index, failure) else { continue }
            alarm?.cancel()
            continuation.resume(returning: state.withLock { $0.outcome })
        }
    }

    private func begin() -> Int? {
        let now = alarms.heartbeat.running
        return state.withLock { state in
            guard state.next < handlers.count else { return nil }
            state.running[state.next] = now
            state.next += 1
            return state.next - 1
        }
    }

    /// Records that a handler has returned.
    ///
    /// - Returns: The continuation that waits for all handlers and the alarm of the deadline, if this handler was the
    ///   last.
    private func finish(_ index: Int, _ failure: String?) -> (CheckedContinuation<Outcome, Never>, Alarms.Alarm?)? {
        let now = alarms.heartbeat.running
        return state.withLock { state in
            let took = now - (state.running.removeValue(forKey: index) ?? now)
            state.finished += 1
            if let failure { state.outcome.failures.append(failure) }
            let slowest = state.outcome.slowest
            if slowest.count < Self.mostSlowest || took > slowest[slowest.count - 1].took {
                let place = slowest.firstIndex { $0.took < took } ?? slowest.count
                state.outcome.slowest.insert(timing(index, took), at: place)
                if slowest.count == Self.mostSlowest { state.outcome.slowest.removeLast() }
            }
            guard state.finished == handlers.count, let continuation = state.continuation else { return nil }
            defer { (state.continuation, state.alarm) = (nil, nil) }
            return (continuation, state.alarm)
        }
    }

    private func timing(_ index: Int, _ took: Duration, isFinished: Bool = true) -> HandlerTiming {
        HandlerTiming(name: handlers[index].name, origin: handlers[index].origin, took: took, isFinished: isFinished)
    }

    /// Checks periodically if running handlers hold up the rest.
    private func watch() {
        alarms.set(.deadline, after: Alarms.stride) { [weak self] in self?.poll() }
    }

    private func poll() {
        let more: Int? = state.withLock { state in
            guard state.continuation != nil || order == .reverse, state.next < handlers.count else { return nil }
            defer { state.seen = (state.next, state.finished) }
            guard state.seen == (state.next, state.finished), state.running.count < Self.mostRunners else { return 0 }
            return min(order.width, handlers.count - state.next)
        }
        guard let more else { return }
        start(more)
        watch()
    }

    /// Ends the call at the deadline. Names the handlers that still run, and cancels them in forward order.
    private func end() {
        let now = alarms.heartbeat.running
        let (continuation, outcome, tasks): (CheckedContinuation<Outcome, Never>?, Outcome, [Task<Void, Never>]) =
            state.withLock { state in
                guard let continuation = state.continuation else { return (nil, Outcome(), []) }
                (state.continuation, state.alarm) = (nil, nil)
                state.outcome.overran = state.running.sorted { $0.key < $1.key }.map {
                    timing($0.key, now - $0.value, isFinished: false)
                }
                state.outcome.unreached = handlers[state.next...].map(\.name)
                guard order == .forward else { return (continuation, state.outcome, []) }
                state.next = handlers.count
                state.isCancelled = true
                return (continuation, state.outcome, state.tasks)
            }
        for task in tasks { task.cancel() }
        continuation?.resume(returning: outcome)
    }
}

/// The time that one handler took.
public struct HandlerTiming: Sendable, Hashable {
    /// The name of the registration.
    public var name: String
    /// File and line of its registration.
    public var origin: String
    /// The time taken. For a handler that overran, the time it had been running.
    public var took: Duration
    /// True if the handler had returned.
    public var isFinished = true
}

/// A flag that is turned on once.
final class Switch: Sendable {
    // Released and acquired, so that the work done before `turnOn` is visible.
    private let flag = Atomic<Bool>(false)
    func turnOn() { flag.store(true, ordering: .releasing) }
    var isOn: Bool { flag.load(ordering: .acquiring) }
}
