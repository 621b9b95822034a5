public import Plimsoll
import Synchronization

/// Automatic suspension of scenes that are hidden and unused.
extension Scene {
    /// Marks the scene as hidden, which starts the time to automatic suspension.
    func hide() {
        let now = lifecycle.alarms.heartbeat.running
        contents.withLock { $0.hiddenSince = now }
        watchIdleness()
    }

    /// Cancels automatic suspension: the scene comes to the front, or ends.
    func unhide() {
        let alarm = contents.withLock { contents in
            contents.rests = false
            return exchange(&contents.restAlarm, nil)
        }
        alarm?.cancel()
    }

    /// Suspends the scene once hidden and unused for the policy's time, with no live background task.
    func watchIdleness() {
        guard let limit = lifecycle.policy.sceneSuspendsAfter, state == .background else { return }
        let now = lifecycle.alarms.heartbeat.running
        let left = contents.withLock { max($0.hiddenSince, $0.lastUsed) } + limit - now
        if left <= .zero {
            // The end of the last live task calls this method again.
            guard !tasks.hasLiveTasks else { return }
            lifecycle.threads.run { await self.rest() }
            return
        }
        let alarm = lifecycle.alarms.set(.deadline, after: left) { [weak self] in self?.watchIdleness() }
        let former = contents.withLock { exchange(&$0.restAlarm, alarm) }
        former?.cancel()
    }

    private func rest() async {
        contents.withLock { if $0.wanted > .notRunning { $0.rests = true } }
        _ = try? await follow(.idle, within: lifecycle.policy.backgroundDeadline)
    }

    /// Wakes the scene for work behind the front. A suspended scene goes on in the background.
    func wake() async {
        let wanted = contents.withLock { $0.wanted }
        if wanted == .suspended {
            _ = try? await go(.background, .operator)
        } else if state == .suspended {
            _ = try? await go(wanted, .operator)
        } else {
            touch()
        }
    }
}

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

    /// Number of running background tasks of this scene.
    package var runningTasks: Int { tasks.count }

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
