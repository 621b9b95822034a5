import Synchronization

/// The result delivered to callers that wait for another caller's load.
enum LoadOutcome<Value: Sendable>: Sendable {
    case value(Value)
    case failure(any Error)
    /// The load of many keys returned nothing for this key.
    case absent
    /// The loading caller was cancelled: this waiter takes over the load.
    case yours
    /// The loading caller was cancelled. Ask again: another caller may be loading now, or none.
    case again
    /// The waiter itself was cancelled.
    case cancelled
}

/// A caller in line: a suspended task or a parked thread. The first call that settles the waiter wins.
final class LoadWaiter<Value: Sendable>: Sendable {
    private enum State {
        case new
        case suspended(CheckedContinuation<LoadOutcome<Value>, Never>)
        case parked(Parker)
        case settled(LoadOutcome<Value>)
    }

    private let state = Mutex(State.new)
    /// True if the waiter takes over the load when its turn comes.
    private let mayLead: Bool

    init(mayLead: Bool) { self.mayLead = mayLead }

    /// Waits in a task for the outcome.
    func wait() async -> LoadOutcome<Value> {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if let early = settled(or: .suspended(continuation)) { continuation.resume(returning: early) }
            }
        } onCancel: {
            _ = settle(.cancelled)
        }
    }

    /// Blocks the calling thread until there is an outcome.
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

    /// Settles the waiter with `outcome`. Returns false if the waiter was settled before.
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

    /// True if the waiter has been settled.
    var isSettled: Bool {
        state.withLock { state in
            if case .settled = state { true } else { false }
        }
    }

    /// Offers the load to the waiter. Returns false if another caller must take over the load.
    func offer() -> Bool {
        guard mayLead else {
            _ = settle(.again)
            return false
        }
        return settle(.yours)
    }
}

/// Identifies a running load. Code within the load, child tasks included, finds the token in a task-local value.
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

/// An error thrown when a load asks the cache for the same key, which would wait for itself for ever.
package struct RecursiveLoadError: Error, Sendable, CustomStringConvertible {
    /// A message that names the key.
    package let description: String

    init(_ key: some Sendable) {
        description = """
            value(forKey:orLoad:) was called for the key \(key) from within the load of that key, which would wait for itself; \
            make the value without asking the cache for it, or look with value(forKey:)
            """
    }
}
