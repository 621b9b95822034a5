import Synchronization

/// What is known of one deferred task. A value for reports.
public struct DeferredTaskStatus: Sendable, Hashable {
    /// What it was scheduled as.
    public var id: String
    /// Time until it may begin; zero if it may as soon as the rest allows it.
    public var earliest: Duration
    /// It begins at no higher level of pressure.
    public var whenAtMost: PressureLevel
    /// How often it has been begun and not finished.
    public var attempts: Int
    /// Whether it runs now.
    public var isRunning: Bool
}

/// Work that may wait for a better time: not before some moment, not under pressure, not when the unit's time in the background is spent, few at once.
///
/// A request stays until its work has returned. Work that throws, or is asked to stop and throws for it, is tried again later: after 30 s, then after
/// twice as long each time, at most an hour. It runs as a background task of the same name, and expires like any.
public final class DeferredTasks: Sendable {
    public typealias Work = @Sendable (BackgroundTask) async throws -> Void

    private struct State {
        var queue = DeferredQueue()
        var works: [String: Work] = [:]
        var running: [String: Run] = [:]
        var most = (foreground: 2, background: 1)
        var alarm: (due: Duration, alarm: Alarms.Alarm)?
        var store: KeptState?

        /// How many run that still count: work that was given up and goes on nonetheless holds nobody up.
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

    init(tasks: BackgroundTaskRegistry, published: PublishedLevel, time: Timekeeper) {
        self.tasks = tasks
        self.published = published
        self.time = time
    }

    /// The machine's time, sleep included: what was to wait an hour has waited it while the host slept.
    private var now: Duration { time.elapsed() + time.asleep() }

    // MARK: Asking

    /// Says what is to be done for `id`; at start-up, before or after it is scheduled. A later one replaces it.
    public func handle(_ id: String, _ work: @escaping Work) {
        // What it replaces is released after the lock.
        let old = state.withLock { $0.works.updateValue(work, forKey: id) }
        withExtendedLifetime(old) {}
        look()
    }

    /// Asks for one run of `id`, in place of an earlier request for it. A run under way goes on, and another follows.
    ///
    /// Writes to the store, if one is set, before it returns.
    ///
    /// - Parameters:
    ///   - id: what was registered under that name.
    ///   - earliest: time that must pass before, across restarts too, there by the time of day.
    ///   - level: it begins at no higher level of pressure.
    public func schedule(_ id: String, earliest: Duration = .zero, whenAtMost level: PressureLevel = .normal) {
        let now = now, wall = time.wall()
        let store = state.withLock { state in
            state.queue.ask(id, after: max(.zero, earliest), level, now: now, wall: wall)
            return state.store
        }
        store?.save()
        look()
    }

    /// Takes the request for `id` back. A run under way goes on, and is not tried again.
    public func cancel(_ id: String) {
        let store = state.withLock { $0.queue.remove(id) ? $0.store : nil }
        store?.save()
    }

    /// All requests, in the order in which they become due.
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

    /// How many run at once: 2 and 1 unless this is called.
    public func limit(foreground: Int, background: Int) {
        state.withLock { $0.most = (max(0, foreground), max(0, background)) }
        look()
    }

    /// Keeps requests in `store` from now on, and takes over those an earlier run left there, unless they have been replaced already.
    ///
    /// - Returns: why what lay there could not be taken over, or nothing can be written; `nil` if all is well.
    @discardableResult
    public func persist(in store: any StateStore) -> String? {
        let kept = KeptState(StateName.deferred, in: store) { [weak self] in self?.encoded ?? [] }
        let (old, problem) = kept.load(DeferredQueue.decode)
        let now = now, wall = time.wall()
        state.withLock { state in
            state.queue.takeOver(old ?? [], now: now, wall: wall)
            state.store = kept
        }
        let unwritten = kept.save()
        look()
        return problem ?? unwritten
    }

    private var encoded: [UInt8] { state.withLock { $0.queue.encoded } }

    // MARK: Running

    /// Starts what may start, and has itself called when the next becomes due. To be called whenever something that stood against it has gone.
    func look() { while startDue() {} }

    /// Whether another has become due meanwhile.
    private func startDue() -> Bool {
        let level = published.level
        let isOpen = tasks.mayBegin, isInBackground = tasks.isInBackground
        let (starting, isDue) = state.withLock { state in
            let now = now
            var starting: [(ask: DeferredQueue.Ask, work: Work)] = []
            let free = (isInBackground ? state.most.background : state.most.foreground) - state.width
            if isOpen, free > 0 {
                for ask in state.queue.inOrder where ask.due <= now && level <= ask.level && state.running[ask.id] == nil {
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

    private func setAlarm(_ state: inout State, _ next: Duration?) {
        if state.alarm?.due == next { return }
        state.alarm?.alarm.cancel()
        state.alarm = nil
        guard let next else { return }
        while true {
            let now = now
            let alarm = tasks.alarms.set(.timer, after: max(.zero, next - now)) { [weak self] in self?.look() }
            state.alarm = (next, alarm)
            // An alarm counts from when it is set, so it is late by as much as time has moved since it was asked.
            if self.now - now < .milliseconds(10) { return }
            alarm.cancel()
        }
    }

    private func start(_ ask: DeferredQueue.Ask, _ work: @escaping Work) {
        // Nobody waits for it: it ends with its work, which expires with the other tasks.
        Task { [self] in
            var outcome = DeferredQueue.Outcome.refused
            do {
                try await tasks.withTask(ask.id, #fileID, #line, work, onExpiration: nil) { task in
                    outcome = .unfinished
                    state.withLock { $0.running[ask.id]?.task = task }
                }
                outcome = .finished
            } catch {
                // Refused or unfinished, as noted.
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
        // Should the process end before it is written, the work is done once more.
        if let store { tasks.threads.run { store.save() } }
        look()
    }
}

extension ResourceManager {
    /// Work that may wait for a better time.
    public var deferred: DeferredTasks { parts.deferred }
}
