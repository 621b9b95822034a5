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
        guard let limit = lifecycle.policy.sceneSuspendsAfter else { return }
        let now = lifecycle.alarms.heartbeat.running
        let left = contents.withLock { $0.idleSince } + limit - now
        if left <= .zero {
            // Only now: on the way, another request may still change the target. Not `state`: when a scene comes up in
            // the background, that state is published only after `hide`. The end of the last live task calls this
            // method again.
            guard unit.engine.target == .background, !tasks.hasLiveTasks else { return }
            lifecycle.threads.run { await self.rest() }
            return
        }
        let alarm = lifecycle.alarms.set(.deadline, after: left) { [weak self] in self?.watchIdleness() }
        let former = contents.withLock { exchange(&$0.restAlarm, alarm) }
        former?.cancel()
    }

    /// Suspends the scene if still idle: the scene may have been used, or have begun a task, since the decision.
    func rest() async {
        guard let limit = lifecycle.policy.sceneSuspendsAfter else { return }
        let now = lifecycle.alarms.heartbeat.running, isBusy = tasks.hasLiveTasks
        let decision: RestDecision = contents.withLock { contents in
            // A scene that is about to end needs no further watch.
            guard contents.wanted > .notRunning else { return .ends }
            guard !isBusy, contents.idleSince + limit <= now else { return .stays }
            contents.rests = true
            return .rests
        }
        switch decision {
        case .ends: return
        case .stays: return watchIdleness()
        case .rests: break
        }
        _ = try? await follow(.idle, within: lifecycle.policy.backgroundDeadline)
        // A task may have begun after the look at the tasks, before the suspension refused new ones.
        if tasks.hasLiveTasks, contents.withLock({ $0.rests }) { await wake() }
        // This request may have taken over the way down from another, which then left the process where it was.
        try? await lifecycle.followScenes(.idle)
        // A request may have revoked the decision before the first step.
        watchIdleness()
    }

    /// Wakes the scene for work behind the front. A suspended scene goes on in the background.
    func wake() async {
        let now = lifecycle.alarms.heartbeat.running
        // Under one lock: either `rest` finds this use, or this call finds the decision to rest.
        let (wanted, rests) = contents.withLock { contents in
            contents.lastUsed = now
            return (contents.wanted, contents.rests)
        }
        if wanted == .suspended {
            _ = try? await go(.background, .operator)
        } else if rests || state == .suspended {
            _ = try? await go(wanted, .operator)
        }
    }
}

extension Scene {
    /// The result of the second look at an idle scene, right before the suspension.
    fileprivate enum RestDecision { case ends, stays, rests }
}

extension Scene.Contents {
    /// The last time at which the scene was hidden or used.
    fileprivate var idleSince: Duration { max(hiddenSince, lastUsed) }
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
    /// four routes (C78). The registration ends with the scene.
    @discardableResult
    public func onMemoryWarning(_ body: @escaping @Sendable (PressureEvent) -> Void) -> Registration {
        let registration = lifecycle.observeWarnings("scene \(id)") { [weak self] event in
            if self?.state == .active { body(event) }
        }
        let isEnding = contents.withLock { contents in
            guard contents.wanted > .notRunning else { return true }
            contents.warnings.append(registration)
            return false
        }
        // The list of a scene that ends may have been emptied already.
        if isEnding { registration.cancel() }
        return Registration(close: registration.cancel) { [weak self] in
            let gone = self?.contents.withLock { $0.warnings.remove(identicalTo: registration) }
            withExtendedLifetime(gone) {}
        }
    }

    /// Ends the registrations for memory warnings: the scene has ended.
    func forgetWarnings() {
        let registrations = contents.withLock { exchange(&$0.warnings, []) }
        guard !registrations.isEmpty else { return }
        // On another thread, because a cancellation waits for a call in progress, which may wait for the scene's end.
        lifecycle.threads.run { for registration in registrations { registration.cancel() } }
    }
}
