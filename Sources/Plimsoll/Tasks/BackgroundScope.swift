import Synchronization

/// One run of `withBackgroundTask`. The thread that runs the sweep cancels the work and resumes the handler.
/// Neither needs the cooperative pool, which the work itself may have filled (T7).
package final class BackgroundScope: Sendable {
    private struct State {
        var reason: ExpirationReason?
        /// True once the work is done, with nothing left to stop.
        var isOver = false
        /// True once the handler has ended, or the scope no longer waits for the handler.
        var isHandled = false
        /// Cancels the work, from any thread.
        var cancelWork: (@Sendable () -> Void)?
        var handler: Task<Void, Never>?
        var waitingHandler: CheckedContinuation<ExpirationReason?, Never>?
        var waitingScope: CheckedContinuation<Void, Never>?
    }

    private let state = Mutex(State())

    /// Runs `body` in a task of its own, so that `body` can be cancelled separately. The task has the task-local
    /// values of this call, and is cancelled with the caller.
    func run<Result: Sendable>(_ body: @escaping @Sendable () async throws -> Result) async throws -> Result {
        let work = Task { @concurrent in try await body() }
        let isLate = state.withLock { state in
            state.cancelWork = { work.cancel() }
            return state.reason != nil
        }
        if isLate { work.cancel() }
        return try await withTaskCancellationHandler {
            try await work.value
        } onCancel: {
            work.cancel()
        }
    }

    /// Calls `handler` once the work must stop, with the task-local values of this call. At the end of the grace,
    /// the handler is cancelled, and the scope stops waiting for the handler (T8).
    func whenExpired(on threads: HandlerThreads, _ handler: @escaping @Sendable (ExpirationReason) async -> Void) {
        let task = Task(executorPreference: threads) { @concurrent [self] in
            guard let reason = await expiry() else { return }
            await handler(reason)
            handled()
        }
        let isLate = state.withLock { state in
            state.handler = task
            return state.isHandled
        }
        // The scope was given up before the handler was set. A handler that has ended meanwhile notices nothing.
        if isLate { task.cancel() }
    }

    private func expiry() async -> ExpirationReason? {
        await withCheckedContinuation { continuation in
            let (isKnown, reason) = state.withLock { state in
                if state.reason == nil, !state.isOver {
                    state.waitingHandler = continuation
                    return (false, nil as ExpirationReason?)
                }
                return (true, state.reason)
            }
            if isKnown { continuation.resume(returning: reason) }
        }
    }

    /// Asks the work to stop. Runs the application's cancellation handlers.
    func expire(_ reason: ExpirationReason) {
        let handler: CheckedContinuation<ExpirationReason?, Never>?? = state.withLock { state in
            guard state.reason == nil, !state.isOver else { return nil }
            state.reason = reason
            return .some(exchange(&state.waitingHandler, nil))
        }
        guard let handler else { return }
        handler?.resume(returning: reason)
        state.withLock { $0.cancelWork }?()
    }

    /// Records that the work is done. Waits for the handler if the handler was called.
    func leave() async {
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            let (waits, handler) = state.withLock { state in
                state.isOver = true
                if state.reason != nil, state.handler != nil, !state.isHandled {
                    state.waitingScope = continuation
                    return (true, nil as CheckedContinuation<ExpirationReason?, Never>?)
                }
                return (false, exchange(&state.waitingHandler, nil))
            }
            handler?.resume(returning: nil)
            if !waits { continuation.resume() }
        }
    }

    private func handled() {
        let scope = state.withLock { state in
            state.isHandled = true
            return exchange(&state.waitingScope, nil)
        }
        scope?.resume()
    }

    /// Stops waiting for the handler and cancels the handler, at the end of the grace.
    func giveUp() {
        handled()
        state.withLock { $0.handler }?.cancel()
    }
}

extension BackgroundTaskRegistry {
    package func withTask<Result: Sendable>(
        _ name: String, _ file: StaticString, _ line: UInt,
        _ body: @escaping @Sendable (BackgroundTask) async throws -> Result,
        onExpiration: (@Sendable (BackgroundTask, ExpirationReason) async -> Void)?,
        begun: (BackgroundTask) -> Void = { _ in }
    ) async throws -> Result {
        let scope = BackgroundScope()
        let task = begin(name, file, line, handler: .scope(scope))
        if let cause = task.record.refusal { throw BackgroundTaskRefusal(cause, of: name, by: self) }
        defer { task.end() }
        begun(task)
        if let onExpiration { scope.whenExpired(on: threads) { await onExpiration(task, $0) } }
        do {
            let value = try await scope.run { try await body(task) }
            await scope.leave()
            return value
        } catch {
            await scope.leave()
            throw error
        }
    }
}
