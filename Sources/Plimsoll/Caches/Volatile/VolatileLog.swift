import CPlimsollMemory
import Synchronization

/// The writers' side of a volatile cache: a log in two queues of segments, under one lock.
///
/// The policy is S3-FIFO (Yang et al., SOSP 2023) laid out in segments as in Segcache (Yang et al., NSDI 2021). New
/// items go to the small queue. When their segment is evicted, only items that were used are copied to the main queue.
/// So both queues are FIFOs in memory, the order in which the kernel reclaims sealed pages.
struct VolatileLog: ~Copyable {
    struct Queue {
        var oldest = -1
        var newest = -1
        /// The segment being filled, which is the newest; -1 for none.
        var open = -1
        var liveBytes = 0
        /// Bytes of mapped pages, without those known to be taken. Dead items are included.
        var mapped = 0
    }

    /// An item that has left; recorded only while there are listeners.
    struct Departure {
        var key: [UInt8]
        var reason: RemovalReason
    }

    let index: HashIndex
    let table: SegmentTable
    var segments: [Segment?] = []
    var small = Queue()
    var main = Queue()
    var space = AddressSpace()
    var ghosts = GhostTable()
    var numbers = SegmentNumbers()

    /// Bytes of mapped pages, without those known to be taken.
    var mapped = 0
    /// Bytes of `mapped` in sealed segments.
    var sealed = 0
    var liveCount = 0
    var counts = CacheStatistics()

    /// Bound of `mapped` and of the items' bytes; `nil` for none.
    var limit: Int?
    var restriction: Int?
    var allowsHugePages = true
    /// True if sealing works, that is, if the kernel may take the pages.
    var isVolatile: Bool
    var meter: ChargeMeter?
    /// Bytes declared on the meter beyond `mapped`. Positive for pages released for an insert, until that insert and
    /// the next ones have reused them. Negative for copies of hot items, until the source segment has been evicted.
    ///
    /// Declared at once, such changes would mislead a reading in between. A dip would pass for the cache's size, and
    /// the cache would shrink segment by segment to nothing (seen in the demo). A rise would let the cache grow for
    /// ever.
    var spare = 0
    /// True while pages are released for an insert.
    private(set) var isInserting = false
    var now = Duration.zero
    var isListening = false
    var departures: [Departure] = []
    private var insertionCounts = [UInt32](repeating: 0, count: 256)

    /// Share of the memory for volatile caches in bytes; zero for none.
    var share = 0
    /// Bytes that the current insert lacked although the cache is below its share.
    var lacking = 0

    /// Bytes for which caches above their share should make room, and the meter that knows these caches.
    struct RoomRequest: Sendable {
        let meter: ChargeMeter
        let bytes: Int
    }

    /// Bytes of hot items copied forward since the last insert began. Bounds the cost of one insert.
    var copied = 0
    /// Number of times that hot large items moved to the end of the main queue since the last insert began. Bounds the
    /// cost of one insert as well: readers, who take no lock, may use the same items again and again meanwhile.
    var requeued = 0
    /// The item that the current insert replaces, which need not be copied forward.
    var replacing: SlotWord?

    static let hugeFrom = 32 << 20
    static let step = 64 << 10
    /// Bound of a cache of ordinary memory for which no limit was set.
    static let ordinaryLimit = 64 << 20
    /// Generations are unique in the process, so a segment's sentinels never match those of an earlier segment at the
    /// same address. Relaxed: only uniqueness counts. Starts at a random number, so no two processes share generations.
    static let generations = Atomic<UInt64>(UInt64.random(in: 1 << 32..<1 << 48))

    init(index: HashIndex, table: SegmentTable, limit: Int?, isVolatile: Bool) {
        self.index = index
        self.table = table
        self.limit = limit
        self.isVolatile = isVolatile
    }

    deinit {
        for segment in segments { segment?.firsts?.deallocate() }
        meter?.give(mapped + spare)
    }

    var liveBytes: Int { small.liveBytes + main.liveBytes }

    /// Bytes that the cache may hold.
    var bound: Int {
        let limit = limit ?? (isVolatile ? Int.max : Self.ordinaryLimit)
        return min(limit, restriction ?? limit)
    }

    /// Bound of `mapped`: like the bound of items, but always at least a few segments.
    var mappedBound: Int { max(bound, 8 * AddressSpace.block) }

    /// Size of a segment: a sixty-fourth of the limit, so that eviction proceeds in small steps; at most a huge page.
    var segmentSize: Int {
        let share = (limit ?? Int.max) / 64
        var size = 2 << 20
        while size > share, size > AddressSpace.block { size /= 2 }
        return size
    }

    /// Returns a counter that changes with each insert of a key whose hash has the same low bits. After a change,
    /// repeat a look-up that was made without the lock.
    func insertions(_ hash: UInt64) -> UInt32 { insertionCounts[Int(truncatingIfNeeded: hash & 255)] }

    mutating func takeDepartures() -> [Departure] {
        guard isListening else { return [] }
        defer { departures = [] }
        return departures
    }

    mutating func shrinkToBound() {
        (copied, requeued) = (0, 0)
        while liveBytes > bound || mapped > mappedBound { guard evictNext() else { return } }
    }

    // MARK: Inserting

    enum Insertion {
        case inserted
        case refused
        /// Another writer has changed the result of the look-up: look up again.
        case again
    }

    /// Writes an item and publishes it in the index, in place of `existing` if that is given.
    mutating func insert(
        _ header: ItemHeader, expiry: UInt64, tags: [UInt64], key: UnsafeRawBufferPointer,
        value: UnsafeRawBufferPointer, existing: SlotWord?
    ) -> Insertion {
        if let existing, index.find(existing, header.hash) == nil { return .again }
        guard header.cost <= bound, header.pagesBytes <= mappedBound else { return .refused }
        guard canHave(header) else {
            lack(header.pagesBytes)
            return .refused
        }
        guard index.page(of: header.hash) != nil else { return .refused }
        (copied, requeued) = (0, 0)
        replacing = existing.map { SlotWord(bits: $0.place) }
        isInserting = true
        defer {
            replacing = nil
            isInserting = false
            // Keep at most one segment's worth: more is not needed soon. An empty cache keeps no declaration.
            giveSpare(downTo: mapped > 0 ? segmentSize : 0)
        }
        while liveBytes + header.cost > bound { guard evictNext() else { return .refused } }
        let isKnown = existing == nil && ghosts.remove(UInt32(truncatingIfNeeded: header.hash))
        guard let (number, offset) = reserve(header, toMain: isKnown, forced: false) else { return .refused }

        let base = segments[number]!.base
        write(header, expiry, tags, key, value, at: base, offset)
        for tag in tags { segments[number]!.tags |= 1 << (tag & 63) }
        count(number, items: 1, bytes: header.cost)
        let word = SlotWord(segment: number, offset: offset, hash: header.hash)
        // Making room may have evicted the item to be replaced.
        if let existing, let slot = index.find(existing, header.hash) {
            depart(existing, cost(of: existing), Array(key), .replaced)
            // A key that is written again counts as used.
            index.move(slot, to: SlotWord(segment: number, offset: offset, hash: header.hash, uses: 1))
        } else {
            place(word, header.hash)
        }
        if counts.evictions > 0 { ghosts.reserve(liveCount) }
        if segments[number]!.isLarge { seal(number) }
        return .inserted
    }

    private func write(
        _ header: ItemHeader, _ expiry: UInt64, _ tags: [UInt64], _ key: UnsafeRawBufferPointer,
        _ value: UnsafeRawBufferPointer,
        at base: UnsafeMutableRawPointer, _ offset: Int
    ) {
        let item = base + offset
        item.storeBytes(of: header.lengths, as: UInt64.self)
        item.storeBytes(of: header.hash, toByteOffset: 8, as: UInt64.self)
        if header.hasExpiry { item.storeBytes(of: expiry, toByteOffset: 16, as: UInt64.self) }
        for position in tags.indices {
            item.storeBytes(of: tags[position], toByteOffset: header.tagsStart + position * 8, as: UInt64.self)
        }
        if let start = key.baseAddress { (item + header.keyStart).copyMemory(from: start, byteCount: key.count) }
        if value.count > 0 { PageLayout.copyIn(value, base, PageLayout.advance(offset, header.prefix)) }
    }

    private mutating func place(_ word: SlotWord, _ hash: UInt64) {
        insertionCounts[Int(truncatingIfNeeded: hash & 255)] &+= 1
        switch index.insert(word, hash, hashOf: { hashOf($0) }) {
        case .placed: break
        case .displaced(let old):
            let segment = segments[old.segment]
            depart(
                old, cost(of: old),
                segment.flatMap { here in here.header(at: old.offset).flatMap { here.key(at: old.offset, $0) } },
                .evicted)
        case .refused: depart(word, cost(of: word), nil, .evicted)
        }
    }

    /// Returns the hash of the item that a slot names; if the item is gone, counts the loss and returns `nil`.
    private mutating func hashOf(_ word: SlotWord) -> UInt64? {
        guard let segment = segments[word.segment] else { return nil }
        if let header = segment.header(at: word.offset) { return header.hash }
        depart(word, averageCost(word.segment), nil, .droppedByKernel)
        return nil
    }
}
