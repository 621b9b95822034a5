extension ResourceManager {
    /// Begins a piece of background work and returns its token.
    ///
    /// - Parameters:
    ///   - name: name of the work in reports.
    ///   - file: file of the call, for reports of dropped tasks.
    ///   - line: line of the call.
    ///   - onExpiration: called on a thread of the manager if the work must stop. The handler should save what is
    ///     needed and call `end()` on its task. The call may come before this method returns.
    /// - Returns: the token. If the work may not begin now, the token is inactive, and `refusal` contains the
    ///   reason.
    public func beginBackgroundTask(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        onExpiration: @escaping @Sendable (BackgroundTask, ExpirationReason) -> Void
    ) -> BackgroundTask {
        let tasks = parts.tasks
        return tasks.begin(name, file, line, handler: .blocking(tasks.carryingContext(onExpiration)))
    }

    /// Runs `body` as background work: cancelled when the work must stop, ended when `body` returns.
    ///
    /// - Parameters:
    ///   - name: name of the work in reports.
    ///   - file: file of the call, for reports.
    ///   - line: line of the call.
    ///   - body: the work. Expiration cancels the task that runs `body`.
    ///   - onExpiration: runs in parallel with the cancelled work, off the cooperative pool, under the same
    ///     deadline.
    /// - Returns: the result of `body`.
    /// - Throws: errors of `body`, or `BackgroundTaskRefusal` if the work may not begin.
    public func withBackgroundTask<Result: Sendable>(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (BackgroundTask) async throws -> Result,
        onExpiration: (@Sendable (BackgroundTask, ExpirationReason) async -> Void)? = nil
    ) async throws -> Result {
        try await parts.tasks.withTask(name, file, line, body, onExpiration: onExpiration)
    }

    /// The running background tasks, oldest first.
    public var backgroundTasks: [BackgroundTaskStatus] { parts.tasks.statuses }

    /// The last 64 background tasks dropped without `end()`, with the place where each was begun. These tasks count as
    /// ended.
    public var leakedBackgroundTasks: [BackgroundTaskStatus] { parts.tasks.leaks }

    /// Time left for the process in the background; `nil` in the foreground, where no time is counted.
    public var backgroundTimeRemaining: Duration? { parts.tasks.allowanceLeft }

    /// Asks every running background task to stop, also those of scenes, waits up to `grace`, and gives up the rest.
    ///
    /// Blocks the calling thread; for an operator's command or a signal, not for the cooperative pool.
    ///
    /// - Parameters:
    ///   - reason: reason passed to handlers.
    ///   - grace: by running time. If tasks are being asked already, the earlier deadline holds.
    /// - Returns: the names of the tasks that were still running.
    @discardableResult
    public func expireBackgroundTasks(_ reason: ExpirationReason, within grace: Duration) -> [String] {
        parts.sceneTasks.expireAllAndWait(reason, within: grace)
    }

    /// Calls `body` with the additional time needed while a shutdown waits for background tasks. The first call
    /// comes before the wait. Further calls follow whenever half of that time has passed, but none while no task is
    /// alive. For a service manager that would otherwise end the process earlier (`EXTEND_TIMEOUT_USEC=`).
    public func onStopTimeoutExtension(_ body: @escaping @Sendable (_ duration: Duration) -> Void) {
        parts.tasks.listen { $0.whenTimeIsNeeded = body }
    }

    /// Captures the context of each `beginBackgroundTask` (a tracing context, for example) and restores the context
    /// around the expiration handler. Costs nothing unless called. Work in `withBackgroundTask` keeps its
    /// task-local values without this.
    ///
    /// - Parameter capture: called whenever a task begins; returns a function that runs its argument with the captured
    ///   context.
    /// - Returns: false if a capture was set before; the first one stays.
    @discardableResult
    public func carryContext(_ capture: @escaping @Sendable () -> @Sendable (_ body: () -> Void) -> Void) -> Bool {
        parts.tasks.carryContext(capture)
    }
}

extension ResourceManager {
    /// Work that may wait for a better time.
    public var deferred: DeferredTasks { parts.deferred }
}

extension ResourceManager {
    /// Offers handed-over work of expiring tasks to `sink`. If `sink` returns, the work is accepted, and never
    /// offered again. If `sink` throws, the work is kept for `claimHandovers`.
    public func onHandover(_ sink: @escaping @Sendable (Handover) async throws -> Void) {
        parts.tasks.handovers.setSink(sink)
    }

    /// Keeps handed-over work in `store` until accepted. Work that cannot be read stays as it is, and `store` is not
    /// used; a later call may succeed.
    ///
    /// - Returns: the reason why work of an earlier run could not be adopted or written; `nil` on success.
    @discardableResult
    public func persistHandovers(in store: any StateStore) -> String? { parts.tasks.handovers.persist(in: store) }

    /// Returns handed-over work that is not accepted, oldest first, including the work of earlier runs. Each work item
    /// is returned once per run. Call `accept()` when a work item is done, else the next start receives the item
    /// again.
    public func claimHandovers() -> [Handover] { parts.tasks.handovers.claim() }
}
