import Synchronization

/// The end of the loop's first turn, and the callbacks that wait for that end.
final class FirstTurn: Sendable {
    /// Waiting callbacks, in order; `nil` once the turn is over.
    private let waiting = Mutex<[@Sendable () -> Void]?>([])

    /// Calls `body` when the first turn is over. Calls `body` immediately if the turn is over already.
    func whenOver(_ body: @escaping @Sendable () -> Void) {
        let isOver = waiting.withLock { waiting in
            waiting?.append(body)
            return waiting == nil
        }
        if isOver { body() }
    }

    /// Ends the wait: the first turn is over, or there will be none.
    func end() {
        let bodies = waiting.withLock { waiting in
            defer { waiting = nil }
            return waiting
        }
        for body in bodies ?? [] { body() }
    }
}
