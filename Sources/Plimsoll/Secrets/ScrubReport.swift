/// The result of a scrub: data erased before the memory of this process could be seen, and data left.
public struct ScrubReport: Sendable, Hashable {
    /// The reason for a scrub.
    public enum Reason: String, Sendable, Hashable, CaseIterable {
        /// The process goes to the background, from which it may be frozen without notice.
        case background
        /// The process woke up in the background, and data is erased anew (C46).
        case wake
        /// The process is about to be frozen.
        case freeze
        /// The memory of the process is about to be copied: a core dump, CRIU, a snapshot of a virtual machine. Secrets
        /// kept in the background are wiped too.
        case snapshot
    }

    /// The reason for the scrub.
    public var reason: Reason
    /// Hooks that finished, in the order in which they were added.
    public var ran: [String] = []
    /// Hooks that had not finished by the end of the budget: their data may not be erased.
    public var overran: [String] = []
    /// Number of secrets that had contents and are now wiped.
    public var wiped = 0
    /// Names of secrets still in use. They are wiped when that use ends.
    public var inUse: [String] = []
    /// Running time that the scrub took.
    public var took = Duration.zero

    /// True if everything was erased. If false, take no snapshot.
    public var isClean: Bool { overran.isEmpty && inUse.isEmpty }

    init(reason: Reason) { self.reason = reason }
}

extension ScrubReport: CustomStringConvertible {
    public var description: String {
        var text = "scrub before \(reason.rawValue): \(ran.count) hooks, \(wiped) secrets wiped"
        if !overran.isEmpty { text += ", overran: \(overran.joined(separator: ", "))" }
        if !inUse.isEmpty { text += ", in use: \(inUse.joined(separator: ", "))" }
        return text
    }
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
    public func onScrub(_ name: String, _ scrub: @escaping @Sendable () -> Void) -> Registration { self.scrub.add(name, scrub) }

    /// Wipes `secret` on the way to the background unless the secret `keepsInBackground`, before every snapshot, and
    /// when one of its tags is revoked.
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
    public func prepareForSnapshot(within budget: Duration = .seconds(1)) -> ScrubReport { scrub.run(.snapshot, within: budget) }

    /// Erases the data that a wake-up in the background has brought back. Call before freezing this process (C46).
    /// Secrets kept in the background stay.
    ///
    /// Blocks as `prepareForSnapshot(within:)` does.
    public func prepareForFreeze(within budget: Duration = .seconds(1)) -> ScrubReport { scrub.run(.freeze, within: budget) }

    /// The report of the last scrub; `nil` before the first.
    public var lastScrub: ScrubReport? { scrub.last }
}
