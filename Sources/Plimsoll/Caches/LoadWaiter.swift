import Synchronization

/// What whoever waits for somebody else's load is told.
enum LoadOutcome<Value: Sendable>: Sendable {
    case value(Value)
    case failure(any Error)
    /// The load of many keys brought nothing for this one.
    case absent
    /// Whoever loaded was cancelled: load yourself.
    case yours
    /// Whoever loaded was cancelled and another loads now, or nobody: ask again.
    case again
    /// The waiter itself was cancelled.
    case cancelled
}

/// A caller in line: a task that is suspended, or a thread that is parked. Whoever settles it first wins.
final class LoadWaiter<Value: Sendable>: Sendable {
    private enum State {
        case new
        case suspended(CheckedContinuation<LoadOutcome<Value>, Never>)
        case parked(Parker)
        case settled(LoadOutcome<Value>)
    }

    private let state = Mutex(State.new)
    /// Whether it takes the load over if its turn comes.
    private let mayLead: Bool

    init(mayLead: Bool) { self.mayLead = mayLead }

    /// Waits in a task.
    func wait() async -> LoadOutcome<Value> {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if let early = settled(or: .suspended(continuation)) { continuation.resume(returning: early) }
            }
        } onCancel: {
            _ = settle(.cancelled)
        }
    }

    /// Waits on the calling thread.
    func park() -> LoadOutcome<Value> {
        let parker = Parker()
        while true {
            if let outcome = settled(or: .parked(parker)) { return outcome }
            parker.park()
        }
    }

    private func settled(or waiting: State) -> LoadOutcome<Value>? {
        let before = state.withLock { state in
            let before = state
            if case .settled = state {} else { state = waiting }
            return before
        }
        if case .settled(let outcome) = before { return outcome }
        return nil
    }

    /// False if it had been settled before.
    func settle(_ outcome: LoadOutcome<Value>) -> Bool {
        let before = state.withLock { state in
            let before = state
            if case .settled = state {} else { state = .settled(outcome) }
            return before
        }
        switch before {
        case .new: return true
        case .suspended(let continuation):
            continuation.resume(returning: outcome)
            return true
        case .parked(let parker):
            parker.unpark()
            return true
        case .settled: return false
        }
    }

    /// Whether somebody has settled it.
    var isSettled: Bool {
        state.withLock { state in
            if case .settled = state { true } else { false }
        }
    }

    /// Hands it the load. False if somebody else must take it.
    func offer() -> Bool {
        guard mayLead else {
            _ = settle(.again)
            return false
        }
        return settle(.yours)
    }
}

/// Somebody who loads. What is done within the load, child tasks included, knows it by a task-local value.
final class LoadToken: Sendable {
    @TaskLocal static var current: LoadToken?

    private let outer: LoadToken?
    init() { outer = Self.current }

    func isWithin(_ other: LoadToken) -> Bool {
        var token: LoadToken? = self
        while let here = token {
            if here === other { return true }
            token = here.outer
        }
        return false
    }
}

/// A load has asked the cache for the very key that it is to load, and would wait for itself for ever.
public struct RecursiveLoadError: Error, Sendable, CustomStringConvertible {
    /// Which key it was.
    public let description: String

    init(_ key: some Sendable) {
        description = """
            value(forKey:orLoad:) was called for the key \(key) from within the load of that key, which would wait for itself; \
            make the value without asking the cache for it, or look with value(forKey:)
            """
    }
}
