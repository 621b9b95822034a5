import Plimsoll
import Synchronization

/// Limits how many pieces of work run at once, fewer when memory is short or the process is in the background (C35,
/// C40, C82).
///
///     let limiter = ConcurrencyLimiter("render", limit: 64)
///     manager.lifecycle.pausables.add(limiter)
///     let image = try await limiter.run { try await render(page) }
///
/// Callers are admitted in the order of arrival. At the level `warning` half of the limit may run, at `critical` a
/// quarter, at the ladder's rung `quiesce` one, and in the background `inBackground`. A paused process admits no
/// callers. After a freeze, no caller is admitted before the process has handled the gap. Running work is never
/// interrupted, so more may run for a while after a limit has fallen. A step of the life cycle that pauses the limiter
/// waits for running work before it saves state, for half of its time at most (C43). A limiter that is in no set always
/// has the full limit.
///
/// Never wait here for work that frees memory or holds a lock: a wait ends only when other work finishes (T28). Bound
/// the wait with `waitingAtMost:` if the caller must not wait forever.
public final class ConcurrencyLimiter: Quiescable, WorkingMember {
    package typealias Statistics = (
        running: Int, waiting: Int, limit: Int, admitted: UInt64, refused: UInt64, expired: UInt64
    )

    public let name: String
    public let workClass: String?
    let gates = GateSlot()
    private let rules: LimiterState<Waiter>.Rules
    private let state: Mutex<LimiterState<Waiter>>
    /// The clock of a limiter in no set. Created when a caller first waits with a time limit.
    let ownAlarms = Mutex<Alarms?>(nil)

    private final class Waiter: Sendable {
        enum Phase {
            case arriving, cancelled, over
            case waiting(UInt64, CheckedContinuation<Void, any Error>)
        }
        private let phase = Mutex(Phase.arriving)

        /// Starts the wait. Returns false if the waiter was cancelled before.
        func begin(_ ticket: UInt64, _ continuation: CheckedContinuation<Void, any Error>) -> Bool {
            phase.withLock { phase in
                guard case .arriving = phase else { return false }
                phase = .waiting(ticket, continuation)
                return true
            }
        }

        /// Returns the ticket and continuation to resume, to exactly one caller.
        func finish(_ last: Phase = .over) -> (ticket: UInt64, continuation: CheckedContinuation<Void, any Error>)? {
            phase.withLock { phase in
                let before = phase
                phase = last
                guard case .waiting(let ticket, let continuation) = before else { return nil }
                return (ticket, continuation)
            }
        }
    }

    /// Creates a limiter that admits `limit` pieces of work at once.
    ///
    /// - Parameters:
    ///   - name: name used in reports.
    ///   - limit: most pieces of work at once, at least 1.
    ///   - inBackground: most pieces of work at once in the background; 0 pauses the limiter there.
    ///   - mostWaiting: most callers that may wait; further callers are refused.
    ///   - pausePatience: longest wait while no work is admitted (C54). Then callers get an `AdmissionRefusal`; with
    ///     zero at once, both those that wait when the pause begins and those that come later. `nil` for no limit.
    ///   - workClass: class of work that the limiter serves. A lease on the class keeps the limiter going
    ///     (`QuiesceSet.lease`).
    public init(
        _ name: String, limit: Int, inBackground: Int = 1, mostWaiting: Int = 1 << 16,
        waitingWhilePausedAtMost pausePatience: Duration? = nil, workClass: String? = nil
    ) {
        precondition(limit >= 1, "limiter \"\(name)\": limit is \(limit), allowed is 1 or more")
        precondition(
            inBackground >= 0 && mostWaiting >= 0,
            "limiter \"\(name)\": inBackground \(inBackground), mostWaiting \(mostWaiting)")
        self.name = name
        self.workClass = workClass
        rules = LimiterState<Waiter>.Rules(
            limit: limit, inBackground: inBackground, mostWaiting: mostWaiting, pausePatience: pausePatience)
        state = Mutex(LimiterState(rules))
    }

    /// Runs `body` as soon as there is room.
    ///
    /// - Parameters:
    ///   - patience: longest wait, in running time (a freeze does not count); `nil` for no limit, zero for no wait.
    ///   - body: work, run in the caller's own task and isolation.
    /// - Returns: The result of `body`.
    /// - Throws: The error of `body`; `AdmissionRefusal` if the work was not admitted; `CancellationError` if the
    ///   task was cancelled while waiting.
    /// - Complexity: O(1) if admitted at once: two short locks and a clock read, no allocation.
    public func run<Result>(waitingAtMost patience: Duration? = nil, _ body: () async throws -> Result) async throws
        -> Result
    {
        gates.current.notice()
        let isAdmitted = state.withLock { $0.enter(gates.current.extent) }
        if !isAdmitted { try await wait(patience) }
        defer { finished() }
        return try await body()
    }

    /// The counters of the limiter: pieces of work that run now, callers that wait now, and pieces of work that may run
    /// now; pieces of work begun so far, callers refused so far (at once or when a pause began), and callers whose wait
    /// expired so far.
    public var statistics: (running: Int, waiting: Int, limit: Int, admitted: UInt64, refused: UInt64, expired: UInt64)
    {
        state.withLock { state in
            (
                state.running, state.waiting, state.room(gates.current.extent), state.admitted, state.refused,
                state.expired
            )
        }
    }

    // MARK: Waiting

    private func wait(_ patience: Duration?) async throws {
        let waiter = Waiter()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { arrive(waiter, $0, patience) }
        } onCancel: {
            guard let (ticket, continuation) = waiter.finish(.cancelled) else { return }
            // A thread that admits this waiter concurrently finds the waiter finished, and passes the place on.
            _ = state.withLock { $0.remove(ticket) }
            continuation.resume(throwing: CancellationError())
        }
    }

    private func arrive(_ waiter: Waiter, _ continuation: CheckedContinuation<Void, any Error>, _ patience: Duration?) {
        while true {
            let gate = gates.current
            gate.notice()
            let now = needsTime(patience) ? alarms(at: gate).heartbeat.running : .zero
            let (arrival, isCancelled): (LimiterState<Waiter>.Arrival?, Bool) = state.withLock { state in
                // If the limiter moved to another set meanwhile, the clock changed too.
                guard gates.current === gate else { return (nil, false) }
                let arrival = state.arrive(waiter, gate.extent, patience: patience, at: now)
                guard case .waits(let ticket, _) = arrival, !waiter.begin(ticket, continuation) else {
                    return (arrival, false)
                }
                _ = state.remove(ticket)
                return (arrival, true)
            }
            switch arrival {
            case nil: continue
            case .admitted: continuation.resume()
            case .refused(let reason): continuation.resume(throwing: AdmissionRefusal(limiter: name, reason: reason))
            case .waits(_, let sweep):
                if let sweep { set(sweep, from: now, gate) }
                if isCancelled { continuation.resume(throwing: CancellationError()) }
            }
            return
        }
    }

    /// Ends a piece of work. `unused` means that the work never began.
    private func finished(unused: Bool = false) {
        let (hasWaiters, idle) = state.withLock { state in
            let hasWaiters = state.leave(unused: unused)
            return (hasWaiters, state.running == 0 ? exchange(&state.whenIdle, []) : [])
        }
        for body in idle { body() }
        if hasWaiters { poll() }
    }

    // MARK: The end of admitted work

    var isRunning: Bool { state.withLock { $0.running > 0 } }

    func whenIdle(_ body: @escaping @Sendable () -> Void) {
        let isIdle = state.withLock { state in
            if state.running > 0 { state.whenIdle.append(body) }
            return state.running == 0
        }
        if isIdle { body() }
    }

    /// True while a caller waits for the end of all admitted work. For tests.
    var isAwaited: Bool { state.withLock { !$0.whenIdle.isEmpty } }

    public func quiesce(to extent: QuiesceExtent) {
        gates.follow(extent)
        poll()
    }

    func poll() {
        while true {
            let gate = gates.current
            gate.notice()
            let now = needsTime(nil) ? alarms(at: gate).heartbeat.running : .zero
            // As in `arrive`: if the limiter moved to another set meanwhile, the clock changed too.
            let dequeued: LimiterState<Waiter>.Dequeued? = state.withLock { state in
                gates.current === gate ? state.poll(gate.extent, at: now) : nil
            }
            if let dequeued { return resume(dequeued, at: now, gate) }
        }
    }

    private func resume(_ dequeued: LimiterState<Waiter>.Dequeued, at now: Duration, _ gate: QuiesceGate) {
        if let sweep = dequeued.sweep { set(sweep, from: now, gate) }
        for (waiter, reason) in dequeued.refused {
            waiter.finish()?.continuation.resume(throwing: AdmissionRefusal(limiter: name, reason: reason))
        }
        for waiter in dequeued.admitted {
            if let continuation = waiter.finish()?.continuation {
                continuation.resume()
            } else {
                finished(unused: true)
            }
        }
    }

    // MARK: Time

    private func needsTime(_ patience: Duration?) -> Bool {
        patience != nil || (rules.pausePatience ?? .zero) > .zero
    }

    private func alarms(at gate: QuiesceGate) -> Alarms {
        gate.alarms
            ?? ownAlarms.withLock { own in
                if let own { return own }
                let made = Alarms(time: .running, heartbeat: Heartbeat(time: .running))
                own = made
                return made
            }
    }

    private func set(_ sweep: LimiterState<Waiter>.Sweep, from now: Duration, _ gate: QuiesceGate) {
        let alarms = alarms(at: gate)
        alarms.set(.deadline, after: max(.zero, sweep.due - now)) { [weak self] in
            guard let self else { return }
            let now = alarms.heartbeat.running
            resume(state.withLock { $0.sweep(sweep.number, at: now) }, at: now, gate)
        }
    }

    func join(_ gate: QuiesceGate) { move(to: gate) { gates.move(to: gate) } }
    func leave(_ gate: QuiesceGate) { move(to: gates.own) { gates.leave(gate) } }

    /// Moves the waiters with a time limit to the clock of the new gate. In one step with the move, so that no caller
    /// waits by the former clock in between.
    private func move(to gate: QuiesceGate, _ move: () -> Void) {
        let moved: (sweep: LimiterState<Waiter>.Sweep, now: Duration)? = state.withLock { state in
            let old = gates.current
            move()
            guard gates.current !== old else { return nil }
            guard state.waiting > 0 else {
                // A sweep that is due by the former clock no longer counts.
                _ = state.moveClock(by: .zero)
                return nil
            }
            let now = alarms(at: gate).heartbeat.running
            return state.moveClock(by: now - alarms(at: old).heartbeat.running).map { ($0, now) }
        }
        if let moved { set(moved.sweep, from: moved.now, gate) }
    }
}
