extension Lifecycle {
    /// The host is about to sleep: background tasks expire, and the process goes into the background until the host has woken (C11).
    ///
    /// For who hears of it beforehand, as from logind's `PrepareForSleep`. Without it the sleep is noticed afterwards, by `CLOCK_BOOTTIME`.
    ///
    /// - Throws: `LifecycleError` once it has terminated.
    @discardableResult
    public func hostWillSleep() async throws -> LifecycleReport {
        async let expired: Void = expireTasks(.hostSleep)
        let report = try await settle(.hostSleep) { $0.isHostAsleep = true }
        await expired
        return report
    }

    /// The host has woken. Called by the manager when it finds that it slept; calling it as well does no harm.
    ///
    /// - Throws: `LifecycleError` once it has terminated.
    @discardableResult
    public func hostDidWake() async throws -> LifecycleReport { try await settle(.hostSleep) { $0.isHostAsleep = false } }

    /// Has all background tasks expire, off the cooperative pool, within the deadline of the background.
    private func expireTasks(_ reason: ExpirationReason) async {
        let (tasks, budget) = (tasks, policy.backgroundDeadline)
        await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
            threads.run { () -> Void in
                _ = tasks.expireAndWait(reason, within: budget)
                done.resume()
            }
        }
    }
}
