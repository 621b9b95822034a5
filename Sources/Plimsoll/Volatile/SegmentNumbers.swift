/// Numbers of segments, given anew only when the index is sure to hold no slot of their last bearer.
///
/// A segment that ends with all its items known leaves no slot behind. One that ends with items unaccounted for (the kernel took
/// them, or it was given back without looking) leaves slots, which are harmless as long as its number names nothing;
/// such a number waits for a whole sweep of the index.
struct SegmentNumbers {
    private var free: [Int] = []
    /// Retired before the round of sweeping that is under way.
    private var swept: [Int] = []
    /// Retired since.
    private var waiting: [Int] = []

    var hasWaiting: Bool { !swept.isEmpty || !waiting.isEmpty }

    mutating func take(from table: SegmentTable) -> Int? {
        let number = free.popLast() ?? table.add()
        reserve(table.count)
        return number
    }

    /// So that giving back, which happens when memory is short, allocates nothing.
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

    /// The index was emptied.
    mutating func allSwept() {
        roundEnded()
        roundEnded()
    }
}
