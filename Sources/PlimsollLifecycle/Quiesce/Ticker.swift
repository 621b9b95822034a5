import Plimsoll
import Synchronization

/// Calls a closure periodically, while the set allows (C38, C39).
///
///     let ticker = Ticker("metrics", every: .seconds(10)) { missed in await push(missed: missed) }
///     manager.lifecycle.pausables.add(ticker)
///
/// A ticker ticks only in a set. The first tick comes one period after the addition, and the phase stays fixed. Ticks
/// missed in a freeze, in a pause or because the previous run took longer are not caught up with; the next tick comes
/// at the next point (T30). Two runs never overlap. The body runs in an ordinary task, which is cancelled when the
/// ticker is cancelled or leaves the set.
///
/// A step of the life cycle may wait for a run in progress. So a request that the body makes for a state of the process
/// is carried out as one of a handler is: without waiting. That includes termination.
public final class Ticker: Quiescable, WorkingMember {
    private struct State {
        var schedule: TickSchedule?
        /// The due time, and the alarm that is set.
        var armed: (due: Duration, alarm: Alarms.Alarm)?
        /// Number of the alarm that is set; alarms with any other number are ignored.
        var alarms: UInt64 = 0
        /// Increases when the ticker is cancelled or moved. Runs that belong to an earlier value are obsolete.
        var membership: UInt64 = 0
        var isRunning = false
        var ticks: UInt64 = 0
        var run: Task<Void, Never>?
        /// Callbacks for the end of the run in progress.
        var waiting: [@Sendable () -> Void] = []
        var isCancelled = false
    }

    public let name: String
    public let workClass: String?
    let gates = GateSlot()
    private let period: Duration
    private let stride: Duration?
    private let makesUp: Bool
    private let body: @Sendable (Int) async -> Void
    /// Marks the body as a handler. Never closed.
    private let gate = AsyncCallGate()
    private let state = Mutex(State())

    /// Creates a ticker that begins when added to a set.
    ///
    /// - Parameters:
    ///   - name: name used in reports.
    ///   - period: time from tick to tick, at least a millisecond.
    ///   - stride: period in the background, and while memory is so short that the ladder quiesces (C35). There the
    ///     ticker ticks at whole multiples of this period, at the same instants as other tickers: at the first one
    ///     after each point of the phase. With `nil` the ticker does not tick there.
    ///   - makesUp: true to run one missed tick soon after a freeze or a pause, and not at the next point. For rare
    ///     work that must not be left out, such as a nightly clean-up. The delay is within a tenth of the period, at
    ///     most 10 s, so that many tickers cause no burst.
    ///   - workClass: class of work that the ticker serves. A lease on the class keeps the ticker going
    ///     (`QuiesceSet.lease`).
    ///   - body: work of one tick. Receives the number of ticks before this one that did not run: the process was
    ///     frozen or paused, or the previous run took too long.
    public init(
        _ name: String, every period: Duration, inBackgroundEvery stride: Duration? = nil, makesUp: Bool = false,
        workClass: String? = nil,
        _ body: @escaping @Sendable (_ missed: Int) async -> Void
    ) {
        precondition(
            period >= .milliseconds(1), "ticker \"\(name)\": period is \(period), allowed is a millisecond or more")
        precondition(
            (stride ?? period) >= .milliseconds(1),
            "ticker \"\(name)\": the period in the background is \(stride ?? period), allowed is a millisecond or more")
        self.name = name
        self.period = period
        self.stride = stride
        self.makesUp = makesUp
        self.workClass = workClass
        self.body = body
    }

    /// Stops the ticker for good. Cancels a run in progress but does not wait for the end. Idempotent.
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

    /// Number of ticks so far.
    public var ticks: UInt64 { state.withLock { $0.ticks } }

    /// True while the body runs, or is about to run.
    public var isRunning: Bool { state.withLock { $0.isRunning } }

    // MARK: Membership

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

    /// Applies the extent outside a set. In a set the ticker follows the set; outside a set the ticker does not tick.
    public func quiesce(to extent: QuiesceExtent) {
        gates.follow(extent)
        poll()
    }

    /// Sets the alarm for the next tick, unless an alarm at least as early is set. After any number of interruptions
    /// there is one alarm (T38).
    func poll() {
        guard let alarms = gates.current.alarms else { return }
        let now = alarms.time.elapsed()
        state.withLock { state in
            guard !state.isCancelled, let schedule = state.schedule, let due = schedule.resume(at: now, pace) else {
                return
            }
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
        return stride.map { .coalesced($0) } ?? .stopped
    }

    private func arm(_ state: inout State, _ due: Duration, from now: Duration, _ alarms: Alarms) {
        state.alarms += 1
        let number = state.alarms
        state.armed = (
            due, alarms.set(.timer, after: max(.zero, due - now)) { [weak self] in self?.fire(due, number, alarms) }
        )
    }

    private func fire(_ due: Duration, _ number: UInt64, _ alarms: Alarms) {
        gates.current.notice()
        let now = alarms.time.elapsed()
        let tick: (missed: Int, membership: UInt64)? = state.withLock { state in
            guard state.alarms == number, state.schedule != nil else { return nil }
            state.armed = nil
            let pace = pace
            // A tick that comes while the previous run is in progress is missed.
            let decision = state.isRunning ? .skip : state.schedule?.fire(due: due, at: now, pace)
            let next =
                if case .postpone(let instant) = decision { instant } else { state.schedule?.next(after: now, pace) }
            if let next { arm(&state, next, from: now, alarms) }
            guard case .run(let missed) = decision else { return nil }
            state.isRunning = true
            state.ticks += 1
            return (missed, state.membership)
        }
        if let tick { run(tick.missed, tick.membership) }
    }

    // MARK: A run

    /// True while a caller waits for the end of the run in progress. For tests.
    var isAwaited: Bool { state.withLock { !$0.waiting.isEmpty } }

    func whenIdle(_ body: @escaping @Sendable () -> Void) {
        let isIdle = state.withLock { state in
            if state.isRunning { state.waiting.append(body) }
            return !state.isRunning
        }
        if isIdle { body() }
    }

    private func run(_ missed: Int, _ membership: UInt64) {
        let run = Task {
            // The ticker may have been cancelled, or have left the set, before this task started to run.
            if state.withLock({ $0.membership == membership }) { await gate.call { await body(missed) } }
            let waiting = state.withLock { state in
                state.isRunning = false
                state.run = nil
                return exchange(&state.waiting, [])
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
