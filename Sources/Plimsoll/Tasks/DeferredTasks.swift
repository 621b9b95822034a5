import Synchronization

/// A snapshot of one deferred task, for reports.
public struct DeferredTaskStatus: Sendable, Hashable {
    /// Id under which the task was scheduled.
    public var id: String
    /// Time until the task may begin. Zero if the task may begin once the other conditions allow.
    public var earliest: Duration
    /// Highest level of pressure at which the task begins.
    public var whenAtMost: PressureLevel
    /// Number of attempts that did not finish.
    public var attempts: Int
    /// True if the task is running now.
    public var isRunning: Bool
}

/// Work that may wait for a better time. Deferred tasks wait for a given moment, for low pressure, and for
/// background time. Few run at once.
///
/// A request stays until its work has returned. Work that throws, or that is asked to stop and throws, is retried:
/// after 30 s, then after twice the delay each time, at most an hour. Each run is a background task of the same
/// name, and can expire.
public final class DeferredTasks: Sendable {
    public typealias Work = @Sendable (BackgroundTask) async throws -> Void

    private struct State {
        var queue = DeferredQueue()
        var works: [String: Work] = [:]
        var running: [String: Run] = [:]
        var most = (foreground: 2, background: 1)
        /// The alarm for the next due time, and the time that the host had slept when the alarm was set.
        var alarm: (due: Duration, asleep: Duration, alarm: Alarms.Alarm)?
        var store: KeptState?

        /// Number of runs that count. Work that was given up but continues does not block others.
        var width: Int { running.values.count { $0.task?.isActive ?? true } }
    }

    private struct Run {
        let order: UInt64
        var task: BackgroundTask?
    }

    private let state = Mutex(State())
    private let tasks: BackgroundTaskRegistry
    private let published: PublishedLevel
    private let time: Timekeeper
    /// Most time by which an alarm may be late.
    private static let slack = Duration.milliseconds(10)

    init(tasks: BackgroundTaskRegistry, published: PublishedLevel, time: Timekeeper) {
        self.tasks = tasks
        self.published = published
        self.time = time
    }

    /// The machine's time, sleep included: a wait of an hour goes on while the host sleeps.
    private var now: Duration { time.elapsed() + time.asleep() }

    // MARK: Scheduling

    /// Sets the work for `id`; at start-up, before or after scheduling. A later call replaces the work.
    public func handle(_ id: String, _ work: @escaping Work) {
        // The replaced work is released after the lock.
        let old = state.withLock { $0.works.updateValue(work, forKey: id) }
        withExtendedLifetime(old) {}
        poll()
    }

    /// Requests one run of `id`, and replaces an earlier request for `id`. A run under way continues, and another
    /// run follows.
    ///
    /// Writes to the store, if one is set, before returning.
    ///
    /// - Parameters:
    ///   - id: id of the registered work.
    ///   - earliest: minimum delay, kept across restarts by the time of day.
    ///   - level: highest level of pressure at which the run begins.
    public func schedule(_ id: String, earliest: Duration = .zero, whenAtMost level: PressureLevel = .normal) {
        let now = now, wall = time.wall()
        let store = state.withLock { state in
            state.queue.ask(id, after: max(.zero, earliest), level, now: now, wall: wall)
            return state.store
        }
        store?.save()
        poll()
    }

    /// Cancels the request for `id`. A run under way continues, and is not retried.
    public func cancel(_ id: String) {
        let store = state.withLock { $0.queue.remove(id) ? $0.store : nil }
        store?.save()
    }

    /// All requests, in the order of their due times.
    public var pending: [DeferredTaskStatus] {
        let now = now
        return state.withLock { state in
            state.queue.inOrder.map {
                DeferredTaskStatus(
                    id: $0.id, earliest: max(.zero, $0.due - now), whenAtMost: $0.level, attempts: $0.attempts,
                    isRunning: state.running[$0.id] != nil)
            }
        }
    }

    /// Sets the number of concurrent runs. The defaults are 2 and 1.
    public func limit(foreground: Int, background: Int) {
        state.withLock { $0.most = (max(0, foreground), max(0, background)) }
        poll()
    }

    /// Keeps requests in `store` from now on. Adopts the requests of an earlier run, except under ids that this run has
    /// scheduled or cancelled.
    ///
    /// Requests that cannot be read stay as they are, and `store` is not used. A later call may succeed.
    ///
    /// - Returns: the reason why the stored requests could not be adopted or written; `nil` on success.
    @discardableResult
    public func persist(in store: any StateStore) -> String? {
        let kept = KeptState(StateName.deferred, in: store) { [weak self] in self?.encoded ?? [] }
        let (old, problem, isRead) = kept.load(DeferredQueue.decode)
        guard isRead else { return problem }
        let now = now, wall = time.wall()
        let writer = state.withLock { state in
            state.queue.takeOver(old ?? [], now: now, wall: wall)
            // One writer for all stores: no earlier state is written after a later one.
            let writer = state.store ?? kept
            state.store = writer
            return writer
        }
        writer.move(to: store)
        let unwritten = writer.save()
        poll()
        return problem ?? unwritten
    }

    private var encoded: [UInt8] { state.withLock { $0.queue.encoded } }

    // MARK: Running

    /// Starts the tasks that may start, and sets an alarm for the next due time. Call whenever an obstacle to
    /// starting has gone.
    func poll() { while startDue() {} }

    /// Starts due tasks. Returns true if another task has become due meanwhile.
    private func startDue() -> Bool {
        let level = published.level
        let isOpen = tasks.mayBegin, isInBackground = tasks.isInBackground
        let (starting, isDue) = state.withLock { state in
            let now = now
            var starting: [(ask: DeferredQueue.Ask, work: Work)] = []
            let free = (isInBackground ? state.most.background : state.most.foreground) - state.width
            if isOpen, free > 0 {
                for ask in state.queue.inOrder
                where ask.due <= now && level <= ask.level && state.running[ask.id] == nil {
                    guard starting.count < free else { break }
                    guard let work = state.works[ask.id] else { continue }
                    state.running[ask.id] = Run(order: ask.order)
                    starting.append((ask, work))
                }
            }
            let next = state.queue.nextDue(after: now)
            setAlarm(&state, next)
            return (starting, next.map { $0 <= self.now } ?? false)
        }
        for (ask, work) in starting { start(ask, work) }
        return isDue
    }

    /// Sets the alarm anew after a gap, because alarms do not count the sleep of the host. Starts no task: the alarm
    /// rings once the timers are released.
    func gapEnded() {
        state.withLock { state in
            let due = state.alarm?.due
            setAlarm(&state, due)
        }
    }

    private func setAlarm(_ state: inout State, _ next: Duration?) {
        // Two readings of the clocks differ a little, so an alarm may ring a moment before the due time. Such an alarm
        // is over, and another one is needed.
        if let current = state.alarm, current.due == next, !current.alarm.isOver,
            time.asleep() - current.asleep < Self.slack
        {
            return
        }
        state.alarm?.alarm.cancel()
        state.alarm = nil
        guard let next else { return }
        while true {
            let asleep = time.asleep(), now = time.elapsed() + asleep
            let alarm = tasks.alarms.set(.timer, after: max(.zero, next - now)) { [weak self] in self?.poll() }
            state.alarm = (next, asleep, alarm)
            // The delay counts from the moment the alarm is set, so the alarm is late by the time since `now` was
            // read.
            if self.now - now < Self.slack { return }
            alarm.cancel()
        }
    }

    private func start(_ ask: DeferredQueue.Ask, _ work: @escaping Work) {
        // Not awaited: the task ends with its work, which expires with the other tasks.
        Task { [self] in
            var outcome = DeferredQueue.Outcome.refused
            do {
                try await tasks.withTask(ask.id, #fileID, #line, work, onExpiration: nil) { task in
                    outcome = .unfinished
                    state.withLock { $0.running[ask.id]?.task = task }
                }
                outcome = .finished
            } catch {
                // The run was refused or did not finish, as noted in `outcome`.
            }
            ended(ask, outcome)
        }
    }

    private func ended(_ ask: DeferredQueue.Ask, _ outcome: DeferredQueue.Outcome) {
        let now = now, wall = time.wall()
        let (run, store) = state.withLock { state in
            state.queue.ended(ask, outcome, now: now, wall: wall)
            return (state.running.removeValue(forKey: ask.id), state.store)
        }
        withExtendedLifetime(run) {}
        // If the process ends before this write, the work is done once more. The write reads the requests of this
        // object, and so keeps the object alive.
        if let store {
            tasks.threads.run { [self] () -> Void in
                store.save()
                withExtendedLifetime(self) {}
            }
        }
        poll()
    }
}
