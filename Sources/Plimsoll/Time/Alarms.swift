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
        fileprivate let body: @Sendable () -> Void
        // Relaxed: whoever cancels beside the call may be too late, as with any timer.
        private let cancelled = Atomic<Bool>(false)

        fileprivate init(_ body: @escaping @Sendable () -> Void) { self.body = body }

        /// It is not called any more, unless it is being called now.
        func cancel() { cancelled.store(true, ordering: .relaxed) }
        fileprivate var isCancelled: Bool { cancelled.load(ordering: .relaxed) }
    }

    private struct State {
        var deadlines = AlarmQueue<Alarm>()
        var timers = AlarmQueue<Alarm>()
        var isHeld = false
        var hasThread = false

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
    private let parker = Parker()
    private let onGap = Mutex<(@Sendable (RunningGap) -> Void)?>(nil)

    /// The longest time between two looks while a deadline is set: by so much may it be too early after a gap.
    static let stride = Duration.milliseconds(250)
    /// How long the thread stays when nothing is set.
    private static let linger = Duration.seconds(10)

    init(time: Timekeeper, heartbeat: Heartbeat) {
        self.time = time
        self.heartbeat = heartbeat
        guard let onStep = time.onStep else { return }
        onStep { [weak self] in _ = self?.look() }
        _ = look()
    }

    /// Has `body` called once `delay` has passed, on this thread, which it must not keep.
    ///
    /// - Complexity: O(log n).
    @discardableResult
    func set(_ scale: Scale, after delay: Duration, _ body: @escaping @Sendable () -> Void) -> Alarm {
        let alarm = Alarm(body)
        let base = scale == .deadline ? heartbeat.running : time.elapsed()
        let starts = state.withLock { state in
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

    /// Number of alarms that have not gone off, cancelled ones included. For tests.
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

    private func start() {
        let started = Thread.start("plimsoll-time") { self.run() }
        if !started { state.withLock { $0.hasThread = false } }
    }

    private func run() {
        while true {
            let wait = look()
            let woken = parker.park(atMost: wait ?? Self.linger)
            guard wait == nil, !woken else { continue }
            let leaves = state.withLock { state in
                guard state.deadlines.isEmpty, state.timers.isEmpty else { return false }
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
            if !alarm.isCancelled { alarm.body() }
        }
        let wait = state.withLock { $0.wait(heartbeat.running, time.elapsed()) }
        // Whoever moves time by hand says by doing so what is a gap.
        if let gap = heartbeat.beat(.alarms, next: time.onStep == nil ? wait : Self.stride) { noticed(gap) }
        return wait
    }
}
