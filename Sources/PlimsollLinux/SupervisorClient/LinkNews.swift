import Plimsoll

/// The messages last sent to the supervisor, to find out which ones are new. A value type.
struct LinkNews: Sendable {
    private enum Kind: Hashable { case state, tasks, caches, saved, locks, other }

    private var told: [Kind: ChildMessage] = [:]

    /// Smallest change of a cache size that is sent: a sixteenth, and at least a mebibyte.
    private static let leastChange = ByteCount.mebibytes(1)

    /// Returns true if `message` is new to the supervisor.
    func isNews(_ message: ChildMessage) -> Bool {
        guard let last = told[Self.kind(of: message)] else { return true }
        switch (last, message) {
        // The remaining time runs by itself. Only the start of a limit counts as a change.
        case (.tasks(let before, let last), .tasks(let now, let next)):
            return before != now || (last == nil) != (next == nil)
        case (.caches(let before, let beforeLess), .caches(let now, let nowLess)):
            return Self.differ(before, now) || Self.differ(beforeLess, nowLess)
        default: return last != message
        }
    }

    mutating func wasTold(_ message: ChildMessage) { told[Self.kind(of: message)] = message }

    /// Forces `saved` to be sent again, even if unchanged, because the supervisor waits for an answer.
    mutating func forgetSaved() { told[.saved] = nil }

    private static func differ(_ before: ByteCount, _ now: ByteCount) -> Bool {
        if (before == .zero) != (now == .zero) { return true }
        return max(before, now) - min(before, now) >= max(leastChange, before * (1.0 / 16))
    }

    private static func kind(of message: ChildMessage) -> Kind {
        switch message {
        case .state: .state
        case .tasks: .tasks
        case .caches: .caches
        case .saved: .saved
        case .locks: .locks
        case .hello, .keepAlive, .suspend, .bye: .other
        }
    }
}
