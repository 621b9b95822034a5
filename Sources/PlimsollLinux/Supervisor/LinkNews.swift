import Plimsoll

/// What a service tells of itself, and what of it the supervisor does not know yet. A value.
struct LinkNews: Sendable {
    private enum Kind: Hashable { case state, tasks, caches, saved, locks, other }

    private var told: [Kind: ChildMessage] = [:]

    /// Caches that have changed by less are not worth a line: a sixteenth, and a mebibyte at least.
    private static let leastChange = ByteCount.mebibytes(1)

    /// Whether `message` says something new.
    func isNews(_ message: ChildMessage) -> Bool {
        guard let last = told[Self.kind(of: message)] else { return true }
        switch (last, message) {
        // The time left runs by itself; when it began to is what counts.
        case (.tasks(let before, let last), .tasks(let now, let next)): return before != now || (last == nil) != (next == nil)
        case (.caches(let before, let beforeLess), .caches(let now, let nowLess)): return Self.differ(before, now) || Self.differ(beforeLess, nowLess)
        default: return last != message
        }
    }

    mutating func wasTold(_ message: ChildMessage) { told[Self.kind(of: message)] = message }

    /// Has it told again, though it may be what was told last: somebody waits for it.
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
