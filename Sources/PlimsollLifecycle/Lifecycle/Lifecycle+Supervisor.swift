package import Plimsoll

/// Requests that a supervisor makes of a process from outside.
extension Lifecycle {
    /// Enters the background as `enterBackground(cause:)` does, in less time than the policy gives if needed. The
    /// process is frozen at the end of `budget`, finished or not.
    ///
    /// - Parameter isCurrent: returns false if a later request has overtaken this one, which then changes nothing.
    ///   Called under a lock.
    @discardableResult
    package func enterBackground(
        cause: LifecycleCause, within budget: Duration, isCurrent: @escaping @Sendable () -> Bool = { true }
    ) async throws -> LifecycleReport {
        let budget = min(budget, policy.backgroundDeadline), end = alarms.heartbeat.running + budget
        let report = try await reconcile(cause, within: budget) { if isCurrent() { $0.isInBackground = true } }
        // Already in the background. Since then the supervisor may have woken the process, which may have changed
        // saved state (C46).
        if report.transitions.isEmpty { await prepareToSuspendAgain(cause, until: end) }
        return report
    }

    /// Leaves the background as `enterForeground(cause:)` does, unless a later request has overtaken this one.
    ///
    /// - Parameter isCurrent: as for `enterBackground(cause:within:isCurrent:)`.
    @discardableResult
    package func enterForeground(cause: LifecycleCause, isCurrent: @escaping @Sendable () -> Bool) async throws
        -> LifecycleReport
    {
        try await reconcile(cause) { if isCurrent() { $0.isInBackground = false } }
    }

    /// Saves what has changed since the process entered the background, and erases secrets that came back since.
    private func prepareToSuspendAgain(_ cause: LifecycleCause, until end: Duration) async {
        await unit.engine.arriveAgain { [keeping] in
            let transition = LifecycleTransition(
                from: .background, to: .background, cause: cause, sequence: 0, at: alarms.heartbeat.running)
            let context = LifecycleContext(transition, deadline: end, heartbeat: alarms.heartbeat)
            var report = LifecycleReport(target: .background)
            for stage in keeping.afterWake { report.add(await stage(context)) }
            if !report.isClean { recordReport(report) }
            return report.isClean
        }
    }

    /// True if all state was saved and all resources were released on the way into the current background or
    /// termination.
    ///
    /// `nil` in other states, and once the process has begun to come back. Covers the whole way, as the last of
    /// several requesters may have seen only its end.
    package var arrival: Bool? { unit.engine.arrival }

    /// Registers a hook that is called first on the way out of the background, before new work can be accepted. The
    /// hook should take no time.
    package func onComingBack(_ name: String, _ body: @escaping @Sendable () async -> Void) -> Registration {
        unit.observers.add(.init(name, "supervisor", { _ in await body() }), at: .comeBack)
    }

    /// Runs `body` on one of the manager's threads, off the cooperative pool. A supervisor's request must be served
    /// even when the whole pool is busy.
    package func runAside(_ body: @escaping @Sendable () async -> Void) { threads.run(body) }

    /// Saves all preserved state that has changed, on the manager's threads.
    ///
    /// In the background, also releases the stores' locks (C48), and erases secrets that came back, once no live task
    /// may use them (C46).
    ///
    /// - Returns: The items that were not saved within `limit`, each with the reason.
    package func checkpoint(within limit: Duration) async -> [PreservationFailure] {
        await withCheckedContinuation { done in
            threads.run { () -> Void in
                let failures = self.preservation.checkpoint(within: limit)
                if self.state == .background {
                    if failures.isEmpty { self.preservation.relinquish() }
                    if !self.tasks.hasLiveTasks { _ = self.scrub.run(.wake) }
                }
                done.resume(returning: failures)
            }
        }
    }
}
