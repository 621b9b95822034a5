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
