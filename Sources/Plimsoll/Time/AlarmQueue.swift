/// What is due when: a binary heap.
struct AlarmQueue<Payload> {
    private var heap: [(due: Duration, order: UInt64, payload: Payload)] = []
    private var order: UInt64 = 0

    var isEmpty: Bool { heap.isEmpty }
    var count: Int { heap.count }

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
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count && isBefore(child, least) { least = child }
            if least == parent { return first.payload }
            heap.swapAt(parent, least)
            parent = least
        }
    }

    private func isBefore(_ left: Int, _ right: Int) -> Bool { (heap[left].due, heap[left].order) < (heap[right].due, heap[right].order) }
}
