import Synchronization

/// Calls set for a time, made by a thread of their own that lives while any is set.
///
/// Two scales: deadlines count running time, so that none passes while the process is frozen; timers count the machine's time, so that they keep their
/// phase, and are held back on the way back from a gap until the rest is in order (C60, T30).
final class Alarms: Sendable {
    /// What an alarm's time is measured by.
    enum Scale { case deadline, timer }

    /// One call to come.
    final class Alarm: Sendable {
        /// `nil` once it has been called or cancelled, so that a cancelled alarm keeps nothing alive.
        private let body: Mutex<(@Sendable () -> Void)?>
        private let cancelled: CancelledCount

        fileprivate init(_ cancelled: CancelledCount, _ body: @escaping @Sendable () -> Void) {
            self.cancelled = cancelled
            self.body = Mutex(body)
        }

        /// It is not called any more, unless it is being called now. Releases what the call would have used.
        func cancel() {
            // What the body captured is released after the lock.
            guard take() != nil else { return }
            cancelled.value.add(1, ordering: .relaxed)
        }

        /// The call to make, for exactly one caller.
        fileprivate func take() -> (@Sendable () -> Void)? { body.withLock { $0.take() } }
        fileprivate var isCancelled: Bool { body.withLock { $0 == nil } }
    }

    /// Number of cancelled alarms that are still in a queue.
    fileprivate final class CancelledCount: Sendable {
        // Relaxed: it says when sweeping the queues is worth it; it orders nothing.
        let value = Atomic<Int>(0)
    }

    private struct State {
        var deadlines = AlarmQueue<Alarm>()
        var timers = AlarmQueue<Alarm>()
        var isHeld = false
        var hasThread = false
        /// A task of the cooperative pool looks, as no thread could be started.
        var hasTask = false

        var isEmpty: Bool { deadlines.isEmpty && timers.isEmpty }

        /// Takes out cancelled alarms that are next, so that none keeps the thread looking, and all of them once they
        /// are the greater part.
        mutating func sweep(_ cancelled: CancelledCount) {
            var gone = 0
            while deadlines.first?.isCancelled == true, deadlines.popFirst(dueBy: .max) != nil { gone += 1 }
            while timers.first?.isCancelled == true, timers.popFirst(dueBy: .max) != nil { gone += 1 }
            let before = deadlines.count + timers.count
            if cancelled.value.load(ordering: .relaxed) - gone > max(Alarms.fewCancelled, before / 2) {
                deadlines.removeAll(where: \.isCancelled)
                timers.removeAll(where: \.isCancelled)
                gone += before - deadlines.count - timers.count
            }
            cancelled.value.subtract(gone, ordering: .relaxed)
        }

        /// Time until the next look; `nil` if nothing is set.
        func wait(_ running: Duration, _ now: Duration) -> Duration? {
            let timer = isHeld ? nil : timers.next.map { max(.zero, $0 - now) }
            guard let deadline = deadlines.next else { return timer }
            return min(timer ?? .max, max(.zero, deadline - running), Alarms.stride)
        }
    }

    let heartbeat: Heartbeat
    let time: Timekeeper
    private let state = Mutex(State())
    private let cancelled = CancelledCount()
    private let parker = Parker()
    private let startThread: Thread.Starter
    private let onGap = Mutex<(@Sendable (RunningGap) -> Void)?>(nil)

    /// The longest time between two looks while a deadline is set: by so much may it be too early after a gap.
    static let stride = Duration.milliseconds(250)
    /// How long the thread stays when nothing is set.
    private static let linger = Duration.seconds(10)
    /// Up to so many cancelled alarms stay in the queues until they are next.
    static let fewCancelled = 64
    /// The time between two looks without a thread.
    private static let pause = Duration.milliseconds(10)

    /// - Parameter startThread: starts the thread that makes the calls.
    init(time: Timekeeper, heartbeat: Heartbeat, startThread: @escaping Thread.Starter = Thread.start) {
        self.time = time
        self.heartbeat = heartbeat
        self.startThread = startThread
        guard let onStep = time.onStep else { return }
        onStep { [weak self] in _ = self?.look() }
        _ = look()
    }

    /// Has `body` called once `delay` has passed, on this thread, which it must not keep.
    ///
    /// - Complexity: O(log n).
    @discardableResult
    func set(_ scale: Scale, after delay: Duration, _ body: @escaping @Sendable () -> Void) -> Alarm {
        let alarm = Alarm(cancelled, body)
        let base = scale == .deadline ? heartbeat.running : time.elapsed()
        let starts = state.withLock { state in
            state.sweep(cancelled)
            switch scale {
            case .deadline: state.deadlines.insert(alarm, due: base + delay)
            case .timer: state.timers.insert(alarm, due: base + delay)
            }
            let starts = !state.hasThread && time.onStep == nil
            if starts { state.hasThread = true }
            return starts
        }
        if starts { start() } else { parker.unpark() }
        return alarm
    }

    /// Number of alarms set so far. For tests.
    var total: UInt64 { state.withLock { $0.deadlines.order + $0.timers.order } }

    /// Number of alarms in the queues: those that have not gone off, and some cancelled ones. For tests.
    var pending: Int { state.withLock { $0.deadlines.count + $0.timers.count } }

    /// Whether time is moved by hand, and alarms go off on the thread that moves it.
    var isByHand: Bool { time.onStep != nil }

    /// Who is told of a gap before any timer goes off. It must not keep the thread, and lets the timers go on by `release`.
    func whenGapEnds(_ body: @escaping @Sendable (RunningGap) -> Void) { onGap.withLock { $0 = body } }

    /// A gap that anybody's beat has found.
    func noticed(_ gap: RunningGap) {
        guard let body = onGap.withLock({ $0 }) else { return }
        state.withLock { $0.isHeld = true }
        body(gap)
    }

    /// Timers go on.
    func release() {
        state.withLock { $0.isHeld = false }
        if time.onStep == nil { parker.unpark() } else { _ = look() }
    }

    // MARK: Looking

    private func start() {
        if startThread("plimsoll-time", { self.run() }) { return }
        let isNew = state.withLock { state in
            state.hasThread = false
            defer { state.hasTask = true }
            return !state.hasTask
        }
        // The process may start no more threads (RLIMIT_NPROC, pids.max). Until it may, a task looks.
        if isNew { Task { @concurrent in await self.lookWithoutThread() } }
    }

    /// Looks until there is a thread for it or nothing is set. Keeps its thread of the pool for no longer than `pause`
    /// at a time.
    private func lookWithoutThread() async {
        while true {
            let wait = look()
            let (starts, leaves) = state.withLock { state in
                let leaves = state.hasThread || state.isEmpty
                if leaves { state.hasTask = false }
                if !leaves { state.hasThread = true }
                return (!leaves, leaves)
            }
            if leaves { return }
            if starts { start() }
            parker.park(atMost: min(wait ?? Self.pause, Self.pause))
            await Task.yield()
        }
    }

    /// Waits for `parker` as `Parker.park` does, for a caller that an alarm is to wake: where no thread makes the calls
    /// of alarms, the caller makes them itself.
    ///
    /// - Returns: the time waited if nothing woke the caller, zero otherwise.
    @discardableResult
    func wait(on parker: Parker, atMost limit: Duration? = nil) -> Duration {
        let hasThread = time.onStep != nil || state.withLock { $0.hasThread }
        let limit = hasThread ? limit : min(limit ?? Self.pause, Self.pause)
        if parker.park(atMost: limit) { return .zero }
        if !hasThread { _ = look() }
        return limit ?? .zero
    }

    private func run() {
        while true {
            let wait = look()
            let woken = parker.park(atMost: wait ?? Self.linger)
            guard wait == nil, !woken else { continue }
            let leaves = state.withLock { state in
                guard state.isEmpty else { return false }
                state.hasThread = false
                return true
            }
            if leaves { return }
        }
    }

    /// Makes the calls that are due; the time until the next look, `nil` if nothing is set.
    private func look() -> Duration? {
        if let gap = heartbeat.beat(.alarms, next: nil) { noticed(gap) }
        let running = heartbeat.running, now = time.elapsed()
        while let alarm = state.withLock({ $0.deadlines.popFirst(dueBy: running) ?? ($0.isHeld ? nil : $0.timers.popFirst(dueBy: now)) }) {
            if let body = alarm.take() { body() } else { cancelled.value.subtract(1, ordering: .relaxed) }
        }
        let wait = state.withLock { state in
            state.sweep(cancelled)
            return state.wait(heartbeat.running, time.elapsed())
        }
        // Whoever moves time by hand says by doing so what is a gap.
        if let gap = heartbeat.beat(.alarms, next: time.onStep == nil ? wait : Self.stride) { noticed(gap) }
        return wait
    }
}
