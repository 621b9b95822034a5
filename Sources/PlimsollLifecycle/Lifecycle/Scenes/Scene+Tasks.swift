public import Plimsoll

extension Scene {
    /// Begins a background task as `ResourceManager.beginBackgroundTask` does, on the allowance of this scene.
    public func beginBackgroundTask(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        onExpiration: @escaping @Sendable (BackgroundTask, ExpirationReason) -> Void
    ) -> BackgroundTask {
        tasks.begin(name, file, line, handler: .blocking(tasks.carryingContext(onExpiration)))
    }

    /// Runs `body` as a background task as `ResourceManager.withBackgroundTask` does, on the allowance of this scene.
    ///
    /// - Throws: The error of `body`, or `BackgroundTaskRefusal` if the task may not begin.
    public func withBackgroundTask<Result: Sendable>(
        _ name: String, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (BackgroundTask) async throws -> Result,
        onExpiration: (@Sendable (BackgroundTask, ExpirationReason) async -> Void)? = nil
    ) async throws -> Result {
        try await tasks.withTask(name, file, line, body, onExpiration: onExpiration)
    }

    /// The background tasks of this scene, oldest first.
    public var backgroundTasks: [BackgroundTaskStatus] { tasks.statuses }

    /// The time that this scene may go on in the background. `nil` while in front, where time is not counted.
    public var backgroundTimeRemaining: Duration? { tasks.allowanceLeft }

    /// Registers `body` for memory warnings while this scene is active, on the manager's delivery thread: one of the
    /// four routes (C78).
    @discardableResult
    public func onMemoryWarning(_ body: @escaping @Sendable (PressureEvent) -> Void) -> Registration {
        lifecycle.observeWarnings("scene \(id)") { [weak self] event in
            if self?.state == .active { body(event) }
        }
    }
}
