import Synchronization

/// What became of a shutdown.
public struct ShutdownReport: Sendable, Hashable {
    /// What there was from the first word of it to the end.
    public var budget: Duration
    /// From the first word to the manager's turn: others stopped taking work, and finished what they had.
    public var drain: Duration
    /// From the manager's turn until background tasks had ended or were given up, and state was saved.
    public var expiry: Duration
    /// Background tasks that were asked to stop after their share of the budget, as they had not come to their own end.
    /// Zero for a shutdown without such a share.
    public var asked = 0
    /// Background tasks and handlers that had not ended by then: they were cancelled.
    public var stragglers: [String]
}

/// One deadline for all parts of a shutdown, whoever hears of it first.
final class ShutdownPlan: Sendable {
    private struct State {
        var began: (at: Duration, budget: Duration, reserve: Duration)?
        var asked: (names: [String], count: Int) = ([], 0)
        /// Background tasks that did not end although they were asked.
        var givenUp: [String] = []
        var report: ShutdownReport?
    }

    private let state = Mutex(State())
    private let heartbeat: Heartbeat

    init(heartbeat: Heartbeat) { self.heartbeat = heartbeat }

    var hasBegun: Bool { state.withLock { $0.began != nil } }
    var report: ShutdownReport? { state.withLock { $0.report } }

    /// The first caller's budget holds.
    ///
    /// - Parameter reserve: of the budget, for what is cancelled to come to its end.
    /// - Returns: whether this was the first.
    @discardableResult
    func begin(_ budget: Duration, reserve: Duration = .zero) -> Bool {
        let now = heartbeat.running
        return state.withLock { state in
            guard state.began == nil else { return false }
            state.began = (now, budget, reserve)
            return true
        }
    }

    /// What background tasks still have.
    var timeLeft: Duration {
        let now = heartbeat.running
        return state.withLock { state in
            guard let began = state.began else { return .zero }
            return max(.zero, began.at + began.budget - began.reserve - now)
        }
    }

    /// Background tasks are asked to stop.
    ///
    /// - Parameter names: the oldest of them.
    func asked(_ names: [String], _ count: Int) { state.withLock { $0.asked = (names, count) } }

    /// Background tasks were given up; counts from the first word of a shutdown on.
    func givenUp(_ names: [String]) { state.withLock { if $0.began != nil { $0.givenUp += names } } }

    /// Those asked, by name as far as they are named, and those of them given up so far.
    var overdue: (asked: [String], count: Int, givenUp: [String]) { state.withLock { ($0.asked.names, $0.asked.count, $0.givenUp) } }

    /// - Parameter others: what besides background tasks did not end in time.
    func ended(turn: Duration, others: [String]) {
        let now = heartbeat.running
        state.withLock { state in
            guard let began = state.began else { return }
            state.report = ShutdownReport(
                budget: began.budget, drain: turn - began.at, expiry: now - turn, asked: state.asked.count, stragglers: state.givenUp + others)
        }
    }

    var now: Duration { heartbeat.running }
}

extension ResourceManager {
    /// Says that the process is to be over within `budget`: it isn't ready for work any more, and no background task
    /// begins. The first call's budget holds.
    ///
    /// - Parameters:
    ///   - budget: by running time; of it a tenth, and at most 2 s, is kept for what is cancelled to come to its end.
    ///   - taskShare: the share of the budget in which background tasks may come to their own end. Then they are asked to
    ///     stop, whether `run()` has been told to end by then or not; at once if its task is cancelled. At most 0.8, so
    ///     that they have time to save. With `nil` they are asked once `run()` is cancelled or stopped, and have what is
    ///     left of the budget then.
    /// - Returns: whether this was the first call.
    @discardableResult
    public func beginShutdown(within budget: Duration, taskShare: Double? = nil) -> Bool {
        let reserve = Self.shutdownReserve(of: budget)
        guard parts.shutdown.begin(budget, reserve: reserve) else { return false }
        parts.lifecycle.refuseWork()
        if let taskShare {
            parts.tasks.close(askingAfter: budget * max(0, min(taskShare, 0.8)), within: budget - reserve)
        } else {
            parts.tasks.close()
        }
        return true
    }

    /// The part of a shutdown's budget that is kept for cancelled work to end.
    package static func shutdownReserve(of budget: Duration) -> Duration { min(budget * 0.1, .seconds(2)) }

    /// Background tasks that were asked to stop in the shutdown, the oldest by name, and those that did not end all the same.
    package var overdueTasks: (asked: [String], count: Int, givenUp: [String]) { parts.shutdown.overdue }

    /// Calls `body`, which may block, once `delay` of running time has passed.
    ///
    /// - Returns: what calls it off.
    package func call(after delay: Duration, _ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        let alarm = parts.alarms.set(.deadline, after: delay) { [threads = parts.threads] in threads.run { () -> Void in body() } }
        return { alarm.cancel() }
    }

    /// What became of the shutdown; `nil` before its end.
    public var shutdownReport: ShutdownReport? { parts.shutdown.report }

    /// Whether a shutdown was begun.
    public var isShuttingDown: Bool { parts.shutdown.hasBegun }

    func shutDown() async {
        let parts = parts
        parts.meter.allow(.max, since: .zero)
        parts.volatileMeter.allow(.max, since: .zero)
        parts.shutdown.begin(policy.shutdownBudget)
        let turn = parts.shutdown.now
        // Cancelled is not asked to end in good order: tasks have no time of their own then.
        let ended = await withTaskCancellationHandler {
            let ended = await lifecycle.terminate(cause: .shutdown, within: parts.shutdown.timeLeft)
            await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
                parts.threads.run {
                    parts.tasks.close()
                    _ = parts.tasks.expireAndWait(.shutdown, within: parts.shutdown.timeLeft, isExtended: true, allowsOwnEnd: true)
                    done.resume()
                }
            }
            return ended
        } onCancel: {
            parts.tasks.endOwnTime()
        }
        // Tasks given up are known to the plan, whoever asked them and when.
        parts.shutdown.ended(turn: turn, others: ended.overran.filter { $0.origin != "background task" }.map(\.name))
        parts.hands.stop()
        parts.courier.stop()
    }
}
