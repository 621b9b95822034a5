import Plimsoll
import Synchronization

/// The outcome of a resynchronization of the environment on the way back from a gap.
struct EnvironmentResync: Sendable, Hashable {
    /// Handlers that were called, in the order of their registration, with the time each took (C61).
    var calls: [EnvironmentCall] = []
    /// Work that was not done when the budget was spent: names of handlers and interceptors, or `"sources"`.
    var late: [String] = []
}

extension Environment {
    /// Resynchronizes the environment on the way back from a gap: reads every source and sends the differences.
    ///
    /// Returns when all handlers needed for admission are done, or when `budget` of running time is spent. Blocks the
    /// calling thread, which must not be one of the cooperative pool. Nothing goes out between `hold` and this call.
    /// Nothing is held back afterwards.
    func resync(within budget: Duration) -> EnvironmentResync {
        let hold = hold()
        let parker = Parker()
        let isOver = Switch()
        let alarm = alarms.set(.deadline, after: budget) {
            isOver.turnOn()
            parker.unpark()
        }
        state.withLock { $0.waiting.append(parker) }
        defer {
            alarm.cancel()
            state.withLock { $0.waiting.removeAll { $0 === parker } }
        }
        func wait(_ condition: () -> Bool) -> Bool {
            while !condition() {
                if isOver.isOn { return false }
                alarms.wait(on: parker)
            }
            return true
        }

        let isRead = Switch()
        threads.run { [watch] in
            watch.refresh()
            isRead.turnOn()
            parker.unpark()
        }
        let reading = limit.ask(parker)
        let patience = alarms.set(.deadline, after: min(budget, Self.patience)) { [limit] in
            limit.stopAsking()
            parker.unpark()
        }
        var result = EnvironmentResync()
        if !wait({ isRead.isOn && limit.isAnswered(reading) }) { result.late.append("sources") }
        patience.cancel()
        limit.stopAsking()

        let observers = state.withLock { $0.observers }
        for observer in observers { observer.startRound() }
        distribute(hold)
        let isDistributed = wait { state.withLock { $0.drainer == nil } }
        release(hold)
        if !isDistributed { result.late += state.withLock { $0.interceptors }.filter(\.gate.isBusy).map(\.name) }
        _ = wait { observers.allSatisfy(\.isIdle) }
        result.calls = observers.compactMap { $0.round(at: alarms.heartbeat.running) }
        result.late += observers.filter { !$0.isIdle }.map(\.name)
        return result
    }

    /// Resynchronizes as above, for a caller that must not block.
    func resync(within budget: Duration) async -> EnvironmentResync {
        await withCheckedContinuation { (done: CheckedContinuation<EnvironmentResync, Never>) in
            // A separate thread, because all handler threads may be stuck.
            let started = Thread.start("plimsoll-resync") { done.resume(returning: self.resync(within: budget)) }
            if !started { threads.run { done.resume(returning: self.resync(within: budget)) } }
        }
    }

    /// Time limit for the loop's reading of the memory limit. A reading takes about a millisecond unless the loop is
    /// stuck.
    private static let patience = Duration.milliseconds(500)

    /// Unparks the threads in `resync` after a piece of work has finished.
    func finished() {
        let waiting = state.withLock { $0.waiting }
        for parker in waiting { parker.unpark() }
    }

    /// The last 64 calls that took too long.
    var slowCalls: [EnvironmentCall] { state.withLock { $0.slow } }

    /// Records a call that took too long.
    func addSlow(_ call: EnvironmentCall) {
        state.withLock { state in
            state.slow.append(call)
            if state.slow.count > 64 { state.slow.removeFirst() }
        }
    }
}
