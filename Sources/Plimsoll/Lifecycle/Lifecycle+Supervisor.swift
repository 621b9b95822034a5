/// What a supervisor asks of a process from outside.
extension Lifecycle {
    /// As `enterBackground(cause:)`, in less time than the policy gives, if need be: it will be frozen then, whether it is done or not.
    @discardableResult
    package func enterBackground(cause: LifecycleCause, within budget: Duration) async throws -> LifecycleReport {
        let budget = min(budget, policy.backgroundDeadline), end = alarms.heartbeat.running + budget
        let report = try await settle(cause, within: budget) { $0.isInBackground = true }
        // Already there: since then it may have run, woken by the supervisor, and changed what was saved (C46).
        if report.transitions.isEmpty { await standStillAgain(cause, until: end) }
        return report
    }

    /// In the background, saves what has changed since the process went there, and erases again what came back since.
    private func standStillAgain(_ cause: LifecycleCause, until end: Duration) async {
        await unit.engine.arriveAgain { [keeping] in
            let transition = LifecycleTransition(from: .background, to: .background, cause: cause, sequence: 0, at: alarms.heartbeat.running)
            let context = LifecycleContext(transition, deadline: end, heartbeat: alarms.heartbeat)
            var report = LifecycleReport(target: .background)
            for stage in keeping.afterWake { report.add(await stage(context)) }
            if !report.isClean { book(report) }
            return report.isClean
        }
    }

    /// Whether all was saved and given back on the way into the background, or to the end, where the process is now; `nil` while it is nowhere of the kind or
    /// has begun to come back. By the way itself: of several who asked for it, the last may have seen its end only.
    package var arrival: Bool? { unit.engine.arrival }

    /// Called first of all on the way out of the background, before anybody could accept anything new; it should take no time.
    package func onComingBack(_ name: String, _ body: @escaping @Sendable () async -> Void) -> Registration {
        unit.observers.add(.init(name, "supervisor", { _ in await body() }), at: .comeBack)
    }

    /// Runs `body` on a thread of the manager's, off the cooperative pool: what a supervisor asks for must be done when all of that is busy, too.
    package func runAside(_ body: @escaping @Sendable () async -> Void) { threads.run(body) }

    /// Saves all preserved state that has changed, on threads of the manager's. In the background, once no task is left
    /// that may use them, secrets that came back are erased as well (C46).
    ///
    /// - Returns: what was not saved within `limit`, and why not.
    package func checkpoint(within limit: Duration) async -> [PreservationFailure] {
        await withCheckedContinuation { done in
            threads.run { () -> Void in
                let failures = self.preservation.checkpoint(within: limit)
                if self.state == .background, !self.tasks.hasLiveTasks { _ = self.scrub.run(.wake) }
                done.resume(returning: failures)
            }
        }
    }
}
