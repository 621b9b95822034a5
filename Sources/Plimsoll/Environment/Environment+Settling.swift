import Synchronization

/// What came of the environment on the way back.
struct EnvironmentSettlement: Sendable, Hashable {
    /// Handlers that were called, in the order of their registration, with the time each took (C61).
    var calls: [EnvironmentCall] = []
    /// What was not done when the budget was spent: names of handlers and interceptors, or `"sources"`.
    var late: [String] = []
}

extension Environment {
    /// The way back from a gap: reads every source again, sends out what is different, and returns when those who must be done before admission are done, or
    /// when `budget` of running time is spent. Blocks the calling thread, which is none of the cooperative pool's.
    ///
    /// Between `hold` and this nothing has gone out. Nothing is held back afterwards.
    func settle(within budget: Duration) -> EnvironmentSettlement {
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
        let look = limit.ask(parker)
        let patience = alarms.set(.deadline, after: min(budget, Self.patience)) { [limit] in
            limit.stopAsking()
            parker.unpark()
        }
        var result = EnvironmentSettlement()
        if !wait({ isRead.isOn && limit.isAnswered(look) }) { result.late.append("sources") }
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

    /// The same for a caller that must not block.
    func settle(within budget: Duration) async -> EnvironmentSettlement {
        await withCheckedContinuation { (done: CheckedContinuation<EnvironmentSettlement, Never>) in
            // A thread of its own, as those of handlers may all be stuck.
            let started = Thread.start("plimsoll-settle") { done.resume(returning: self.settle(within: budget)) }
            if !started { threads.run { done.resume(returning: self.settle(within: budget)) } }
        }
    }

    /// How long the loop may take to look at the limit: it is a matter of a millisecond unless it is stuck.
    private static let patience = Duration.milliseconds(500)

    /// Something has been finished that a `settle` may wait for.
    func finished() {
        let waiting = state.withLock { $0.waiting }
        for parker in waiting { parker.unpark() }
    }

    /// The last 64 of those who took too long.
    var slowCalls: [EnvironmentCall] { state.withLock { $0.slow } }

    /// Puts down who took too long.
    func addSlow(_ call: EnvironmentCall) {
        state.withLock { state in
            state.slow.append(call)
            if state.slow.count > 64 { state.slow.removeFirst() }
        }
    }
}

/// Something that happens once.
final class Switch: Sendable {
    // Released and acquired with what was done before it was turned on.
    private let flag = Atomic<Bool>(false)
    func turnOn() { flag.store(true, ordering: .releasing) }
    var isOn: Bool { flag.load(ordering: .acquiring) }
}
