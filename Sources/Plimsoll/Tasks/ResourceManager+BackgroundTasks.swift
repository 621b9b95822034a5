extension ResourceManager {
    /// Begins a piece of background work and returns its token.
    ///
    /// - Parameters:
    ///   - name: what the work is called in reports.
    ///   - onExpiration: called on a thread of the manager's if the work must stop; it should save what is worth it and
    ///     `end()` the task it is given. It may run before this call returns.
    /// - Returns: the token. If the work may not begin now it is inactive from the start, and `refusal` says why.
    public func beginBackgroundTask(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        onExpiration: @escaping @Sendable (BackgroundTask, ExpirationReason) -> Void
    ) -> BackgroundTask {
        parts.tasks.begin(name, origin: "\(file):\(line)", handler: .blocking(onExpiration))
    }

    /// Runs `body` as background work: cancelled when it must stop, ended when it returns.
    ///
    /// - Parameters:
    ///   - name: what the work is called in reports.
    ///   - body: the work. When it expires, the task it runs in is cancelled.
    ///   - onExpiration: runs beside the cancelled work, off the cooperative pool, bounded by the same deadline.
    /// - Returns: what `body` returns.
    /// - Throws: what `body` throws, or `BackgroundTaskRefusal` if it may not begin.
    public func withBackgroundTask<Result: Sendable>(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (BackgroundTask) async throws -> Result,
        onExpiration: (@Sendable (BackgroundTask, ExpirationReason) async -> Void)? = nil
    ) async throws -> Result {
        let (expired, signal) = AsyncStream.makeStream(of: Never.self)
        let task = parts.tasks.begin(
            name, origin: "\(file):\(line)",
            handler: .asynchronous { task, reason in
                signal.finish()
                await onExpiration?(task, reason)
            })
        if let refusal = task.refusal { throw BackgroundTaskRefusal(description: refusal) }
        defer { task.end() }

        // Two children: the work, and a watch that ends when it must stop. Whichever ends first ends the other.
        return try await withThrowingTaskGroup(of: Result?.self) { group in
            group.addTask { try await body(task) }
            group.addTask {
                for await _ in expired {}
                return nil
            }
            while let finished = try await group.next() {
                if let finished {
                    group.cancelAll()
                    return finished
                }
                group.cancelAll()
            }
            throw CancellationError()
        }
    }

    /// The running background tasks, oldest first.
    public var backgroundTasks: [BackgroundTaskStatus] { parts.tasks.statuses }

    /// The last 64 background tasks that were dropped without `end()`, with the place where each was begun. They count as ended.
    public var leakedBackgroundTasks: [BackgroundTaskStatus] { parts.tasks.leaks }

    /// Time the process may go on in the background; `nil` while in the foreground, where it is not counted.
    public var backgroundTimeRemaining: Duration? { nil }

    /// Asks every running background task to stop, waits up to `grace`, and gives up the rest.
    ///
    /// Blocks the calling thread; for an operator's command or a signal, not for the cooperative pool.
    ///
    /// - Returns: the names of the tasks that were still running.
    @discardableResult
    public func expireBackgroundTasks(_ reason: ExpirationReason, within grace: Duration) -> [String] {
        guard parts.tasks.expire(reason, within: grace) > 0 else { return [] }
        parts.tasks.awaitExpiry(within: grace)
        return parts.tasks.giveUpStragglers()
    }
}

/// A background task that may not begin.
public struct BackgroundTaskRefusal: Error, Sendable, Hashable, CustomStringConvertible {
    /// Which task, and why not.
    public var description: String
}
