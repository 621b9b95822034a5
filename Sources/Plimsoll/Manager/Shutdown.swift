import Synchronization

/// The outcome of a shutdown.
public struct ShutdownReport: Sendable, Hashable {
    /// Time budget, from the start of the shutdown to the end.
    public var budget: Duration
    /// Time from the start of the shutdown to the manager's turn: other parts stopped accepting work, and finished
    /// their work.
    public var drain: Duration
    /// Time from the manager's turn until background tasks had ended or were given up, and state was saved.
    public var expiry: Duration
    /// Number of background tasks that did not end within their share of the budget, and were therefore asked to
    /// stop. Zero for a shutdown without such a share.
    public var asked = 0
    /// Background tasks and handlers that had not ended by then, and were cancelled.
    public var stragglers: [String]
}

/// One deadline for all parts of a shutdown. The first part to begin sets the deadline.
final class ShutdownPlan: Sendable {
    private struct State {
        var began: (at: Duration, budget: Duration, reserve: Duration)?
        var asked: (names: [String], count: Int) = ([], 0)
        /// Background tasks that were asked to stop and did not end.
        var givenUp: [String] = []
        var report: ShutdownReport?
    }

    private let state = Mutex(State())
    private let heartbeat: Heartbeat

    init(heartbeat: Heartbeat) { self.heartbeat = heartbeat }

    var hasBegun: Bool { state.withLock { $0.began != nil } }
    var report: ShutdownReport? { state.withLock { $0.report } }

    /// Begins the shutdown. The first caller's budget holds.
    ///
    /// - Parameter reserve: part of the budget kept for cancelled work to end.
    /// - Returns: true if this call was the first.
    @discardableResult
    func begin(_ budget: Duration, reserve: Duration = .zero) -> Bool {
        let now = heartbeat.running
        return state.withLock { state in
            guard state.began == nil else { return false }
            state.began = (now, budget, reserve)
            return true
        }
    }

    /// Time left for background tasks.
    var timeLeft: Duration {
        let now = heartbeat.running
        return state.withLock { state in
            guard let began = state.began else { return .zero }
            return max(.zero, began.at + began.budget - began.reserve - now)
        }
    }

    /// Records that background tasks were asked to stop.
    ///
    /// - Parameter names: names of the oldest tasks.
    func asked(_ names: [String], _ count: Int) { state.withLock { $0.asked = (names, count) } }

    /// Records background tasks that were given up. Only tasks given up after the start of a shutdown count.
    func givenUp(_ names: [String]) { state.withLock { if $0.began != nil { $0.givenUp += names } } }

    /// Names of the tasks asked to stop as far as recorded, the number of those tasks, and the tasks given up so
    /// far.
    var overdue: (asked: [String], count: Int, givenUp: [String]) {
        state.withLock { ($0.asked.names, $0.asked.count, $0.givenUp) }
    }

    /// - Parameter others: handlers, besides background tasks, that did not end in time.
    func ended(turn: Duration, others: [String]) {
        let now = heartbeat.running
        state.withLock { state in
            guard let began = state.began else { return }
            state.report = ShutdownReport(
                budget: began.budget, drain: turn - began.at, expiry: now - turn, asked: state.asked.count,
                stragglers: state.givenUp + others)
        }
    }

    var now: Duration { heartbeat.running }
}

extension ResourceManager {
    /// Begins a shutdown that must end within `budget`. The process is no longer ready for work, and no background
    /// task can begin. The first call's budget holds.
    ///
    /// - Parameters:
    ///   - budget: total time, by running time. A tenth of it, at most 2 s, is reserved for cancelled work to end.
    ///   - taskShare: share of the budget in which background tasks may end on their own. Afterwards the tasks are
    ///     asked to stop, even if `run()` was not cancelled yet. Cancelling the task of `run()` asks them at once.
    ///     At most 0.8, so that tasks have time to save. With `nil`, tasks are asked once `run()` is cancelled or
    ///     stopped, and then have the rest of the budget.
    /// - Returns: true if this call was the first.
    @discardableResult
    public func beginShutdown(within budget: Duration, taskShare: Double? = nil) -> Bool {
        let reserve = Self.shutdownReserve(of: budget)
        guard parts.shutdown.begin(budget, reserve: reserve) else { return false }
        parts.joined.forEach { $0.refuseWork() }
        if let taskShare {
            parts.tasks.close(askingAfter: budget * max(0, min(taskShare, 0.8)), within: budget - reserve)
        } else {
            parts.tasks.close()
        }
        return true
    }

    /// Returns the part of a shutdown's budget reserved for cancelled work to end.
    package static func shutdownReserve(of budget: Duration) -> Duration { min(budget * 0.1, .seconds(2)) }

    /// Background tasks that were asked to stop in the shutdown, the oldest by name, and the tasks that still did
    /// not end.
    package var overdueTasks: (asked: [String], count: Int, givenUp: [String]) { parts.shutdown.overdue }

    /// Calls `body`, which may block, after `delay` of running time.
    ///
    /// - Returns: a closure that cancels the call.
    package func call(after delay: Duration, _ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        let alarm = parts.alarms.set(.deadline, after: delay) { [threads = parts.threads] in
            threads.run { () -> Void in body() }
        }
        return { alarm.cancel() }
    }

    /// Outcome of the shutdown; `nil` until the shutdown has ended.
    public var shutdownReport: ShutdownReport? { parts.shutdown.report }

    /// True if a shutdown was begun.
    public var isShuttingDown: Bool { parts.shutdown.hasBegun }

    func shutDown() async {
        let parts = parts
        parts.meter.allow(.max, since: .zero)
        parts.volatileMeter.allow(.max, since: .zero)
        parts.shutdown.begin(policy.shutdownBudget)
        let turn = parts.shutdown.now
        // Cancellation does not ask for an orderly end, so tasks get no time of their own then.
        let overran = await withTaskCancellationHandler {
            var overran: [String] = []
            for part in parts.joined.all {
                overran += await part.finish(ManagerEnd(isForPressure: false, budget: parts.shutdown.timeLeft) { _ in })
            }
            await parts.endTasks(allowsOwnEnd: true) { parts.shutdown.timeLeft }
            return overran
        } onCancel: {
            parts.tasks.endOwnTime()
        }
        // The plan records all tasks given up, independent of the reason and the time of the request.
        parts.shutdown.ended(turn: turn, others: overran)
        parts.purgeWorker.stop()
        parts.deliveryWorker.stop()
        await parts.liftRestrictions()
    }
}

extension ManagerParts {
    /// Lets no background task begin any more, asks the running ones to stop, and waits for them within `budget`, off
    /// the cooperative pool.
    func endTasks(allowsOwnEnd: Bool, within budget: @escaping @Sendable () -> Duration) async {
        await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
            threads.run { [tasks] () -> Void in
                tasks.close()
                _ = tasks.expireAndWait(.shutdown, within: budget(), isExtended: true, allowsOwnEnd: allowsOwnEnd)
                done.resume()
            }
        }
    }

    /// Lifts the restrictions of purgeables, which hold while the manager runs. Waits for that within the budget of the
    /// shutdown, off the cooperative pool.
    func liftRestrictions() async {
        guard purger.end() else { return }
        await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
            threads.run { [purger, shutdown, alarms, threads] () -> Void in
                _ = BoundedCalls.run(
                    blocking: [{ @Sendable () -> Void in purger.liftAll() }], within: shutdown.timeLeft, alarms: alarms,
                    threads: threads)
                done.resume()
            }
        }
    }
}

/// Ends the process before the kernel kills it: saves state, and prints one line that lists the purgeables and the
/// bytes they hold.
struct Ending {
    /// Exit status of a process that ended itself under pressure (`EX_TEMPFAIL`): the parent may start the process
    /// again.
    static let status: Int32 = 75

    let parts: ManagerParts
    let time: Timekeeper

    func end(within grace: Duration, after saturation: Duration, _ reading: PressureReading) {
        // The loop takes no turn meanwhile. The promise of one would pass for a freeze, and hold timers and deadlines.
        parts.comeBy(next: nil)
        // The joined parts finish and background tasks end in parallel with the saves, within the same grace.
        let (joined, alarms, deadline, ended) = (parts.joined.all, parts.alarms, time.elapsed() + grace, Parker())
        let saving = Pause()
        parts.threads.run {
            let end = ManagerEnd(isForPressure: true, budget: grace) { limit in
                _ = await saving.wait(limit, on: alarms, endsOnCancellation: false)
            }
            for part in joined { _ = await part.finish(end) }
            await parts.endTasks(allowsOwnEnd: false) { max(.zero, deadline - time.elapsed()) }
            ended.unpark()
        }
        let failures = parts.saves.run(within: grace, threads: parts.threads, time: time)
        saving.end(true)
        ended.park(atMost: max(.zero, deadline - time.elapsed()))
        parts.recorder.withLock { $0 }?.ended(.pressure)
        parts.exit(Self.status, lastLine(saturation, reading, failures))
    }

    func lastLine(_ saturation: Duration, _ reading: PressureReading, _ failures: [String]) -> String {
        var line = "plimsoll: ended after \(Int(saturation.inSeconds)) s of saturation: \(reading.usage) used"
        if let limit = reading.limit { line += " of \(limit)" }
        line += ", resident \(reading.resident)"
        let holders = parts.purgeables.snapshot.map { "\($0.name) \(ByteCount($0.held.load(ordering: .relaxed)))" }
        line += "; held: " + (holders.isEmpty ? "nothing registered" : holders.joined(separator: ", "))
        // Only the oldest tasks, as there may be a million.
        let tasks = parts.tasks.statuses(atMost: 32).map { String($0.name.prefix(120)) }
        let others = parts.tasks.count - tasks.count
        if !tasks.isEmpty {
            line += "; running: " + tasks.joined(separator: ", ") + (others > 0 ? " and \(others) more" : "")
        }
        if !failures.isEmpty { line += "; not saved: " + failures.joined(separator: ", ") }
        // Names and errors are the application's, and may even come from a user, as the name of an upload.
        return printable(line) + "\n"
    }
}

/// Saves to run before the process ends itself.
final class SaveRegistry: Sendable {
    typealias Save = @Sendable (_ timeLeft: Duration) throws -> Void

    private let saves = Mutex<[(name: String, save: Save)]>([])

    func add(_ name: String, _ save: @escaping Save) { saves.withLock { $0.append((name, save)) } }

    /// Runs all saves in parallel on threads of their own, and waits at most `grace` for them.
    ///
    /// - Returns: the saves that failed or did not finish, each with the reason.
    func run(within grace: Duration, threads: HandlerThreads, time: Timekeeper) -> [String] {
        let all = saves.withLock { $0 }
        let done = Parker(), outcomes = Mutex<[Int: String?]>([:])
        let deadline = time.elapsed() + grace
        for (index, (name, save)) in all.enumerated() {
            threads.run {
                var failure: String?
                do { try save(deadline - time.elapsed()) } catch { failure = "\(name) failed: \(error)" }
                outcomes.withLock { [failure] in $0[index] = .some(failure) }
                done.unpark()
            }
        }
        while outcomes.withLock({ $0.count }) < all.count {
            let left = deadline - time.elapsed()
            if left <= .zero { break }
            done.park(atMost: left)
        }
        return all.enumerated().compactMap { index, entry in
            switch outcomes.withLock({ $0[index] }) {
            case .some(.some(let failure)): failure
            case .some(.none): nil
            case .none: "\(entry.name) did not finish within \(grace)"
            }
        }
    }
}
