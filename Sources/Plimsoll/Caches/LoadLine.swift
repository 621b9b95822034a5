/// Callers in line for a load, first come first: a queue that is tidied of cancelled callers as it grows.
struct LoadLine<Value: Sendable> {
    typealias Waiter = LoadWaiter<Value>

    /// `nil` before `first`.
    private var line: [Waiter?] = []
    private var first = 0
    private var tidiesAt = leastToTidy
    private static var leastToTidy: Int { 64 }

    /// Number of callers in line, such as were cancelled and not tidied away yet included.
    var count: Int { line.count - first }

    /// Those in line.
    var waiters: [Waiter] { line[first...].compactMap { $0 } }

    /// Puts `waiter` at the end.
    ///
    /// - Returns: cancelled callers that are in line no more; to be let go of outside any lock.
    /// - Complexity: O(1), amortized: the line is gone through each time it has doubled, so that a load which hangs while callers give up and come again
    ///   keeps no more than twice those who still wait.
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

    /// Takes out who came first; `nil` if there is nobody.
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
