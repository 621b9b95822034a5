/// Least recently used, exactly, over entries of a cost each.
struct ExactLRU {
    private let budget: Int
    private let cost: (UInt32) -> Int
    private var total = 0
    /// Links of the ring by key, and one beyond the keys as its head: its next was used last, its previous is the first to go.
    private var next: [UInt32]
    private var previous: [UInt32]
    private var isHeld: [Bool]
    private let head: UInt32

    /// - Parameters:
    ///   - budget: bound of the sum of costs.
    ///   - keyCount: keys are below it.
    init(budget: Int, keyCount: Int, cost: @escaping (UInt32) -> Int = { _ in 1 }) {
        self.budget = budget
        self.cost = cost
        head = UInt32(keyCount)
        next = Array(repeating: head, count: keyCount + 1)
        previous = next
        isHeld = Array(repeating: false, count: keyCount)
    }

    /// Asks for a key and lets a miss insert it.
    ///
    /// - Returns: whether it was a hit.
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
