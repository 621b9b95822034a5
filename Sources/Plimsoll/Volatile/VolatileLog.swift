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
    var now = Duration.zero
    var isListening = false
    var departures: [Departure] = []
    private var insertionCounts = [UInt32](repeating: 0, count: 256)

    /// Bytes that hot items were copied forward since the last insert began; bounds what one insert may cost.
    var copied = 0
    /// What an insert under way is about to replace, and so need not be copied forward.
    var replacing: SlotWord?

    private static let hugeFrom = 32 << 20
    private static let step = 64 << 10
    /// A cache of ordinary memory is bounded even if nobody has set a limit.
    static let ordinaryLimit = 64 << 20
    /// Generations are unique in the process, so that a segment's sentinels never match its predecessor's at the same address.
    /// Relaxed: only uniqueness counts. Begins at a random number: no two processes share theirs.
    private static let generations = Atomic<UInt64>(UInt64.random(in: 1 << 32..<1 << 48))

    init(index: HashIndex, table: SegmentTable, limit: Int?, isVolatile: Bool) {
        self.index = index
        self.table = table
        self.limit = limit
        self.isVolatile = isVolatile
    }

    deinit {
        for segment in segments { segment?.firsts?.deallocate() }
        meter?.give(mapped)
    }

    var liveBytes: Int { small.liveBytes + main.liveBytes }

    /// What may be held.
    var bound: Int {
        let limit = limit ?? (isVolatile ? Int.max : Self.ordinaryLimit)
        return min(limit, restriction ?? limit)
    }

    /// Pages are bounded as items are, but a few segments there may always be.
    private var mappedBound: Int { max(bound, 8 * AddressSpace.block) }

    /// A sixty-fourth of the limit, so that turns come one by one; at most a huge page.
    private var segmentSize: Int {
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
        guard header.cost <= bound, canHave(header.cost), index.page(of: header.hash) != nil else { return .refused }
        copied = 0
        replacing = existing.map { SlotWord(bits: $0.place) }
        defer { replacing = nil }
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
            depart(existing, cost(of: existing), key, .replaced)
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

    // MARK: Room in the log

    /// Whether giving up everything would make room for `bytes`; else nothing is given up.
    private func canHave(_ bytes: Int) -> Bool {
        guard let meter else { return true }
        let room = meter.room
        return bytes <= room || bytes - room <= mapped
    }

    /// Room for an item at the end of a queue.
    ///
    /// - Parameter forced: takes what it needs without making room elsewhere: for copies, whose old place is given back at once.
    mutating func reserve(_ header: ItemHeader, toMain: Bool, forced: Bool, mayOpen: Bool = true) -> (number: Int, offset: Int)? {
        let needed = PageLayout.advance(PageLayout.sentinel, header.count - 1) + 1
        let isLarge = needed > min(segmentSize, 1 << 20) / 4
        while true {
            let open = toMain ? main.open : small.open
            guard open >= 0, !isLarge else {
                guard mayOpen else { return nil }
                guard let number = openSegment(isLarge ? needed : nil, isMain: toMain) else {
                    guard !forced, evictNext() else { return nil }
                    continue
                }
                guard isLarge else { continue }
                while !extend(number, forced: forced) {
                    guard evictNext(sparing: number) else {
                        retire(number, .removed)
                        return nil
                    }
                }
                segments[number]!.end = needed
                return (number, PageLayout.sentinel)
            }
            let segment = segments[open]!
            let start = PageLayout.start(segment.end, prefix: header.prefix)
            let end = PageLayout.advance(start, header.count - 1) + 1
            if end > segment.capacity {
                guard mayOpen else { return nil }
                seal(open)
                continue
            }
            if end > segment.frontier {
                guard extend(open, to: end, forced: forced) else {
                    guard !forced, evictNext() else { return nil }
                    continue
                }
            }
            segments[open]!.end = end
            let page = start / PageLayout.page
            if let firsts = segment.firsts, firsts[page] == 0 { firsts[page] = UInt16((start & PageLayout.mask) >> 3) }
            return (open, start)
        }
    }

    private mutating func openSegment(_ bytes: Int?, isMain: Bool) -> Int? {
        let capacity = bytes.map { ($0 + PageLayout.mask) & ~PageLayout.mask } ?? segmentSize
        noticeOldDrops()
        guard let number = numbers.take(from: table) else { return nil }
        guard let base = space.take(capacity) else {
            numbers.give(number)
            return nil
        }
        guard plimsoll_open(base, AddressSpace.rounded(capacity)) == 0 else {
            space.give(base, capacity)
            numbers.give(number)
            return nil
        }
        let isHuge = allowsHugePages && capacity == 2 << 20 && mapped >= Self.hugeFrom && plimsoll_allow_huge_pages(base, capacity) == 0
        let generation = Self.generations.wrappingAdd(1, ordering: .relaxed).newValue
        while segments.count <= number { segments.append(nil) }
        segments[number] = Segment(
            base: base, capacity: capacity, generation: generation, isMain: isMain, isLarge: bytes != nil, isHuge: isHuge)
        link(number)
        if bytes == nil { withQueue(isMain) { $0.open = number } }
        // Base before generation: a reader loads them the other way round, and checks the pages against what it found.
        table[number].pointee.base.store(UInt(bitPattern: base), ordering: .releasing)
        table[number].pointee.generation.store(generation, ordering: .releasing)
        sweep()
        return number
    }

    /// Brings in the pages up to `end`, or all, with their sentinels. False if there is no room.
    private mutating func extend(_ number: Int, to end: Int? = nil, forced: Bool) -> Bool {
        let segment = segments[number]!
        let needed = ((end ?? segment.capacity) + PageLayout.mask) & ~PageLayout.mask
        let target = segment.isHuge ? segment.capacity : min(segment.capacity, max(needed, segment.frontier + min(Self.step, segment.capacity / 4)))
        let bytes = target - segment.frontier
        if forced {
            meter?.takeAnyway(bytes)
        } else {
            guard mapped + bytes <= mappedBound, meter?.take(bytes) ?? true else { return false }
        }
        // One call for all instead of a fault a page; where it fails the writes below do it.
        _ = plimsoll_populate(segment.base + segment.frontier, bytes)
        var page = segment.frontier
        while page < target {
            // Relaxed: readers come here only by a slot that is published with release after this.
            Segment.sentinel(segment.base, page).pointee.store(segment.generation, ordering: .relaxed)
            page += PageLayout.page
        }
        segments[number]!.frontier = target
        mapped += bytes
        return true
    }

    /// Hands a full segment to the kernel to take when it must.
    mutating func seal(_ number: Int) {
        guard var segment = segments[number], !segment.isSealed else { return }
        segment.isSealed = true
        segment.sealedAt = now
        segments[number] = segment
        withQueue(segment.isMain) { if $0.open == number { $0.open = -1 } }
        sealed += segment.frontier
        if isVolatile, segment.frontier > 0, plimsoll_mark_volatile(segment.base, segment.frontier) != 0 {
            // Locked pages (mlockall) cannot be volatile: from here on this is an ordinary, bounded cache.
            isVolatile = false
        }
        if segment.liveCount == 0 { retire(number, .removed) }
    }

    // MARK: Queues

    mutating func withQueue(_ isMain: Bool, _ body: (inout Queue) -> Void) {
        if isMain { body(&main) } else { body(&small) }
    }

    private mutating func link(_ number: Int) {
        let isMain = segments[number]!.isMain
        // A large segment is full at once: it goes behind the open one, which stays the newest.
        let open = isMain ? main.open : small.open
        let newest = isMain ? main.newest : small.newest
        let older = open >= 0 && open == newest ? segments[open]!.older : newest
        let newer = open >= 0 && open == newest ? open : -1
        segments[number]!.older = older
        segments[number]!.newer = newer
        if older >= 0 { segments[older]!.newer = number }
        if newer >= 0 { segments[newer]!.older = number }
        withQueue(isMain) {
            if older < 0 { $0.oldest = number }
            if newer < 0 { $0.newest = number }
        }
    }

    /// Brings a segment to the end of the main queue.
    mutating func requeue(_ number: Int) {
        let (items, bytes) = (segments[number]!.liveCount, segments[number]!.liveBytes)
        count(number, items: -items, bytes: -bytes)
        unlink(number)
        segments[number]!.isMain = true
        segments[number]!.cursor = 0
        segments[number]!.sealedAt = now
        link(number)
        count(number, items: items, bytes: bytes)
    }

    mutating func unlink(_ number: Int) {
        let segment = segments[number]!
        if segment.older >= 0 { segments[segment.older]!.newer = segment.newer }
        if segment.newer >= 0 { segments[segment.newer]!.older = segment.older }
        withQueue(segment.isMain) {
            if $0.oldest == number { $0.oldest = segment.newer }
            if $0.newest == number { $0.newest = segment.older }
            if $0.open == number { $0.open = -1 }
        }
    }

    // MARK: Counting

    mutating func count(_ number: Int, items: Int, bytes: Int) {
        segments[number]!.liveCount += items
        segments[number]!.liveBytes += bytes
        liveCount += items
        withQueue(segments[number]!.isMain) { $0.liveBytes += bytes }
    }

    /// What is no longer named by the index is no longer counted, and told of.
    mutating func depart(_ word: SlotWord, _ cost: Int, _ key: UnsafeRawBufferPointer?, _ reason: RemovalReason) {
        guard segments[word.segment] != nil else { return }
        count(word.segment, items: -1, bytes: -cost)
        tally(reason, 1)
        if isListening, let key { departures.append(Departure(key: Array(key), reason: reason)) }
    }

    mutating func tally(_ reason: RemovalReason, _ items: Int) {
        switch reason {
        case .evicted: counts.evictions += items
        case .purged: counts.purged += items
        case .droppedByKernel: counts.droppedByKernel += items
        case .expired, .replaced, .removed: break
        }
    }

    func cost(of word: SlotWord) -> Int { segments[word.segment]?.header(at: word.offset)?.cost ?? averageCost(word.segment) }

    /// What an item of that segment costs whose page, and with it its length, was taken. What is left over goes with the segment.
    func averageCost(_ number: Int) -> Int {
        guard let segment = segments[number], segment.liveCount > 0 else { return 0 }
        return segment.liveCount == 1 ? segment.liveBytes : segment.liveBytes / segment.liveCount & ~7
    }
}
