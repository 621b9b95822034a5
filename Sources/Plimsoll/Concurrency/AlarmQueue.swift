/// A priority queue of payloads by due time: a binary heap.
struct AlarmQueue<Payload> {
    private var heap: [(due: Duration, order: UInt64, payload: Payload)] = []
    /// Number of payloads inserted so far.
    private(set) var order: UInt64 = 0

    var isEmpty: Bool { heap.isEmpty }
    var count: Int { heap.count }

    /// The first payload, due or not.
    var first: Payload? { heap.first?.payload }

    /// Due time of the first payload.
    var next: Duration? { heap.first?.due }

    /// Inserts `payload`, to be due at `due`.
    ///
    /// - Complexity: O(log n).
    mutating func insert(_ payload: Payload, due: Duration) {
        order += 1
        heap.append((due, order, payload))
        var child = heap.count - 1
        while child > 0, isBefore(child, (child - 1) / 2) {
            heap.swapAt(child, (child - 1) / 2)
            child = (child - 1) / 2
        }
    }

    /// Removes and returns the first payload if due. Payloads with equal due times leave in the order of insertion.
    ///
    /// - Complexity: O(log n).
    mutating func popFirst(dueBy now: Duration) -> Payload? {
        guard let first = heap.first, first.due <= now else { return nil }
        heap.swapAt(0, heap.count - 1)
        heap.removeLast()
        sink(0)
        return first.payload
    }

    /// Removes all payloads for which `condition` returns true.
    ///
    /// - Complexity: O(n).
    mutating func removeAll(where condition: (Payload) -> Bool) {
        heap.removeAll { condition($0.payload) }
        for parent in (0..<heap.count / 2).reversed() { sink(parent) }
    }

    private mutating func sink(_ index: Int) {
        var parent = index
        while true {
            var least = parent
            for child in 2 * parent + 1..<2 * parent + 3 where child < heap.count && isBefore(child, least) {
                least = child
            }
            if least == parent { return }
            heap.swapAt(parent, least)
            parent = least
        }
    }

    private func isBefore(_ left: Int, _ right: Int) -> Bool {
        (heap[left].due, heap[left].order) < (heap[right].due, heap[right].order)
    }
}
