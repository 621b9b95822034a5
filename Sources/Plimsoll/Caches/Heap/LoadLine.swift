/// A first-in, first-out queue of callers that wait for a load. Cancelled callers are removed as the queue grows.
struct LoadLine<Value: Sendable> {
    typealias Waiter = LoadWaiter<Value>

    /// `nil` before `first`.
    private var line: [Waiter?] = []
    private var first = 0
    private var tidiesAt = leastToTidy
    private static var leastToTidy: Int { 64 }

    /// Number of callers in line, including cancelled callers that are not removed yet.
    var count: Int { line.count - first }

    /// The callers in line.
    var waiters: [Waiter] { line[first...].compactMap { $0 } }

    /// Appends `waiter`.
    ///
    /// - Returns: cancelled callers that were removed from the line; release them outside any lock.
    /// - Complexity: O(1), amortized. Cancelled callers are removed each time the line has doubled. Even if a
    ///   load hangs while callers give up and retry, the line holds at most twice the callers that still wait.
    mutating func append(_ waiter: Waiter) -> [Waiter] {
        var gone: [Waiter] = []
        if line.count >= tidiesAt {
            var kept: [Waiter?] = []
            for waiter in waiters { if waiter.isSettled { gone.append(waiter) } else { kept.append(waiter) } }
            (line, first) = (kept, 0)
            tidiesAt = max(Self.leastToTidy, line.count * 2)
        }
        line.append(waiter)
        return gone
    }

    /// Removes and returns the first caller; `nil` if there is none.
    ///
    /// - Complexity: O(1).
    mutating func popFirst() -> Waiter? {
        guard first < line.count else { return nil }
        defer {
            line[first] = nil
            first += 1
        }
        return line[first]
    }
}
