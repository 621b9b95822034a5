import Synchronization

/// Timed calls, made by a separate thread that lives while any alarm is set.
///
/// There are two scales. Deadlines count running time, so that none expires while the process is frozen. Timers
/// count the machine's time, so that they keep their phase. After a gap, timers are held back until the process has
/// resumed (C60, T30).
package final class Alarms: Sendable {
    /// The time by which an alarm is measured.
    package enum Scale { case deadline, timer }

    /// One scheduled call.
    package final class Alarm: Sendable {
        /// A struct: in a generic type such as `Mutex`, each access wraps a bare closure once more.
        fileprivate struct Call { let body: @Sendable () -> Void }
        /// `nil` once the call has been made or cancelled, so that a cancelled alarm keeps nothing alive.
        private let call: Mutex<Call?>
        private let cancelled: CancelledCount

        fileprivate init(_ cancelled: CancelledCount, _ body: @escaping @Sendable () -> Void) {
            self.cancelled = cancelled
            call = Mutex(Call(body: body))
        }

        /// Cancels the call, unless the call is being made now. Releases the captured objects.
        package func cancel() {
            // The body's captures are released after the lock.
            guard take() != nil else { return }
            cancelled.value.add(1, ordering: .relaxed)
        }

        /// Returns the call to make, to exactly one caller.
        fileprivate func take() -> Call? { call.withLock { $0.take() } }
        /// True once the call has been cancelled or begun. An alarm that is still in a queue was cancelled then.
        var isOver: Bool { call.withLock { $0 == nil } }
    }

    /// Number of cancelled alarms that are still in a queue.
    fileprivate final class CancelledCount: Sendable {
        // Relaxed: a hint when sweeping the queues is worthwhile; orders nothing.
        let value = Atomic<Int>(0)
    }

    private struct State {
        var deadlines = AlarmQueue<Alarm>()
        var timers = AlarmQueue<Alarm>()
        /// Number of gaps that were noticed and not released.
        var gaps = 0
        /// True while a thread makes the calls or is being started.
        var hasThread = false
        /// True while that thread runs. A thread that is being started may yet be refused.
        var isThreadRunning = false
        /// True if a task of the cooperative pool makes the calls, because no thread could be started.
        var hasTask = false

        var isEmpty: Bool { deadlines.isEmpty && timers.isEmpty }
        /// True while timers are held back.
        var isHeld: Bool { gaps > 0 }

        /// Removes cancelled alarms that are next, so that none causes wake-ups of the thread. Removes all
        /// cancelled alarms once they are the majority.
        mutating func sweep(_ cancelled: CancelledCount) {
            var gone = 0
            while deadlines.first?.isOver == true, deadlines.popFirst(dueBy: .max) != nil { gone += 1 }
            while timers.first?.isOver == true, timers.popFirst(dueBy: .max) != nil { gone += 1 }
            let before = deadlines.count + timers.count
            if cancelled.value.load(ordering: .relaxed) - gone > max(Alarms.fewCancelled, before / 2) {
                deadlines.removeAll(where: \.isOver)
                timers.removeAll(where: \.isOver)
                gone += before - deadlines.count - timers.count
            }
            cancelled.value.subtract(gone, ordering: .relaxed)
        }

        /// Returns the time until the next check; `nil` if no alarm is set.
        func wait(_ running: Duration, _ now: Duration) -> Duration? {
            let timer = isHeld ? nil : timers.next.map { max(.zero, $0 - now) }
            guard let deadline = deadlines.next else { return timer }
            return min(timer ?? .max, max(.zero, deadline - running), Alarms.stride)
        }
    }

    package let heartbeat: Heartbeat
    package let time: Timekeeper
    private let state = Mutex(State())
    private let cancelled = CancelledCount()
    private let parker = Parker()
    private let startThread: Thread.Starter
    private let onGap = Mutex(GapListener())

    /// The longest time between two checks while a deadline is set. After a gap, a deadline may be early by that
    /// much.
    package static let stride = Duration.milliseconds(250)
    /// The time for which the thread stays when no alarm is set. To start a thread takes some 30 us.
    private static let linger = Duration.seconds(1)
    /// Number of cancelled alarms that may stay in the queues until they are next.
    static let fewCancelled = 64
    /// The time between two checks without a thread.
    private static let pause = Duration.milliseconds(10)

    /// Creates a set of alarms.
    ///
    /// - Parameter startThread: a closure that starts the thread for the calls.
    package init(time: Timekeeper, heartbeat: Heartbeat, startThread: @escaping Thread.Starter = Thread.start) {
        self.time = time
        self.heartbeat = heartbeat
        self.startThread = startThread
        guard let onStep = time.onStep else { return }
        onStep { [weak self] in _ = self?.poll() }
        _ = poll()
    }

    /// Schedules one call of `body` after `delay`, on the alarm thread. `body` must not block the thread.
    ///
    /// - Complexity: O(log n).
    @discardableResult
    package func set(_ scale: Scale, after delay: Duration, _ body: @escaping @Sendable () -> Void) -> Alarm {
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

    /// Number of alarms in the queues: pending ones and some cancelled ones. For tests.
    var pending: Int { state.withLock { $0.deadlines.count + $0.timers.count } }

    /// The closure to notify of a gap, and its number among those set.
    private struct GapListener {
        var number: UInt64 = 0
        var body: (@Sendable (RunningGap) -> Void)?
    }

    /// Sets the closure to notify of a gap before any timer fires. The closure must not block the thread. Timers
    /// stay held until `release` is called once for each gap.
    ///
    /// - Returns: The number of the closure, for `ignoreGaps(_:)`.
    @discardableResult package func whenGapEnds(_ body: @escaping @Sendable (RunningGap) -> Void) -> UInt64 {
        // The former closure is released after the lock.
        let former = onGap.withLock { listener in
            exchange(&listener, GapListener(number: listener.number + 1, body: body))
        }
        return former.number + 1
    }

    /// Releases the closure of that number, unless another one has taken over.
    package func ignoreGaps(_ number: UInt64) {
        _ = onGap.withLock { $0.number == number ? exchange(&$0.body, nil) : nil }
    }

    /// Handles a gap that any thread's beat has found.
    package func noticed(_ gap: RunningGap) {
        guard let body = onGap.withLock({ $0.body }) else { return }
        state.withLock { $0.gaps += 1 }
        body(gap)
    }

    /// Resumes the timers that a gap holds, unless another gap holds them too.
    package func release() {
        state.withLock { $0.gaps = max(0, $0.gaps - 1) }
        if time.onStep == nil { parker.unpark() } else { _ = poll() }
    }

    // MARK: Making the calls

    private func start() {
        if startThread("plimsoll-time", { self.run() }) { return }
        let isNew = state.withLock { state in
            state.hasThread = false
            return !exchange(&state.hasTask, true)
        }
        // The process may start no more threads (RLIMIT_NPROC, pids.max). Until one can be started, a task makes
        // the calls.
        if isNew { Task { @concurrent in await self.pollWithoutThread() } }
    }

    /// Makes due calls until there is a thread for them or no alarm is set. Blocks its pool thread for no longer
    /// than `pause` at a time.
    private func pollWithoutThread() async {
        while true {
            let wait = poll()
            let (starts, leaves) = state.withLock { state in
                let leaves = state.hasThread || state.isEmpty
                if leaves { state.hasTask = false }
                if !leaves { state.hasThread = true }
                return (!leaves, leaves)
            }
            if leaves { return }
            if starts { start() }
            parker.park(atMost: min(wait ?? Self.pause, Self.pause))
            // The task may have taken a wake-up of the new thread, and a full pool may delay the rest of the task.
            if state.withLock({ $0.hasThread }) { parker.unpark() }
            await Task.yield()
        }
    }

    /// Waits for `parker` as `Parker.park` does, for a caller that an alarm is to wake. If no thread makes the
    /// calls of alarms, the caller makes them itself.
    ///
    /// - Returns: the time waited if nothing woke the caller, zero otherwise.
    @discardableResult
    package func wait(on parker: Parker, atMost limit: Duration? = nil) -> Duration {
        let isServed = time.onStep != nil || state.withLock { $0.isThreadRunning }
        let limit = isServed ? limit : min(limit ?? Self.pause, Self.pause)
        if parker.park(atMost: limit) { return .zero }
        if !isServed { _ = poll() }
        return limit ?? .zero
    }

    private func run() {
        state.withLock { $0.isThreadRunning = true }
        while true {
            let wait = poll()
            let woken = parker.park(atMost: wait ?? Self.linger)
            guard wait == nil, !woken else { continue }
            let leaves = state.withLock { state in
                guard state.isEmpty else { return false }
                state.hasThread = false
                state.isThreadRunning = false
                return true
            }
            if leaves { return }
        }
    }

    /// Makes the calls that are due. Returns the time until the next check; `nil` if no alarm is set.
    private func poll() -> Duration? {
        if let gap = heartbeat.beat(.alarms, next: nil) { noticed(gap) }
        let running = heartbeat.running, now = time.elapsed()
        while let alarm = state.withLock({
            $0.deadlines.popFirst(dueBy: running) ?? ($0.isHeld ? nil : $0.timers.popFirst(dueBy: now))
        }) {
            if let call = alarm.take() { call.body() } else { cancelled.value.subtract(1, ordering: .relaxed) }
        }
        let wait = state.withLock { state in
            state.sweep(cancelled)
            return state.wait(heartbeat.running, time.elapsed())
        }
        // With a manual clock, the caller that moves the clock decides which steps are gaps.
        if let gap = heartbeat.beat(.alarms, next: time.onStep == nil ? wait : Self.stride) { noticed(gap) }
        return wait
    }
}

/// A priority queue of payloads by due time: a binary heap.
struct AlarmQueue<Payload> {
    private var heap: [(due: Duration, order: UInt64, payload: Payload)] = []
    /// Number of payloads inserted so far.
    private(set) var order: UInt64 = 0

    var isEmpty: Bool { heap.isEmpty }
    var count: Int { heap.count }

    /// The first payload, due or not.
    var first: Payload? { heap.first?.payload }

    /// Due time of the first payload.
    var next: Duration? { heap.first?.due }

    /// Inserts `payload`, to be due at `due`.
    ///
    /// - Complexity: O(log n).
    mutating func insert(_ payload: Payload, due: Duration) {
        order += 1
        heap.append((due, order, payload))
        var child = heap.count - 1
        while child > 0, isBefore(child, (child - 1) / 2) {
            heap.swapAt(child, (child - 1) / 2)
            child = (child - 1) / 2
        }
    }

    /// Removes and returns the first payload if due. Payloads with equal due times leave in the order of insertion.
    ///
    /// - Complexity: O(log n).
    mutating func popFirst(dueBy now: Duration) -> Payload? {
        guard let first = heap.first, first.due <= now else { return nil }
        heap.swapAt(0, heap.count - 1)
        heap.removeLast()
        sink(0)
        return first.payload
    }

    /// Removes all payloads for which `condition` returns true.
    ///
    /// - Complexity: O(n).
    mutating func removeAll(where condition: (Payload) -> Bool) {
        heap.removeAll { condition($0.payload) }
        for parent in (0..<heap.count / 2).reversed() { sink(parent) }
    }

    private mutating func sink(_ index: Int) {
        var parent = index
        while true {
            var least = parent
            for child in 2 * parent + 1..<2 * parent + 3 where child < heap.count && isBefore(child, least) {
                least = child
            }
            if least == parent { return }
            heap.swapAt(parent, least)
            parent = least
        }
    }

    private func isBefore(_ left: Int, _ right: Int) -> Bool {
        (heap[left].due, heap[left].order) < (heap[right].due, heap[right].order)
    }
}
