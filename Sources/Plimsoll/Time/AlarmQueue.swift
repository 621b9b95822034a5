/// What is due when: a binary heap.
struct AlarmQueue<Payload> {
    private var heap: [(due: Duration, order: UInt64, payload: Payload)] = []
    /// Number of those put in so far.
    private(set) var order: UInt64 = 0

    var isEmpty: Bool { heap.isEmpty }
    var count: Int { heap.count }

    /// The first, due or not.
    var first: Payload? { heap.first?.payload }

    /// When the first is due.
    var next: Duration? { heap.first?.due }

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

    /// Takes out the first if it is due, among equals the one that was put in first.
    ///
    /// - Complexity: O(log n).
    mutating func popFirst(dueBy now: Duration) -> Payload? {
        guard let first = heap.first, first.due <= now else { return nil }
        heap.swapAt(0, heap.count - 1)
        heap.removeLast()
        sink(0)
        return first.payload
    }

    /// Takes out all that `condition` holds for.
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
            for child in 2 * parent + 1..<2 * parent + 3 where child < heap.count && isBefore(child, least) { least = child }
            if least == parent { return }
            heap.swapAt(parent, least)
            parent = least
        }
    }

    private func isBefore(_ left: Int, _ right: Int) -> Bool { (heap[left].due, heap[left].order) < (heap[right].due, heap[right].order) }
}
