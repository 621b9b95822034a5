import CPlimsollMemory
import Synchronization

/// A segment of the log: pages filled front to back, ordinary memory while open, volatile once sealed. The writers'
/// view.
struct Segment {
    let base: UnsafeMutableRawPointer
    /// Bytes of address space.
    let capacity: Int
    /// The sentinel of the segment's pages; never used twice.
    let generation: UInt64
    var isMain: Bool
    /// True if the segment holds one item that is too large to share.
    let isLarge: Bool
    let isHuge: Bool
    /// Start of the first item of each page, in words; 0 for none. Lets a walk continue behind a page that was taken.
    let firsts: UnsafeMutablePointer<UInt16>?

    /// End of the last item.
    var end = 0
    /// Bytes of resident pages, with their sentinels.
    var frontier = 0
    /// End of the items that have been considered for eviction.
    var cursor = 0
    /// Bytes of `frontier` that are known to be taken.
    var lost = 0
    var liveBytes = 0
    var liveCount = 0
    /// One bit for each tag of the items (the tag's hash modulo 64).
    var tags: UInt64 = 0
    var isSealed = false
    var sealedAt = Duration.zero
    /// Numbers of the neighbours in the queue.
    var older = -1
    var newer = -1

    init(base: UnsafeMutableRawPointer, capacity: Int, generation: UInt64, isMain: Bool, isLarge: Bool, isHuge: Bool) {
        self.base = base
        self.capacity = capacity
        self.generation = generation
        self.isMain = isMain
        self.isLarge = isLarge
        self.isHuge = isHuge
        let pages = capacity / PageLayout.page
        firsts = isLarge ? nil : .allocate(capacity: pages)
        firsts?.initialize(repeating: 0, count: pages)
    }

    /// Returns true if the page at `offset` is still there. Reading does not bring back a taken page, only zeros.
    func isThere(_ offset: Int) -> Bool { Self.sentinel(base, offset).pointee.load(ordering: .relaxed) == generation }

    /// True if four pages spread over the segment are still there. After reclaim one of them is gone, but for a few
    /// pages read since.
    var seemsWhole: Bool {
        let last = max(0, frontier / PageLayout.page - 1)
        return frontier == 0
            || isThere(0) && isThere(last / 3 * PageLayout.page) && isThere(last * 2 / 3 * PageLayout.page)
                && isThere(last * PageLayout.page)
    }

    static func sentinel(_ base: UnsafeMutableRawPointer, _ offset: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
        // A page's first word is only used as an atomic; the layout of the atomic is that of `UInt64`.
        (base + (offset & ~PageLayout.mask)).assumingMemoryBound(to: Atomic<UInt64>.self)
    }

    /// Returns the header of the item at `offset`; `nil` if the page was taken or no item begins there.
    func header(at offset: Int) -> ItemHeader? {
        guard isThere(offset) else { return nil }
        let header = ItemHeader(at: base + offset)
        // The page may have been taken between check and load; acquiring keeps the load before the second check.
        atomicMemoryFence(ordering: .acquiring)
        return isThere(offset) && header.isPresent ? header : nil
    }

    /// Returns true if every page of the `count` bytes from `offset` on is still there.
    func isThere(_ offset: Int, count: Int) -> Bool {
        atomicMemoryFence(ordering: .acquiring)
        var page = offset & ~PageLayout.mask
        let last = count == 0 ? offset : PageLayout.advance(offset, count - 1)
        while page <= last {
            guard isThere(page) else { return false }
            page += PageLayout.page
        }
        return true
    }

    /// Returns a copy of the key of the item at `offset`; `nil` if the page has been taken.
    ///
    /// - Parameter meanwhile: a closure for tests, called between the copy and the check.
    func key(at offset: Int, _ header: ItemHeader, meanwhile: () -> Void = {}) -> [UInt8]? {
        let key = [UInt8](unsafeUninitializedCapacity: header.key) { copy, count in
            if let start = copy.baseAddress, header.key > 0 {
                plimsoll_copy_racing(start, base + offset + header.keyStart, header.key)
            }
            count = header.key
        }
        meanwhile()
        // Check after the copy: a page that is there now was there all the while.
        atomicMemoryFence(ordering: .acquiring)
        return isThere(offset) ? key : nil
    }

    /// Returns the first item at `offset` or behind it whose page is still there.
    func nextItem(from offset: Int) -> (offset: Int, header: ItemHeader)? {
        guard let firsts else {
            guard offset <= PageLayout.sentinel else { return nil }
            return header(at: PageLayout.sentinel).map { (PageLayout.sentinel, $0) }
        }
        var offset = offset
        while offset < end {
            let isPageStart = offset & PageLayout.mask == 0
            if isPageStart {
                let first = Int(firsts[offset / PageLayout.page]) << 3
                if first == 0 {
                    offset += PageLayout.page
                    continue
                }
                offset += first
            }
            if PageLayout.page - (offset & PageLayout.mask) >= ItemHeader.size, let header = header(at: offset) {
                return (offset, header)
            }
            offset = (offset | PageLayout.mask) + 1
        }
        return nil
    }

    /// Returns the position to search for the next item: right behind this one, or the start of the page in which this
    /// one ends.
    func next(after offset: Int, _ header: ItemHeader) -> Int {
        let behind = (PageLayout.advance(offset, header.count) + 7) & ~7
        let isSamePage = behind & ~PageLayout.mask == offset & ~PageLayout.mask
        return isSamePage ? behind : behind & ~PageLayout.mask
    }
}

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

/// The address and generation of each segment, by number, for readers.
///
/// The table grows in leaves that are never moved, so readers need no lock. Only the holder of the log's lock writes.
// Unchecked: all fields that readers use are atomic; leaves are published with release and never freed before the end.
final class SegmentTable: @unchecked Sendable {
    struct Record: ~Copyable {
        /// The sentinel of the segment's pages; zero if no segment has this number.
        let generation = Atomic<UInt64>(0)
        let base = Atomic<UInt>(0)
    }

    /// Upper bound of the numbers, exclusive.
    static let capacity = 1 << 20
    private static let leafSize = 1024

    private let leaves: UnsafeMutablePointer<Atomic<UInt>>
    private(set) var count = 0

    init() {
        let number = Self.capacity / Self.leafSize
        leaves = .allocate(capacity: number)
        for leaf in 0..<number { (leaves + leaf).initialize(to: Atomic(0)) }
    }

    deinit {
        for leaf in 0..<Self.capacity / Self.leafSize {
            UnsafeMutablePointer<Record>(bitPattern: leaves[leaf].load(ordering: .relaxed))?.deallocate()
        }
        leaves.deallocate()
    }

    /// Returns the record of a number that `add` has returned.
    @inline(__always)
    subscript(number: Int) -> UnsafeMutablePointer<Record> {
        // Acquiring: pairs with the release in `add`.
        UnsafeMutablePointer(bitPattern: leaves[number / Self.leafSize].load(ordering: .acquiring)).unsafelyUnwrapped
            + number % Self.leafSize
    }

    /// Returns a new number; `nil` when all are in use.
    func add() -> Int? {
        guard count < Self.capacity else { return nil }
        if count % Self.leafSize == 0 {
            let leaf = UnsafeMutablePointer<Record>.allocate(capacity: Self.leafSize)
            for record in 0..<Self.leafSize { (leaf + record).initialize(to: Record()) }
            leaves[count / Self.leafSize].store(UInt(bitPattern: leaf), ordering: .releasing)
        }
        count += 1
        return count - 1
    }
}
