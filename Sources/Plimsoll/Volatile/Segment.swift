import CPlimsollMemory
import Synchronization

/// A stretch of the log: pages filled front to back, ordinary memory while it is open, volatile once it is sealed. The writers' view of it.
struct Segment {
    let base: UnsafeMutableRawPointer
    /// Bytes of address space.
    let capacity: Int
    /// The sentinel of its pages; never used twice.
    let generation: UInt64
    var isMain: Bool
    /// Holds one item that is too large to share.
    let isLarge: Bool
    let isHuge: Bool
    /// For each page where its first item begins, in words; 0 for none. Lets a walk go on behind a page that was taken.
    let firsts: UnsafeMutablePointer<UInt16>?

    /// Where the last item ends.
    var end = 0
    /// Bytes of pages that are there, with their sentinels.
    var frontier = 0
    /// Items before it have been considered for eviction.
    var cursor = 0
    /// Of the pages that are there, bytes that are known to be taken.
    var lost = 0
    var liveBytes = 0
    var liveCount = 0
    /// A bit for each tag in it (its hash modulo 64).
    var tags: UInt64 = 0
    var isSealed = false
    var sealedAt = Duration.zero
    /// Neighbours in its queue, by number.
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

    /// Whether the page at `offset` is still there. A page that was taken is not brought back by looking: it reads as zeros.
    func isThere(_ offset: Int) -> Bool { Self.sentinel(base, offset).pointee.load(ordering: .relaxed) == generation }

    /// Whether four pages spread over it are still there: where the kernel has been, one of them is gone but for a few pages read since.
    var seemsWhole: Bool {
        let last = max(0, frontier / PageLayout.page - 1)
        return frontier == 0
            || isThere(0) && isThere(last / 3 * PageLayout.page) && isThere(last * 2 / 3 * PageLayout.page) && isThere(last * PageLayout.page)
    }

    static func sentinel(_ base: UnsafeMutableRawPointer, _ offset: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
        // A page's first word is only ever used as an atomic; its layout is that of `UInt64`.
        (base + (offset & ~PageLayout.mask)).assumingMemoryBound(to: Atomic<UInt64>.self)
    }

    /// The item that begins at `offset`, if its page is still there and an item begins there.
    func header(at offset: Int) -> ItemHeader? {
        guard isThere(offset) else { return nil }
        let header = ItemHeader(at: base + offset)
        // The page may have been taken between the look and the load; acquiring keeps the load before the second look.
        atomicMemoryFence(ordering: .acquiring)
        return isThere(offset) && header.isPresent ? header : nil
    }

    /// Whether every page of the `count` bytes from `offset` on is still there.
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

    /// A copy of the key of the item at `offset`; `nil` if its page has been taken.
    ///
    /// - Parameter meanwhile: what a test has happen between the copy and the look.
    func key(at offset: Int, _ header: ItemHeader, meanwhile: () -> Void = {}) -> [UInt8]? {
        let key = [UInt8](unsafeUninitializedCapacity: header.key) { copy, count in
            if let start = copy.baseAddress, header.key > 0 { plimsoll_copy_racing(start, base + offset + header.keyStart, header.key) }
            count = header.key
        }
        meanwhile()
        // The look comes after the copy: a page that was there now was there all the while.
        atomicMemoryFence(ordering: .acquiring)
        return isThere(offset) ? key : nil
    }

    /// The first item at `offset` or behind it, of those whose pages are still there.
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
            if PageLayout.page - (offset & PageLayout.mask) >= ItemHeader.size, let header = header(at: offset) { return (offset, header) }
            offset = (offset | PageLayout.mask) + 1
        }
        return nil
    }

    /// Where to look for the item behind one: at once behind it, or at the first one of the page in which it ends.
    func next(after offset: Int, _ header: ItemHeader) -> Int {
        let behind = (PageLayout.advance(offset, header.count) + 7) & ~7
        let isSamePage = behind & ~PageLayout.mask == offset & ~PageLayout.mask
        return isSamePage ? behind : behind & ~PageLayout.mask
    }
}
