import CPlimsollMemory
import Synchronization

/// The background tasks of a unit (the process, or a scene), their allowance, and their expiration.
///
/// Tasks are sharded by the thread that begins them, so that threads do not contend. State common to all tasks lies
/// in `gate`, which only transitions and sweeps touch. Each change of the gate is propagated to every shard within
/// the gate's lock. Locks are taken in that order, and no application code runs under a lock.
package final class BackgroundTaskRegistry: Sendable {
    struct Limits: Sendable {
        /// The unit's time in the background.
        var allowance = Duration.seconds(30)
        /// Time that tasks have after the allowance is used up.
        var grace = Duration.seconds(5)
        /// Maximum number of concurrent tasks. More indicate a leak, not work.
        var capacity = 1 << 20
    }

    /// Callbacks of other components. Called on the thread that detects the event, without a lock. The callbacks
    /// must not block.
    package struct Listeners: Sendable {
        /// The last task has ended in the background: the unit could be suspended.
        package var whenIdle: (@Sendable () -> Void)?
        /// Tasks may begin that might have been refused before.
        var whenOpened: (@Sendable () -> Void)?
        /// A gap has ended, and alarms may be late by the sleep of the host.
        var whenGapEnded: (@Sendable () -> Void)?
        /// The named tasks had not ended by the end of their grace, and were given up.
        var whenGivenUp: (@Sendable (ExpirationReason, [String]) -> Void)?
        /// A shutdown asks tasks to stop. Receives the names of the oldest tasks, and the number of tasks.
        var whenAsked: (@Sendable ([String], Int) -> Void)?
        /// A shutdown waits for tasks, and needs that much time. This callback may be slow.
        var whenTimeIsNeeded: (@Sendable (Duration) -> Void)?
    }

    private let currentLimits: Mutex<Limits>
    let alarms: Alarms
    let threads: HandlerThreads
    let shards: ContiguousArray<BackgroundTaskShard>
    let gate = Mutex(TaskGate())
    private let listeners = Mutex(Listeners())
    private let time: Timekeeper
    /// Number of tasks that may begin beyond the capacity assigned to shards. Relaxed: a count, assigned in
    /// portions.
    private let room: Atomic<Int>
    /// Held while places move from shards to `room` and on to a shard. Without this lock, a thread that finds all places
    /// on their way takes them for occupied. Acquired before a shard's lock.
    private let moving = Mutex(())
    let handovers: HandoverStore
    let notice: WorkNotice
    // Released on store and acquired on load, so that a thread that reads true also finds the carrier.
    private let carries = Atomic<Bool>(false)
    private let carrier = AtomicLazyReference<ContextCarrier>()
    private let dropped = Mutex<[BackgroundTaskStatus]>([])
    private static let mostLeaks = 64

    /// - Parameters:
    ///   - handovers: destination of handed-over work; for scenes, that of the process.
    ///   - notice: the notice to a supervisor's link; for scenes, that of the process.
    ///   - width: number of threads that may begin tasks without contention; a power of two.
    init(
        time: Timekeeper, alarms: Alarms, threads: HandlerThreads, limits: Limits = Limits(),
        handovers: HandoverStore? = nil, notice: WorkNotice = WorkNotice(), width: Int = 16
    ) {
        self.time = time
        self.alarms = alarms
        self.threads = threads
        self.notice = notice
        currentLimits = Mutex(limits)
        self.handovers = handovers ?? HandoverStore(wall: time.wall)
        room = Atomic(limits.capacity)
        shards = ContiguousArray((0..<width).map { _ in BackgroundTaskShard() })
        for shard in shards { shard.registry = self }
    }

    /// The limits in force. A leaf lock: may be read under the gate's lock.
    var limits: Limits { currentLimits.withLock { $0 } }

    var capacity: Int { limits.capacity }

    /// Sets new limits, which apply to tasks that begin and allowances that start from now on.
    func setLimits(_ limits: Limits) {
        let former = currentLimits.withLock { exchange(&$0, limits) }
        addRoom(limits.capacity - former.capacity)
        guard limits.capacity < former.capacity else { return }
        // The room becomes negative if more tasks run than now allowed: no task begins until enough have ended.
        moving.withLock { _ in for shard in shards { addRoom(shard.takeRoom(paysBack: true)) } }
    }

    func addRoom(_ count: Int) { room.wrappingAdd(count, ordering: .relaxed) }

    package func listen(_ change: (inout Listeners) -> Void) {
        // Replaced listeners are released after the lock.
        let former = listeners.withLock { listeners in
            let former = listeners
            change(&listeners)
            return former
        }
        withExtendedLifetime(former) {}
    }

    func notify(_ whom: (Listeners) -> (@Sendable () -> Void)?) { listeners.withLock { whom($0) }?() }
    func notifyGivenUp(_ reason: ExpirationReason, _ names: [String]) {
        listeners.withLock { $0.whenGivenUp }?(reason, names)
    }
    func notifyAsked(_ names: [String], _ count: Int) { listeners.withLock { $0.whenAsked }?(names, count) }
    var timeIsNeeded: (@Sendable (Duration) -> Void)? { listeners.withLock { $0.whenTimeIsNeeded } }

    /// Breaks the reference cycle when the owner is gone; tasks then end without the registry. Shards and registry
    /// retain each other until then, because a weak reference would slow every reference count of this object.
    package func detach() { for shard in shards { shard.registry = nil } }

    // MARK: One task

    package func begin(_ name: String, _ file: StaticString, _ line: UInt, handler: BackgroundTaskRecord.Handler?)
        -> BackgroundTask
    {
        let thread = plimsoll_thread_number()
        let shard = shards[Int(truncatingIfNeeded: thread >> 12 ^ thread >> 20) & (shards.count - 1)]
        let record = BackgroundTaskRecord(name, file, line, begun: time.elapsed(), shard: shard, handler: handler)
        var refusal = shard.begin(record)
        // Other threads of the shard may take the new room first. Each takes one place, so some thread gets further.
        while refusal == .tooMany, makeRoom(in: shard) { refusal = shard.begin(record) }
        if let refusal {
            if refusal == .tooMany { shard.countRefused() }
            // No other thread has a reference to the record yet.
            record.refusal = refusal
            record.enter(.ended)
            record.handler = nil
        } else {
            notice.workBegins()
        }
        return BackgroundTask(record)
    }

    /// Assigns more capacity to `shard`. If none is left, reclaims unused capacity of other shards first.
    private func makeRoom(in shard: BackgroundTaskShard) -> Bool {
        moving.withLock { _ in
            var count = takeRoom()
            if count == 0 {
                for shard in shards { addRoom(shard.takeRoom()) }
                count = takeRoom()
            }
            shard.addRoom(count)
            return count > 0
        }
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

    /// Wraps `handler` so that it runs with the context of this call, if context capture is on. Costs one load
    /// otherwise.
    package func carryingContext(
        _ handler: @escaping @Sendable (BackgroundTask, ExpirationReason) -> Void
    ) -> @Sendable (BackgroundTask, ExpirationReason) -> Void {
        guard carries.load(ordering: .acquiring), let carrier = carrier.load() else { return handler }
        let restore = carrier.capture()
        return { task, reason in restore { handler(task, reason) } }
    }

    /// Sets the context capture. Returns false if one was set before.
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

    // MARK: All tasks

    var tally: BackgroundTaskShard.Tally {
        shards.reduce(into: BackgroundTaskShard.Tally()) { $0 += $1.tally }
    }

    /// Number of running tasks. By index: without optimization, an iterator allocates, and the pressure loop asks.
    package var count: Int {
        var (index, sum) = (0, 0)
        while index < shards.count { (index, sum) = (index + 1, sum + shards[index].count) }
        return sum
    }

    /// True if any task has neither ended nor been given up, or if handed-over work is not accepted yet.
    // The tasks first: a task that ends meanwhile has made its offers before.
    package var hasLiveTasks: Bool { shards.contains { $0.tally.count > 0 } || gate.withLock { $0.offers } > 0 }

    /// Status of all tasks, oldest first.
    package var statuses: [BackgroundTaskStatus] { statuses(atMost: .max) }

    /// Returns the status of the oldest tasks, at most `most`.
    func statuses(atMost most: Int) -> [BackgroundTaskStatus] {
        let now = time.elapsed()
        let records = shards.flatMap { $0.records(atMost: most) }.enumerated()
        let sorted = records.sorted { ($0.element.begun, $0.offset) < ($1.element.begun, $1.offset) }
        return sorted.prefix(most).map { $0.element.status(at: now) }
    }

    /// The last tasks dropped without an end, oldest first.
    var leaks: [BackgroundTaskStatus] { dropped.withLock { $0 } }

    func leaked(_ record: BackgroundTaskRecord) {
        let status = record.status(at: time.elapsed())
        dropped.withLock { leaks in
            if leaks.count >= Self.mostLeaks { leaks.removeFirst() }
            leaks.append(status)
        }
    }

    /// Propagates the state of the gate to every shard.
    func applyGate(_ gate: TaskGate, expiring: Bool = false) {
        let refusal = gate.refusal, isWatched = gate.inBackgroundSince != nil || gate.ownEnd != nil
        for shard in shards { shard.applyGate(refusal, isWatched: isWatched, expiring: expiring) }
    }
}

/// Carries the context of the call that begins a task to the handler.
final class ContextCarrier: Sendable {
    /// Captures the context. Returns a function that runs its argument with the captured context.
    typealias Capture = @Sendable () -> @Sendable (_ body: () -> Void) -> Void

    let capture: Capture
    init(_ capture: @escaping Capture) { self.capture = capture }
}
