public import Plimsoll
import Synchronization

/// Data that is available only at times: an encrypted volume, a key ring, a sealed secret store (C69).
///
/// The code that mounts and unmounts the data calls `unseal()` and `seal()`. Code that needs the data works within
/// `withProtectedData`, and receives changes through `observe`. Starts unsealed.
public final class ProtectedData: Sendable {
    private final class Observer: Sendable {
        let body: @Sendable (Bool) -> Void
        let gate = CallGate()
        init(_ body: @escaping @Sendable (Bool) -> Void) { self.body = body }
    }

    private struct State {
        var isAvailable = true
        var observers: [Observer] = []
        /// Changes not yet delivered to the observers. `isNotifying` is true while a thread delivers. Changes are
        /// delivered in order, on one thread at a time.
        var undelivered: [Bool] = []
        var isNotifying = false
        var waiting: [UInt64: CheckedContinuation<Bool, Never>] = [:]
        var nextWaiter: UInt64 = 0
    }

    private let state = Mutex(State())
    private let secrets = SecretRegistry()
    private let alarms: Alarms

    init(alarms: Alarms) { self.alarms = alarms }

    /// True if the data is available.
    public var isAvailable: Bool { state.withLock { $0.isAvailable } }

    /// Wipes `secret` when the data is sealed, in addition to the wipes that `lifecycle.keep(_:)` does.
    ///
    /// - Returns: the same secret.
    @discardableResult
    public func keep(_ secret: Secret) -> Secret {
        secrets.add(secret)
        if !isAvailable { secret.wipe() }
        return secret
    }

    /// Marks the data as unavailable: wipes the secrets kept here, then calls the observers, on this thread.
    /// Idempotent.
    ///
    /// - Returns: names of secrets still in use. They are wiped when that use ends.
    @discardableResult
    public func seal() -> [String] {
        change(to: false)
        let inUse = secrets.wipe { _ in true }.inUse.map(\.name)
        notify()
        return inUse
    }

    /// Marks the data as available: calls the observers, on this thread, and resumes waiting tasks. Idempotent.
    public func unseal() {
        let waiting = change(to: true)
        notify()
        for continuation in waiting { continuation.resume(returning: true) }
    }

    /// Registers `body`, called with the availability at each change, in order, one call at a time.
    @discardableResult
    public func observe(_ body: @escaping @Sendable (_ isAvailable: Bool) -> Void) -> Registration {
        let observer = Observer(body)
        state.withLock { $0.observers.append(observer) }
        return Registration(observer.gate) { [weak self] in
            let removed = self?.state.withLock { $0.observers.remove(identicalTo: observer) }
            withExtendedLifetime(removed) {}
        }
    }

    /// Runs `body` if the data is available.
    ///
    /// - Parameters:
    ///   - patience: running time to wait for the data; by default none.
    ///   - body: the work.
    /// - Throws: errors of `body`; `LifecycleError` if the data is not available by then; `CancellationError` if
    ///   the task was cancelled meanwhile.
    public func withProtectedData<Result>(waiting patience: Duration = .zero, _ body: () async throws -> Result)
        async throws -> Result
    {
        guard await becomesAvailable(within: patience) else {
            try Task.checkCancellation()
            throw LifecycleError(
                "cannot use protected data because the data is sealed; unseal the data, or wait longer than \(patience)"
            )
        }
        return try await body()
    }

    // MARK: Changing

    @discardableResult
    private func change(to isAvailable: Bool) -> [CheckedContinuation<Bool, Never>] {
        state.withLock { state in
            guard state.isAvailable != isAvailable else { return [] }
            state.isAvailable = isAvailable
            state.undelivered.append(isAvailable)
            guard isAvailable else { return [] }
            defer { state.waiting = [:] }
            return Array(state.waiting.values)
        }
    }

    /// Delivers waiting changes. Returns at once if another thread, or an observer further up on this one, is
    /// delivering: that one continues.
    private func notify() {
        guard
            state.withLock({ state in
                return !exchange(&state.isNotifying, true)
            })
        else { return }
        while let (isAvailable, observers) = next() {
            for observer in observers { _ = observer.gate.call { observer.body(isAvailable) } }
        }
    }

    private func next() -> (Bool, [Observer])? {
        state.withLock { state in
            guard !state.undelivered.isEmpty else {
                state.isNotifying = false
                return nil
            }
            return (state.undelivered.removeFirst(), state.observers)
        }
    }

    // MARK: Waiting

    private func becomesAvailable(within patience: Duration) async -> Bool {
        let number: UInt64? = state.withLock { state in
            if state.isAvailable { return nil }
            state.nextWaiter += 1
            return state.nextWaiter
        }
        guard let number else { return true }
        guard patience > .zero else { return false }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let early: Bool? = state.withLock { state in
                    if state.isAvailable || Task.isCancelled { return state.isAvailable }
                    state.waiting[number] = continuation
                    return nil
                }
                if let early { return continuation.resume(returning: early) }
                alarms.set(.deadline, after: patience) { [weak self] in self?.giveUp(number) }
                if Task.isCancelled { giveUp(number) }
            }
        } onCancel: {
            giveUp(number)
        }
    }

    private func giveUp(_ number: UInt64) {
        state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(returning: false)
    }
}
