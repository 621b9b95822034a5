import Plimsoll

extension Lifecycle {
    /// Announces that the host is about to sleep. Background tasks expire, and the process stays in the background
    /// until the host has woken (C11).
    ///
    /// For programs that learn of the sleep in advance, as from logind's `PrepareForSleep`. Without this call, the
    /// sleep is noticed afterwards, by `CLOCK_BOOTTIME`.
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func hostWillSleep() async throws -> LifecycleReport {
        async let expired: Void = expireTasks(.hostSleep)
        let report = try await settle(.hostSleep) { $0.isHostAsleep = true }
        await expired
        return report
    }

    /// Announces that the host has woken. The manager calls this method when it finds that the host slept; a second
    /// call does no harm.
    ///
    /// - Throws: `LifecycleError` once the process has terminated.
    @discardableResult
    public func hostDidWake() async throws -> LifecycleReport {
        try await settle(.hostSleep) { $0.isHostAsleep = false }
    }

    /// Expires all background tasks, off the cooperative pool, within the background deadline.
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
