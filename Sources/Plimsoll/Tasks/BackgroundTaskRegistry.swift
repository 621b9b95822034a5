import CPlimsollMemory
import Synchronization

/// The background tasks of a unit (the process, or a scene), their allowance, and their expiration.
///
/// Tasks are kept in shards by the thread that begins them, so that threads do not meet. What holds for all of them lies in `gate`, which only
/// edges and sweeps touch; each change of it is decreed to every shard within its lock. Locks are taken in that order, and nobody's code runs under one.
final class BackgroundTaskRegistry: Sendable {
    struct Limits: Sendable {
        /// The unit's time in the background.
        var allowance = Duration.seconds(30)
        /// How long tasks have once that is spent.
        var grace = Duration.seconds(5)
        /// More tasks than this at once are a leak, not work.
        var capacity = 1 << 20
    }

    /// What others are told. Called on whichever thread finds out, without a lock; they must not keep it.
    struct Listeners: Sendable {
        /// The last task has ended in the background: the unit could be suspended.
        var whenIdle: (@Sendable () -> Void)?
        /// Tasks may begin that may not have begun before.
        var whenOpened: (@Sendable () -> Void)?
        /// These had not ended by the end of their grace and were given up.
        var whenGivenUp: (@Sendable (ExpirationReason, [String]) -> Void)?
        /// A shutdown asks tasks to stop: the names of the oldest, and how many there are.
        var whenAsked: (@Sendable ([String], Int) -> Void)?
        /// A shutdown waits for tasks, and needs so much time. May take its time.
        var whenTimeIsNeeded: (@Sendable (Duration) -> Void)?
    }

    private let currentLimits: Mutex<Limits>
    let alarms: Alarms
    let threads: HandlerThreads
    let shards: ContiguousArray<BackgroundTaskShard>
    let gate = Mutex(TaskGate())
    private let listeners = Mutex(Listeners())
    private let time: Timekeeper
    /// How many tasks may begin that no shard has room for yet. Relaxed: a count, given out in portions.
    private let room: Atomic<Int>
    let handovers: HandoverDesk
    // Releasing when it is set and acquiring when it is asked, so that whoever sees it set finds the carrier.
    private let carries = Atomic<Bool>(false)
    private let carrier = AtomicLazyReference<ContextCarrier>()
    private let dropped = Mutex<[BackgroundTaskStatus]>([])
    private static let mostLeaks = 64

    /// - Parameters:
    ///   - handovers: where work goes that is handed over; the process's, for scenes.
    ///   - width: how many threads may begin tasks without meeting; a power of two.
    init(time: Timekeeper, alarms: Alarms, threads: HandlerThreads, limits: Limits = Limits(), handovers: HandoverDesk? = nil, width: Int = 16) {
        self.time = time
        self.alarms = alarms
        self.threads = threads
        currentLimits = Mutex(limits)
        self.handovers = handovers ?? HandoverDesk(wall: time.wall)
        room = Atomic(limits.capacity)
        shards = ContiguousArray((0..<width).map { _ in BackgroundTaskShard() })
        for shard in shards { shard.book = self }
    }

    /// The bounds in force. A leaf lock: may be read under the gate's.
    var limits: Limits { currentLimits.withLock { $0 } }

    var capacity: Int { limits.capacity }

    /// Sets other bounds, which hold for tasks that begin and for allowances that begin to run from now on.
    func setLimits(_ limits: Limits) {
        let former = currentLimits.withLock { current in
            defer { current = limits }
            return current
        }
        // May fall below zero where more tasks run than may now: none begins until enough have ended.
        room.wrappingAdd(limits.capacity - former.capacity, ordering: .relaxed)
    }

    func listen(_ change: (inout Listeners) -> Void) { listeners.withLock { change(&$0) } }
    func tell(_ whom: (Listeners) -> (@Sendable () -> Void)?) { listeners.withLock { whom($0) }?() }
    func tellGivenUp(_ reason: ExpirationReason, _ names: [String]) { listeners.withLock { $0.whenGivenUp }?(reason, names) }
    func tellAsked(_ names: [String], _ count: Int) { listeners.withLock { $0.whenAsked }?(names, count) }
    var timeIsNeeded: (@Sendable (Duration) -> Void)? { listeners.withLock { $0.whenTimeIsNeeded } }

    /// Its owner is gone: from now on tasks end by themselves. Shards and book keep each other alive until then; a weak reference would make each
    /// count of references to this object slower.
    func detach() { for shard in shards { shard.book = nil } }

    // MARK: One task

    func begin(_ name: String, _ file: StaticString, _ line: UInt, handler: BackgroundTaskRecord.Handler?) -> BackgroundTask {
        let thread = plimsoll_thread_number()
        let shard = shards[Int(truncatingIfNeeded: thread >> 12 ^ thread >> 20) & (shards.count - 1)]
        let record = BackgroundTaskRecord(name, file, line, begun: time.elapsed(), shard: shard, handler: handler)
        var refusal = shard.begin(record)
        if refusal == .tooMany, makeRoom(in: shard) { refusal = shard.begin(record) }
        if let refusal {
            if refusal == .tooMany { shard.countRefused() }
            // Nobody else knows it yet.
            record.refusal = refusal
            record.enter(.ended)
            record.handler = nil
        }
        return BackgroundTask(record)
    }

    /// Gives `shard` room for some more, in need what others have and do not use.
    private func makeRoom(in shard: BackgroundTaskShard) -> Bool {
        var count = takeRoom()
        if count == 0 {
            for shard in shards { room.wrappingAdd(shard.takeRoom(), ordering: .relaxed) }
            count = takeRoom()
        }
        shard.addRoom(count)
        return count > 0
    }

    private func takeRoom() -> Int {
        var free = room.load(ordering: .relaxed)
        while free > 0 {
            let count = min(max(1, min(1024, capacity / (8 * shards.count))), free)
            let (exchanged, original) = room.compareExchange(expected: free, desired: free - count, ordering: .relaxed)
            if exchanged { return count }
            free = original
        }
        return 0
    }

    /// Wraps `handler` so that it sees what surrounds this call, if somebody wants that; costs one load if nobody does.
    func carryingContext(
        _ handler: @escaping @Sendable (BackgroundTask, ExpirationReason) -> Void
    ) -> @Sendable (BackgroundTask, ExpirationReason) -> Void {
        guard carries.load(ordering: .acquiring), let carrier = carrier.load() else { return handler }
        let restore = carrier.capture()
        return { task, reason in restore { handler(task, reason) } }
    }

    /// False if somebody has before.
    func carryContext(_ capture: @escaping ContextCarrier.Capture) -> Bool {
        let mine = ContextCarrier(capture)
        defer { carries.store(true, ordering: .releasing) }
        return carrier.storeIfNil(mine) === mine
    }

    func timeRemaining(_ record: BackgroundTaskRecord) -> Duration? {
        let running = alarms.heartbeat.running
        return gate.withLock { gate in
            switch record.phase {
            case .active: gate.allowanceLeft(of: limits.allowance, at: running)
            case .expiring: gate.sweep.map { max(.zero, $0.deadline - running) }
            case .ended, .givenUp: nil
            }
        }
    }

    // MARK: All of them

    var tally: BackgroundTaskShard.Tally {
        shards.reduce(into: BackgroundTaskShard.Tally()) { $0 += $1.tally }
    }

    /// Whether any task has neither ended nor been given up, or handed over work that is not accepted yet.
    var hasLiveTasks: Bool { gate.withLock { $0.offers } > 0 || shards.contains { $0.tally.count > 0 } }

    /// Oldest first.
    var statuses: [BackgroundTaskStatus] { statuses(atMost: .max) }

    /// The oldest, at most so many.
    func statuses(atMost most: Int) -> [BackgroundTaskStatus] {
        let now = time.elapsed()
        let records = shards.flatMap { $0.records(atMost: most) }.enumerated()
        let sorted = records.sorted { ($0.element.begun, $0.offset) < ($1.element.begun, $1.offset) }
        return sorted.prefix(most).map { $0.element.status(at: now) }
    }

    /// The last tasks dropped without end, oldest first.
    var leaks: [BackgroundTaskStatus] { dropped.withLock { $0 } }

    func leaked(_ record: BackgroundTaskRecord) {
        let status = record.status(at: time.elapsed())
        dropped.withLock { leaks in
            if leaks.count >= Self.mostLeaks { leaks.removeFirst() }
            leaks.append(status)
        }
    }

    /// Says in every shard what holds from now on.
    func decree(_ gate: TaskGate, condemning: Bool = false) {
        let refusal = gate.refusal, isWatched = gate.inBackgroundSince != nil || gate.ownEnd != nil
        for shard in shards { shard.decree(refusal, isWatched: isWatched, condemning: condemning) }
    }
}

/// What carries that which surrounds a begin to its handler.
final class ContextCarrier: Sendable {
    /// Captures, and returns what runs its argument with what was captured.
    typealias Capture = @Sendable () -> @Sendable (_ body: () -> Void) -> Void

    let capture: Capture
    init(_ capture: @escaping Capture) { self.capture = capture }
}
