import Synchronization

/// One run of a ticker's body.
public struct Tick: Sendable, Hashable {
    /// How many ticks before this one did not run: the process was frozen or paused, or the run before took too long.
    public var missed: Int
}

/// Calls its body every so often, while its set lets it (C38, C39).
///
///     let ticker = Ticker("metrics", every: .seconds(10)) { tick in await push(missed: tick.missed) }
///     manager.lifecycle.pausables.add(ticker)
///
/// It ticks once it is in a set, a period after it was added first, and keeps that phase for good: what was missed in a freeze, in a pause or because
/// the run before took longer is not caught up with, and the next tick comes at the next point (T30). Two runs never overlap. The body runs in an
/// ordinary task, which is cancelled when the ticker is, or leaves its set.
public final class Ticker: Quiescable, WorkingMember {
    /// What it does in the background, and while memory is so short that the ladder quiesces (C35).
    public enum BackgroundTicks: Sendable, Hashable {
        /// It does not tick.
        case paused
        /// It ticks at whole multiples of this, at the same instants as other tickers: at the first one after each point of its phase.
        case coalesced(every: Duration)
    }

    private struct State {
        var schedule: TickSchedule?
        /// The alarm that is set, and for when.
        var armed: (due: Duration, alarm: Alarms.Alarm)?
        /// Number of the alarm that is set: any other counts no more.
        var alarms: UInt64 = 0
        /// Rises when it is cancelled or moved: what ran or was about to belongs to the past.
        var membership: UInt64 = 0
        var isRunning = false
        var ticks: UInt64 = 0
        var run: Task<Void, Never>?
        /// Called when the run in progress has ended.
        var waiting: [@Sendable () -> Void] = []
        var isCancelled = false
    }

    public let name: String
    public let workClass: String?
    let gates = GateSlot()
    private let period: Duration
    private let background: BackgroundTicks
    private let makesUp: Bool
    private let body: @Sendable (Tick) async -> Void
    private let state = Mutex(State())

    /// A ticker that begins when it is added to a set.
    ///
    /// - Parameters:
    ///   - name: what it is called in reports.
    ///   - period: time from tick to tick, at least a millisecond.
    ///   - inBackground: what it does in the background.
    ///   - makesUp: whether one tick that was missed in a freeze or a pause runs soon after, and not at the next point: for what is rare and must not be
    ///     left out, such as a nightly clean-up. Within a tenth of the period, at most 10 s, so that many are no burst.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    ///   - body: what to do.
    public init(
        _ name: String, every period: Duration, inBackground: BackgroundTicks = .paused, makesUp: Bool = false, workClass: String? = nil,
        _ body: @escaping @Sendable (Tick) async -> Void
    ) {
        precondition(period >= .milliseconds(1), "ticker \"\(name)\": a period of \(period); it must be at least a millisecond")
        if case .coalesced(let stride) = inBackground {
            precondition(stride >= .milliseconds(1), "ticker \"\(name)\": ticks coalesced every \(stride); it must be at least a millisecond")
        }
        self.name = name
        self.period = period
        background = inBackground
        self.makesUp = makesUp
        self.workClass = workClass
        self.body = body
    }

    /// It never ticks again; a run in progress is cancelled and not waited for. Idempotent.
    public func cancel() { stop(for: true) }

    private func stop(for good: Bool) {
        let run = state.withLock { state in
            state.isCancelled = state.isCancelled || good
            state.membership += 1
            state.alarms += 1
            state.armed?.alarm.cancel()
            state.armed = nil
            state.schedule = nil
            return state.run
        }
        run?.cancel()
    }

    /// Ticks so far.
    public var ticks: UInt64 { state.withLock { $0.ticks } }

    /// Whether its body runs now, or is about to.
    public var isRunning: Bool { state.withLock { $0.isRunning } }

    // MARK: In its set

    func join(_ gate: QuiesceGate) {
        stop(for: false)
        gates.move(to: gate)
        guard let now = gate.alarms?.time.elapsed() else { return }
        let ordinal = gate.nextOrdinal()
        state.withLock { $0.schedule = TickSchedule(period: period, makesUp: makesUp, origin: now, ordinal: ordinal) }
    }

    func leave(_ gate: QuiesceGate) {
        guard gates.current === gate else { return }
        gates.leave(gate)
        stop(for: false)
    }

    /// In a set it follows the set; by itself it does not tick.
    public func quiesce(to extent: QuiesceExtent) {
        gates.follow(extent)
        look()
    }

    /// Sets the alarm for the next tick, unless one is set for as early: after any number of interruptions there is one (T38).
    func look() {
        guard let alarms = gates.current.alarms else { return }
        let now = alarms.time.elapsed()
        state.withLock { state in
            guard !state.isCancelled, let schedule = state.schedule, let due = schedule.resume(at: now, pace) else { return }
            if let armed = state.armed {
                if armed.due <= due { return }
                armed.alarm.cancel()
            }
            arm(&state, due, from: now, alarms)
        }
    }

    private var pace: TickSchedule.Pace {
        let extent = gates.current.extent
        if extent.isPaused { return .stopped }
        guard extent.isQuiet else { return .full }
        return switch background {
        case .paused: .stopped
        case .coalesced(let stride): .coalesced(stride)
        }
    }

    private func arm(_ state: inout State, _ due: Duration, from now: Duration, _ alarms: Alarms) {
        state.alarms += 1
        let number = state.alarms
        state.armed = (due, alarms.set(.timer, after: max(.zero, due - now)) { [weak self] in self?.fire(due, number, alarms) })
    }

    private func fire(_ due: Duration, _ number: UInt64, _ alarms: Alarms) {
        gates.current.notice()
        let now = alarms.time.elapsed()
        let tick: (tick: Tick, membership: UInt64)? = state.withLock { state in
            guard state.alarms == number, state.schedule != nil else { return nil }
            state.armed = nil
            let pace = pace
            // A tick that comes while the last one runs is missed.
            let decision = state.isRunning ? .skip : state.schedule?.fire(due: due, at: now, pace)
            let next = if case .postpone(let instant) = decision { instant } else { state.schedule?.next(after: now, pace) }
            if let next { arm(&state, next, from: now, alarms) }
            guard case .run(let missed) = decision else { return nil }
            state.isRunning = true
            state.ticks += 1
            return (Tick(missed: missed), state.membership)
        }
        if let tick { run(tick.tick, tick.membership) }
    }

    // MARK: A run

    /// Whether the end of the run under way is waited for. For tests.
    var isAwaited: Bool { state.withLock { !$0.waiting.isEmpty } }

    func whenIdle(_ body: @escaping @Sendable () -> Void) {
        let isIdle = state.withLock { state in
            if state.isRunning { state.waiting.append(body) }
            return !state.isRunning
        }
        if isIdle { body() }
    }

    private func run(_ tick: Tick, _ membership: UInt64) {
        let run = Task {
            // It may have been cancelled, or have left its set, before its task got to run.
            if state.withLock({ $0.membership == membership }) { await body(tick) }
            let waiting = state.withLock { state in
                state.isRunning = false
                state.run = nil
                defer { state.waiting = [] }
                return state.waiting
            }
            for body in waiting { body() }
        }
        let isStale = state.withLock { state in
            if state.isRunning { state.run = run }
            return state.membership != membership
        }
        if isStale { run.cancel() }
    }
}
