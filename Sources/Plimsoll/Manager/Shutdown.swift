import Synchronization

/// What became of a shutdown.
public struct ShutdownReport: Sendable, Hashable {
    /// What there was from the first word of it to the end.
    public var budget: Duration
    /// From the first word to the manager's turn: others stopped taking work, and finished what they had.
    public var drain: Duration
    /// From the manager's turn until background tasks had ended or were given up, and state was saved.
    public var expiry: Duration
    /// Background tasks and handlers that had not ended by then: they were cancelled.
    public var stragglers: [String]
}

/// One deadline for all parts of a shutdown, whoever hears of it first.
final class ShutdownPlan: Sendable {
    private struct State {
        var began: (at: Duration, budget: Duration, reserve: Duration)?
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

    func ended(turn: Duration, stragglers: [String]) {
        let now = heartbeat.running
        state.withLock { state in
            guard let began = state.began else { return }
            state.report = ShutdownReport(budget: began.budget, drain: turn - began.at, expiry: now - turn, stragglers: stragglers)
        }
    }

    var now: Duration { heartbeat.running }
}

extension ResourceManager {
    /// Says that the process is to be over within `budget`: it isn't ready for work any more, and no background task begins. What runs goes on until `run()` is
    /// cancelled or stopped, and has what is left of the budget then. The first call's budget holds.
    ///
    /// - Parameter budget: by running time; of it a tenth, and at most 2 s, is kept for what is cancelled to come to its end.
    /// - Returns: whether this was the first call.
    @discardableResult
    public func beginShutdown(within budget: Duration) -> Bool {
        guard parts.shutdown.begin(budget, reserve: min(budget * 0.1, .seconds(2))) else { return false }
        parts.lifecycle.refuseWork()
        parts.tasks.close()
        return true
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
        let ended = await lifecycle.terminate(cause: .shutdown, within: parts.shutdown.timeLeft)
        let left = await withCheckedContinuation { (done: CheckedContinuation<[String], Never>) in
            parts.threads.run {
                parts.tasks.close()
                done.resume(returning: parts.tasks.expireAndWait(.shutdown, within: parts.shutdown.timeLeft, isExtended: true))
            }
        }
        parts.shutdown.ended(turn: turn, stragglers: ended.overran.map(\.name) + left)
        parts.hands.stop()
        parts.courier.stop()
    }
}
