/// Exact least recently used, over entries with costs.
struct ExactLRU {
    private let budget: Int
    private let cost: (UInt32) -> Int
    private var total = 0
    /// Links of the ring by key, with one place beyond the keys as the head. The head's next key was used last, the
    /// head's previous key is evicted first.
    private var next: [UInt32]
    private var previous: [UInt32]
    private var isHeld: [Bool]
    private let head: UInt32

    /// - Parameters:
    ///   - budget: upper bound of the sum of costs.
    ///   - keyCount: upper bound of all keys, exclusive.
    init(budget: Int, keyCount: Int, cost: @escaping (UInt32) -> Int = { _ in 1 }) {
        self.budget = budget
        self.cost = cost
        head = UInt32(keyCount)
        next = Array(repeating: head, count: keyCount + 1)
        previous = next
        isHeld = Array(repeating: false, count: keyCount)
    }

    /// Requests a key. A miss inserts the key.
    ///
    /// - Returns: true for a hit.
    mutating func request(_ key: UInt32) -> Bool {
        if isHeld[Int(key)] {
            unlink(key)
            linkFirst(key)
            return true
        }
        let cost = cost(key)
        guard cost <= budget else { return false }
        while total + cost > budget {
            let oldest = previous[Int(head)]
            unlink(oldest)
            isHeld[Int(oldest)] = false
            total -= self.cost(oldest)
        }
        total += cost
        isHeld[Int(key)] = true
        linkFirst(key)
        return false
    }

    private mutating func unlink(_ key: UInt32) {
        let (before, after) = (previous[Int(key)], next[Int(key)])
        next[Int(before)] = after
        previous[Int(after)] = before
    }

    private mutating func linkFirst(_ key: UInt32) {
        let first = next[Int(head)]
        (next[Int(key)], previous[Int(key)]) = (first, head)
        (previous[Int(first)], next[Int(head)]) = (key, key)
    }
}
