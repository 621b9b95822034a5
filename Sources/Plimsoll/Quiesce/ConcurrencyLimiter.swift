import Synchronization

/// Lets at most so many pieces of work run at once, fewer when memory is short or the process is in the background (C35, C40, C82).
///
///     let limiter = ConcurrencyLimiter("render", limit: 64)
///     manager.lifecycle.pausables.add(limiter)
///     let image = try await limiter.run { try await render(page) }
///
/// Callers are admitted in the order of arrival. At the level `warning` half of them may run, at `critical` a quarter, at the ladder's rung `quiesce`
/// one, in the background `inBackground`; in a paused process nobody is admitted, and after a freeze nobody before the process has found its way
/// back. What runs is never interrupted, so that more may run for a while after a limit has fallen. By itself, in no set, it always has its full limit.
///
/// Never wait here for what frees memory or for what holds a lock: waiting ends only when others finish (T28). A caller that may not wait for ever
/// says so with `waitingAtMost:`.
public final class ConcurrencyLimiter: Quiescable, GatedMember {
    /// What becomes of callers who wait while nobody is admitted (C54).
    public enum WhenPaused: Sendable, Hashable {
        /// They wait on.
        case keep
        /// They get an `AdmissionRefusal`, those who wait at that moment and those who come.
        case refuse
        /// They wait for so long at most, then they get an `AdmissionRefusal`.
        case expire(after: Duration)
    }

    /// What a limiter has done and does.
    public struct Statistics: Sendable, Hashable {
        /// Pieces of work that run now.
        public var running: Int
        /// Callers who wait now.
        public var waiting: Int
        /// How many may run now.
        public var limit: Int
        /// Pieces of work begun so far.
        public var admitted: UInt64
        /// Callers turned away at once so far, or when a pause began.
        public var refused: UInt64
        /// Callers who waited in vain so far.
        public var expired: UInt64

        /// These numbers, for what else admits work and counts it (`CountingQuiescable`).
        public init(running: Int, waiting: Int, limit: Int, admitted: UInt64, refused: UInt64, expired: UInt64) {
            (self.running, self.waiting, self.limit) = (running, waiting, limit)
            (self.admitted, self.refused, self.expired) = (admitted, refused, expired)
        }
    }

    public let name: String
    public let workClass: String?
    let gates = GateSlot()
    private let rules: LimiterState<Waiter>.Rules
    private let state: Mutex<LimiterState<Waiter>>
    /// The time of a limiter in no set, made when a caller first wants to wait for a time.
    private let ownAlarms = Mutex<Alarms?>(nil)

    private final class Waiter: Sendable {
        enum Phase {
            case arriving, cancelled, over
            case waiting(UInt64, CheckedContinuation<Void, any Error>)
        }
        private let phase = Mutex(Phase.arriving)

        /// It waits from now on; false if it was cancelled before.
        func begin(_ ticket: UInt64, _ continuation: CheckedContinuation<Void, any Error>) -> Bool {
            phase.withLock { phase in
                guard case .arriving = phase else { return false }
                phase = .waiting(ticket, continuation)
                return true
            }
        }

        /// The one to be resumed, to exactly one caller.
        func finish(_ last: Phase = .over) -> (ticket: UInt64, continuation: CheckedContinuation<Void, any Error>)? {
            phase.withLock { phase in
                let before = phase
                phase = last
                guard case .waiting(let ticket, let continuation) = before else { return nil }
                return (ticket, continuation)
            }
        }
    }

    /// A limiter that admits `limit` at once.
    ///
    /// - Parameters:
    ///   - name: what it is called in reports.
    ///   - limit: how many run at once, at least 1.
    ///   - inBackground: how many at most in the background; 0 pauses it there.
    ///   - mostWaiting: how many wait at most; one more is refused.
    ///   - whenPaused: what becomes of those who wait while nobody is admitted.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    public init(
        _ name: String, limit: Int, inBackground: Int = 1, mostWaiting: Int = 1 << 16, whenPaused: WhenPaused = .keep, workClass: String? = nil
    ) {
        precondition(limit >= 1, "limiter \"\(name)\": a limit of \(limit) admits nobody; it must be at least 1")
        precondition(inBackground >= 0 && mostWaiting >= 0, "limiter \"\(name)\": inBackground \(inBackground), mostWaiting \(mostWaiting)")
        self.name = name
        self.workClass = workClass
        rules = LimiterState<Waiter>.Rules(limit: limit, inBackground: inBackground, mostWaiting: mostWaiting, whenPaused: whenPaused)
        state = Mutex(LimiterState(rules))
    }

    /// Runs `body` as soon as there is room for it.
    ///
    /// - Parameters:
    ///   - patience: how long to wait at most, by running time (a freeze does not count); `nil` for ever, zero for not at all.
    ///   - body: the work, in the caller's own task and isolation.
    /// - Returns: what `body` returns.
    /// - Throws: what `body` throws; `AdmissionRefusal` if it was not admitted; `CancellationError` if the task was cancelled while waiting.
    /// - Complexity: O(1) if it is admitted at once: two short locks and a look at the clock, no allocation.
    public func run<Result>(waitingAtMost patience: Duration? = nil, _ body: () async throws -> Result) async throws -> Result {
        gates.current.notice()
        let isAdmitted = state.withLock { $0.enter(gates.current.extent) }
        if !isAdmitted { try await wait(patience) }
        defer { finished() }
        return try await body()
    }

    /// What it has done and does.
    public var statistics: Statistics {
        state.withLock { state in
            Statistics(
                running: state.running, waiting: state.waiting, limit: state.room(gates.current.extent), admitted: state.admitted,
                refused: state.refused, expired: state.expired)
        }
    }

    // MARK: Waiting

    private func wait(_ patience: Duration?) async throws {
        let waiter = Waiter()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { arrive(waiter, $0, patience) }
        } onCancel: {
            guard let (ticket, continuation) = waiter.finish(.cancelled) else { return }
            // Whoever admits it beside this finds it finished and passes its place on.
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
                // Whoever moved it to another set meanwhile has another time too.
                guard gates.current === gate else { return (nil, false) }
                let arrival = state.arrive(waiter, gate.extent, patience: patience, at: now)
                guard case .waits(let ticket, _) = arrival, !waiter.begin(ticket, continuation) else { return (arrival, false) }
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

    /// The work is done, or was `unused`: never begun.
    private func finished(unused: Bool = false) {
        let hasWaiters = state.withLock { $0.leave(unused: unused) }
        if hasWaiters { look() }
    }

    public func quiesce(to extent: QuiesceExtent) {
        gates.follow(extent)
        look()
    }

    func look() {
        let gate = gates.current
        gate.notice()
        let now = needsTime(nil) ? alarms(at: gate).heartbeat.running : .zero
        settle(state.withLock { $0.look(gates.current.extent, at: now) }, at: now, gate)
    }

    private func settle(_ settlement: LimiterState<Waiter>.Settlement, at now: Duration, _ gate: QuiesceGate) {
        if let sweep = settlement.sweep { set(sweep, from: now, gate) }
        for (waiter, reason) in settlement.refused {
            waiter.finish()?.continuation.resume(throwing: AdmissionRefusal(limiter: name, reason: reason))
        }
        for waiter in settlement.admitted {
            if let continuation = waiter.finish()?.continuation { continuation.resume() } else { finished(unused: true) }
        }
    }

    // MARK: Time

    private func needsTime(_ patience: Duration?) -> Bool {
        if case .expire = rules.whenPaused { return true }
        return patience != nil
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
            settle(state.withLock { $0.sweep(sweep.number, at: now) }, at: now, gate)
        }
    }

    func join(_ gate: QuiesceGate) { move(to: gate) { gates.move(to: gate) } }
    func leave(_ gate: QuiesceGate) { move(to: gates.own) { gates.leave(gate) } }

    /// Those who wait for a time go on by the new gate's.
    private func move(to gate: QuiesceGate, _ move: () -> Void) {
        guard state.withLock({ $0.waiting > 0 }) else { return move() }
        let old = gates.current, now = alarms(at: gate).heartbeat.running, offset = now - alarms(at: old).heartbeat.running
        let sweep = state.withLock { state in
            move()
            return gates.current === old ? nil : state.moveClock(by: offset)
        }
        if let sweep { set(sweep, from: now, gate) }
    }
}
