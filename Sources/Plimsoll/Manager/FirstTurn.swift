import Synchronization

/// The end of the loop's first turn, and what waits for it.
final class FirstTurn: Sendable {
    /// What waits, in order; `nil` once the turn is over.
    private let waiting = Mutex<[@Sendable () -> Void]?>([])

    /// Calls `body` when the turn is over, at once if it is.
    func whenOver(_ body: @escaping @Sendable () -> Void) {
        let isOver = waiting.withLock { waiting in
            waiting?.append(body)
            return waiting == nil
        }
        if isOver { body() }
    }

    /// The turn is over, or there will be none.
    func end() {
        let bodies = waiting.withLock { waiting in
            defer { waiting = nil }
            return waiting
        }
        for body in bodies ?? [] { body() }
    }
}
