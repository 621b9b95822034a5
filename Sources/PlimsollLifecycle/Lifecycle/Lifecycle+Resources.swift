public import Plimsoll

extension Lifecycle {
    /// Names of the exclusive resources held now. The list should be empty in the background; a supervisor reads the
    /// list before freezing the process.
    public var heldResources: [String] { exclusive.held }
}

extension Lifecycle {
    /// Registers `scrub`, which runs last on the way to the background, after each wake-up there, before a freeze and
    /// before a snapshot.
    ///
    /// The call is synchronous on purpose: when `scrub` returns, the data must be erased. Work that `scrub` only
    /// schedules comes too late and does not count (C45). All scrub hooks run concurrently on threads of the library.
    /// They share a budget of one second; hooks that exceed the budget are named in the report.
    ///
    /// - Complexity: O(1); cancelling is O(hooks).
    @discardableResult
    public func onScrub(_ name: String, _ scrub: @escaping @Sendable () -> Void) -> Registration {
        self.scrub.add(name, scrub)
    }

    /// Wipes `secret` on the way to the background unless the secret `keepsInBackground`, before every snapshot, at
    /// termination, and when one of its tags is revoked.
    ///
    /// Does not keep the secret alive: a secret is also wiped when the last reference is released.
    ///
    /// - Returns: the same secret.
    @discardableResult
    public func keep(_ secret: Secret) -> Secret {
        scrub.secrets.add(secret)
        return secret
    }

    /// Erases all sensitive data, including secrets kept in the background. Call this method, and check the result,
    /// before the memory of this process is copied: a core dump on demand, CRIU, a snapshot of the virtual machine.
    ///
    /// Blocks the calling thread, at most for about `budget` of running time. Do not call on the cooperative pool.
    public func prepareForSnapshot(within budget: Duration = .seconds(1)) -> ScrubReport {
        scrub.run(.snapshot, within: budget)
    }

    /// Erases the data that a wake-up in the background has brought back. Call before freezing this process (C46).
    /// Secrets kept in the background stay.
    ///
    /// Blocks as `prepareForSnapshot(within:)` does.
    public func prepareForFreeze(within budget: Duration = .seconds(1)) -> ScrubReport {
        scrub.run(.freeze, within: budget)
    }

    /// The report of the last scrub; `nil` before the first.
    public var lastScrub: ScrubReport? { scrub.last }
}

extension Lifecycle {
    /// Purges everything that bears `tag`: entries of registered caches, their loads in flight, and secrets. Admits no
    /// new request meanwhile. Then counts what is left, and notifies observers of changes of credentials. Background
    /// tasks go on: ending them is their owner's decision.
    ///
    /// Blocks until the registered purgeables are done; O(entries with that tag) for `PurgeableCache`.
    @discardableResult
    public func revokeCredentials(tag: String) -> ScrubReport { revocation.revoke(tag) }
}
