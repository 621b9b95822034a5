extension ResourceManager {
    /// Begins a piece of background work and returns its token.
    ///
    /// - Parameters:
    ///   - name: what the work is called in reports.
    ///   - file: where it is begun, for reports of tasks that were dropped.
    ///   - line: the line there.
    ///   - onExpiration: called on a thread of the manager's if the work must stop; it should save what is worth it and
    ///     `end()` the task it is given. It may run before this call returns.
    /// - Returns: the token. If the work may not begin now it is inactive from the start, and `refusal` says why.
    public func beginBackgroundTask(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        onExpiration: @escaping @Sendable (BackgroundTask, ExpirationReason) -> Void
    ) -> BackgroundTask {
        let tasks = parts.tasks
        return tasks.begin(name, file, line, handler: .blocking(tasks.carryingContext(onExpiration)))
    }

    /// Runs `body` as background work: cancelled when it must stop, ended when it returns.
    ///
    /// - Parameters:
    ///   - name: what the work is called in reports.
    ///   - file: where it is begun, for reports.
    ///   - line: the line there.
    ///   - body: the work. When it expires, the task it runs in is cancelled.
    ///   - onExpiration: runs beside the cancelled work, off the cooperative pool, bounded by the same deadline.
    /// - Returns: what `body` returns.
    /// - Throws: what `body` throws, or `BackgroundTaskRefusal` if it may not begin.
    public func withBackgroundTask<Result: Sendable>(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (BackgroundTask) async throws -> Result,
        onExpiration: (@Sendable (BackgroundTask, ExpirationReason) async -> Void)? = nil
    ) async throws -> Result {
        try await parts.tasks.withTask(name, file, line, body, onExpiration: onExpiration)
    }

    /// The running background tasks, oldest first.
    public var backgroundTasks: [BackgroundTaskStatus] { parts.tasks.statuses }

    /// The last 64 background tasks that were dropped without `end()`, with the place where each was begun. They count as ended.
    public var leakedBackgroundTasks: [BackgroundTaskStatus] { parts.tasks.leaks }

    /// Time the process may go on in the background; `nil` while in the foreground, where it is not counted.
    public var backgroundTimeRemaining: Duration? { parts.tasks.allowanceLeft }

    /// Asks every running background task to stop, waits up to `grace`, and gives up the rest.
    ///
    /// Blocks the calling thread; for an operator's command or a signal, not for the cooperative pool.
    ///
    /// - Parameters:
    ///   - reason: what handlers are told.
    ///   - grace: by running time. If tasks are being asked already, the earlier deadline holds.
    /// - Returns: the names of the tasks that were still running.
    @discardableResult
    public func expireBackgroundTasks(_ reason: ExpirationReason, within grace: Duration) -> [String] {
        parts.tasks.expireAndWait(reason, within: grace)
    }

    /// Has `body` told how much more time is needed while background tasks are waited for in a shutdown: before the wait begins, and again whenever
    /// half of that has passed; never while no task lives. For a service manager that would end the process before (`EXTEND_TIMEOUT_USEC=`).
    public func onStopTimeoutExtension(_ body: @escaping @Sendable (_ duration: Duration) -> Void) {
        parts.tasks.listen { $0.whenTimeIsNeeded = body }
    }

    /// Has what surrounds each `beginBackgroundTask` (a tracing context, say) captured there and restored around its expiration handler.
    /// Nothing is spent on it unless this is called. Work in `withBackgroundTask` keeps its task-local values by itself.
    ///
    /// - Parameter capture: called by each begin; returns what runs its argument with what was captured.
    /// - Returns: false if it was set before: the first one stays.
    @discardableResult
    public func carryContext(_ capture: @escaping @Sendable () -> @Sendable (_ body: () -> Void) -> Void) -> Bool {
        parts.tasks.carryContext(capture)
    }
}
