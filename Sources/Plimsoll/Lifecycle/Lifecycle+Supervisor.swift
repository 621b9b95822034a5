/// What a supervisor asks of a process from outside.
extension Lifecycle {
    /// As `enterBackground(cause:)`, in less time than the policy gives, if need be: it will be frozen then, whether it is done or not.
    @discardableResult
    package func enterBackground(cause: LifecycleCause, within budget: Duration) async throws -> LifecycleReport {
        try await settle(cause, within: min(budget, policy.backgroundDeadline)) { $0.isInBackground = true }
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

    /// Saves all preserved state that has changed, on threads of the manager's.
    ///
    /// - Returns: what was not saved within `limit`, and why not.
    package func checkpoint(within limit: Duration) async -> [PreservationFailure] {
        await withCheckedContinuation { done in
            threads.run { () -> Void in done.resume(returning: self.preservation.checkpoint(within: limit)) }
        }
    }
}
