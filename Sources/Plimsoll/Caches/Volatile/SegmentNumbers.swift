/// Segment numbers. A number is reused only when the index certainly holds no slot of the last segment with that
/// number.
///
/// A segment that ends with all items known leaves no slot behind. A segment may also end with items unaccounted for:
/// the kernel took them, or the segment was released without a check. Such a segment leaves stale slots, which are
/// harmless while the number names nothing. So that number waits for a whole sweep of the index.
struct SegmentNumbers {
    private var free: [Int] = []
    /// Numbers retired before the current round of sweeping.
    private var swept: [Int] = []
    /// Numbers retired since that round began.
    private var waiting: [Int] = []

    var hasWaiting: Bool { !swept.isEmpty || !waiting.isEmpty }

    mutating func take(from table: SegmentTable) -> Int? {
        let number = free.popLast() ?? table.add()
        reserve(table.count)
        return number
    }

    /// Reserves capacity, so that a release, which happens when memory is short, allocates nothing.
    private mutating func reserve(_ count: Int) {
        guard free.capacity < count || waiting.capacity < count else { return }
        free.reserveCapacity(count * 2)
        waiting.reserveCapacity(count * 2)
        swept.reserveCapacity(count * 2)
    }

    mutating func give(_ number: Int) { free.append(number) }

    mutating func giveWhenSwept(_ number: Int) { waiting.append(number) }

    mutating func roundEnded() {
        free.append(contentsOf: swept)
        swept.removeAll(keepingCapacity: true)
        swap(&swept, &waiting)
    }

    /// Frees all waiting numbers, after the index was emptied.
    mutating func allSwept() {
        roundEnded()
        roundEnded()
    }
}
