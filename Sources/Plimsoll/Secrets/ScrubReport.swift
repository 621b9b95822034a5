/// What was erased before the memory of this process could be seen, and what was not.
public struct ScrubReport: Sendable, Hashable {
    /// What was about to happen.
    public enum Reason: String, Sendable, Hashable, CaseIterable {
        /// The process goes to the background, from which it may be frozen without notice.
        case background
        /// It did something while in the background, after which it is erased anew (C46).
        case wake
        /// It is about to be frozen.
        case freeze
        /// Somebody is about to copy its memory: a core dump, CRIU, a virtual machine's snapshot. Secrets kept in the background go too.
        case snapshot
    }

    /// What was about to happen.
    public var reason: Reason
    /// Hooks that came to their end, in the order in which they were added.
    public var ran: [String] = []
    /// Hooks that had not by the end of the budget: what they were to erase may still be there.
    public var overran: [String] = []
    /// Secrets that had contents and have none now.
    public var wiped = 0
    /// Secrets that somebody was still inside; they go when that ends.
    public var inUse: [String] = []
    /// How long it took, by running time.
    public var took = Duration.zero

    /// Whether everything was erased. If not, take no snapshot.
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
    /// Runs `scrub` last on the way to the background, after each wake-up there, before a freeze and before a snapshot.
    ///
    /// It is synchronous on purpose: when it returns, what it had to erase is gone. Work that it only schedules comes too late and counts for nothing (C45).
    /// All scrub hooks run beside each other on threads of the library's own; one that takes longer than a second for all of them is named in the report.
    ///
    /// - Complexity: O(1); cancelling is O(hooks).
    @discardableResult
    public func onScrub(_ name: String, _ scrub: @escaping @Sendable () -> Void) -> Registration { self.scrub.add(name, scrub) }

    /// Has `secret` wiped on the way to the background unless it `keepsInBackground`, before every snapshot, and when one of its tags is revoked.
    ///
    /// It does not keep the secret alive: one that nobody holds any more is wiped as it goes.
    ///
    /// - Returns: the same secret.
    @discardableResult
    public func keep(_ secret: Secret) -> Secret {
        scrub.secrets.add(secret)
        return secret
    }

    /// Erases what may not be seen, secrets kept in the background included. Call it, and look at the result, before anything copies this process's memory: a
    /// core dump on demand, CRIU, a snapshot of the virtual machine.
    ///
    /// Blocks the calling thread, at most for about `budget` of running time; not for the cooperative pool.
    public func prepareForSnapshot(within budget: Duration = .seconds(1)) -> ScrubReport { scrub.run(.snapshot, within: budget) }

    /// Erases anew what a wake-up in the background has brought back: whoever freezes this process has it called before (C46). Secrets kept in the background stay.
    ///
    /// Blocks as `prepareForSnapshot(within:)` does.
    public func prepareForFreeze(within budget: Duration = .seconds(1)) -> ScrubReport { scrub.run(.freeze, within: budget) }

    /// What the last scrub did; `nil` before the first.
    public var lastScrub: ScrubReport? { scrub.last }
}
