import CPlimsollMemory
import Synchronization

/// The writers' side of a volatile cache: a log in two queues of segments, under one lock.
///
/// The policy is S3-FIFO (Yang et al., SOSP 2023) laid out in segments as in Segcache (Yang et al., NSDI 2021): newcomers are written to the small
/// queue, and copied to the main queue only if they were asked for when their turn comes. So both
/// queues are FIFOs in memory, which is the order in which the kernel takes sealed pages.
struct VolatileLog: ~Copyable {
    struct Queue {
        var oldest = -1
        var newest = -1
        /// The segment being filled; -1 for none. It is the newest.
        var open = -1
        var liveBytes = 0
    }

    /// What has left since somebody asked for it; only kept while there are listeners.
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

    /// Bytes of pages that are there, less what is known to be taken.
    var mapped = 0
    /// Of them, in sealed segments.
    var sealed = 0
    var liveCount = 0
    var counts = CacheStatistics()

    /// Bound of `mapped` and of the items' bytes; `nil` for none.
    var limit: Int?
    var restriction: Int?
    var allowsHugePages = true
    /// Whether sealing works: whether the kernel may take the pages.
    var isVolatile: Bool
    var meter: ChargeMeter?
    /// What is declared on the meter beyond `mapped`. More: pages given up for an item, until that and the next ones have taken their place. Less: copies of
    /// what is hot, until the segment they come from has had its turn. Told at once, a reading in between would take the dip for the cache's
    /// size and let it grow no further, segment by segment down to nothing (seen in the demo); or the rise, and let it grow for ever.
    var spare = 0
    /// Whether what is given up now is given up for an item.
    private(set) var isInserting = false
    var now = Duration.zero
    var isListening = false
    var departures: [Departure] = []
    private var insertionCounts = [UInt32](repeating: 0, count: 256)

    /// Bytes that hot items were copied forward since the last insert began; bounds what one insert may cost.
    var copied = 0
    /// What an insert under way is about to replace, and so need not be copied forward.
    var replacing: SlotWord?

    static let hugeFrom = 32 << 20
    static let step = 64 << 10
    /// A cache of ordinary memory is bounded even if nobody has set a limit.
    static let ordinaryLimit = 64 << 20
    /// Generations are unique in the process, so that a segment's sentinels never match its predecessor's at the same address.
    /// Relaxed: only uniqueness counts. Begins at a random number: no two processes share theirs.
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

    /// What may be held.
    var bound: Int {
        let limit = limit ?? (isVolatile ? Int.max : Self.ordinaryLimit)
        return min(limit, restriction ?? limit)
    }

    /// Pages are bounded as items are, but a few segments there may always be.
    var mappedBound: Int { max(bound, 8 * AddressSpace.block) }

    /// A sixty-fourth of the limit, so that turns come one by one; at most a huge page.
    var segmentSize: Int {
        let share = (limit ?? Int.max) / 64
        var size = 2 << 20
        while size > share, size > AddressSpace.block { size /= 2 }
        return size
    }

    /// Changes whenever a key is put in whose hash ends alike: what was looked up without the lock before is then to be looked up again.
    func insertions(_ hash: UInt64) -> UInt32 { insertionCounts[Int(truncatingIfNeeded: hash & 255)] }

    mutating func takeDepartures() -> [Departure] {
        guard isListening else { return [] }
        defer { departures = [] }
        return departures
    }

    mutating func shrinkToBound() {
        copied = 0
        while liveBytes > bound || mapped > mappedBound { guard evictNext() else { return } }
    }

    // MARK: Inserting

    enum Insertion {
        case inserted
        case refused
        /// Somebody changed what was looked up before: look again.
        case again
    }

    /// Writes an item and has the index name it, instead of `existing` if that is given.
    mutating func insert(
        _ header: ItemHeader, expiry: UInt64, tags: [UInt64], key: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer, existing: SlotWord?
    ) -> Insertion {
        if let existing, index.find(existing, header.hash) == nil { return .again }
        guard header.cost <= bound, header.pagesBytes <= mappedBound, canHave(header), index.page(of: header.hash) != nil else {
            return .refused
        }
        copied = 0
        replacing = existing.map { SlotWord(bits: $0.place) }
        isInserting = true
        defer {
            replacing = nil
            isInserting = false
            // More than a segment is not needed soon, and who holds nothing claims nothing.
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
        // Room was made since: what was to be replaced may have been evicted.
        if let existing, let slot = index.find(existing, header.hash) {
            depart(existing, cost(of: existing), Array(key), .replaced)
            // Its key is in use, or nobody would write it again.
            index.move(slot, to: SlotWord(segment: number, offset: offset, hash: header.hash, uses: 1))
        } else {
            place(word, header.hash)
        }
        if counts.evictions > 0 { ghosts.reserve(liveCount) }
        if segments[number]!.isLarge { seal(number) }
        return .inserted
    }

    private func write(
        _ header: ItemHeader, _ expiry: UInt64, _ tags: [UInt64], _ key: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer,
        at base: UnsafeMutableRawPointer, _ offset: Int
    ) {
        let item = base + offset
        item.storeBytes(of: header.lengths, as: UInt64.self)
        item.storeBytes(of: header.hash, toByteOffset: 8, as: UInt64.self)
        if header.hasExpiry { item.storeBytes(of: expiry, toByteOffset: 16, as: UInt64.self) }
        for position in tags.indices { item.storeBytes(of: tags[position], toByteOffset: header.tagsStart + position * 8, as: UInt64.self) }
        if let start = key.baseAddress { (item + header.keyStart).copyMemory(from: start, byteCount: key.count) }
        if value.count > 0 { PageLayout.copyIn(value, base, PageLayout.advance(offset, header.prefix)) }
    }

    private mutating func place(_ word: SlotWord, _ hash: UInt64) {
        insertionCounts[Int(truncatingIfNeeded: hash & 255)] &+= 1
        switch index.insert(word, hash, hashOf: { hashOf($0) }) {
        case .placed: break
        case .displaced(let old): depart(old, cost(of: old), nil, .evicted)
        case .refused: depart(word, cost(of: word), nil, .evicted)
        }
    }

    /// The hash of what a slot says, if it is still there; if not, it is no longer counted.
    private mutating func hashOf(_ word: SlotWord) -> UInt64? {
        guard let segment = segments[word.segment] else { return nil }
        if let header = segment.header(at: word.offset) { return header.hash }
        depart(word, averageCost(word.segment), nil, .droppedByKernel)
        return nil
    }
}
