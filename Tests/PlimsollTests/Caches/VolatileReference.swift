@testable import Plimsoll

/// S3-FIFO in segments as `VolatileLog` documents the policy, in arrays and with linear searches. A volatile cache must
/// match this reference request by request.
///
/// `PageLayout` decides the places of bytes in pages, and `GhostTable` the remembered ghosts. Both have tests of their
/// own.
struct VolatileReference: ~Copyable {
    struct Item {
        let key: Int
        let header: ItemHeader
        let offset: Int
        var uses = 0
        /// True if a look-up finds the item in this segment.
        var isListed = true
    }

    struct Segment {
        let id: Int
        let capacity: Int
        let isLarge: Bool
        var isMain: Bool
        var isSealed = false
        var end = 0
        var frontier = 0
        var items: [Item] = []
        /// The number of the next item in turn. The items before have had their turn.
        var turn = 0
        var liveCount = 0
        var liveBytes = 0
        /// Bytes known to be taken by the kernel.
        var lost = 0
        /// Pages that the kernel took.
        var taken: Set<Int> = []

        func isThere(_ offset: Int) -> Bool { !taken.contains(offset / PageLayout.page) }
        func isWhole(_ item: Item) -> Bool {
            let last = PageLayout.advance(item.offset, item.header.count - 1)
            return (item.offset / PageLayout.page...last / PageLayout.page).allSatisfy { !taken.contains($0) }
        }
    }

    private(set) var limit: Int
    /// The two queues, each with the oldest segment first.
    private(set) var small: [Segment] = [], main: [Segment] = []
    private var ghosts = GhostTable()
    private(set) var mapped = 0
    private(set) var evictions = 0, purged = 0, droppedByKernel = 0
    private var ids = 0
    private var copied = 0
    /// The key that an insert under way is about to replace.
    private var replacing: Int?
    /// Counts of rare events, so that a test sees that the history had some.
    private(set) var promotions = 0, turns = 0, returns = 0

    init(limit: Int) { self.limit = limit }

    var liveCount: Int { small.reduce(0) { $0 + $1.liveCount } + main.reduce(0) { $0 + $1.liveCount } }
    var liveBytes: Int { small.reduce(0) { $0 + $1.liveBytes } + main.reduce(0) { $0 + $1.liveBytes } }
    private var mostMapped: Int { max(limit, 8 * AddressSpace.block) }
    private var segmentSize: Int {
        var size = 2 << 20
        while size > limit / 64, size > AddressSpace.block { size /= 2 }
        return size
    }

    static func hash(_ key: Int) -> UInt64 {
        var word = UInt64(key) &* 0x9e37_79b9_7f4a_7c15 &+ 0x632b_e59b_d9b4_e019
        word = (word ^ (word >> 30)) &* 0xbf58_476d_1ce4_e5b9
        word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
        return word ^ (word >> 31)
    }

    static func header(_ key: Int, _ size: Int) -> ItemHeader { ItemHeader(hash: hash(key), key: 8, value: size, tags: 0, expires: false) }

    // MARK: Requests

    /// Looks a key up, and marks a present key as used. Returns true if the key is present.
    mutating func ask(_ key: Int) -> Bool {
        guard let (isMain, place, item) = find(key) else { return false }
        let segment = segment(isMain, place)
        guard segment.isWhole(segment.items[item]) else {
            forget(isMain, place, item)
            return false
        }
        change(isMain, place) { $0.items[item].uses = min(3, $0.items[item].uses + 1) }
        return true
    }

    mutating func insert(_ key: Int, _ size: Int) -> Bool {
        let header = Self.header(key, size), isNew = findKept(key) == nil
        guard header.cost <= limit, header.pagesBytes <= mostMapped else { return false }
        copied = 0
        replacing = isNew ? nil : key
        defer { replacing = nil }
        while liveBytes + header.cost > limit { guard evict() else { return false } }
        let isKnown = isNew && ghosts.remove(UInt32(truncatingIfNeeded: header.hash))
        if isKnown { returns += 1 }
        guard let (id, offset) = reserve(header, toMain: isKnown, forced: false) else { return false }
        var item = Item(key: key, header: header, offset: offset)
        // The old item may have been evicted to make room.
        if !isNew, let (isMain, place, old) = find(key) {
            unlist(isMain, place, old, cost(of: segment(isMain, place).items[old], segment(isMain, place)))
            item.uses = 1
        }
        change(id) { segment in
            segment.items.append(item)
            segment.liveCount += 1
            segment.liveBytes += header.cost
        }
        if evictions > 0 { ghosts.reserve(liveCount) }
        let (isMain, place) = self.place(of: id)
        if segment(isMain, place).isLarge { seal(id) }
        return true
    }

    mutating func remove(_ key: Int) {
        guard let (isMain, place, item) = findKept(key) else { return }
        let segment = segment(isMain, place)
        unlist(isMain, place, item, segment.items[item].header.cost)
        if segment.isSealed, self.segment(isMain, place).liveCount == 0 { retire(isMain, place) }
    }

    /// Releases at least `target` bytes if there are so many. Returns the released bytes.
    mutating func release(_ target: Int) -> Int {
        let before = mapped
        copied = 0
        // A release of half or more does not look at items.
        let isBlind = target >= before / 2
        while before - mapped < target, !small.isEmpty || !main.isEmpty {
            if isBlind {
                purged += (small.first ?? main[0]).liveCount
                retire(small.isEmpty, 0)
            } else {
                _ = evict(isPurge: true, mayOpen: false)
            }
        }
        return before - mapped
    }

    mutating func setLimit(_ new: Int) {
        limit = new
        copied = 0
        while liveBytes > limit || mapped > mostMapped { guard evict() else { return } }
    }

    /// Has the kernel take a page of a sealed segment, named by the place in the queue.
    mutating func take(_ isMain: Bool, _ place: Int, page: Int) { change(isMain, place) { $0.taken.insert(page) } }

    /// Searches for segments that lack pages. Returns the bytes of the pages found.
    mutating func noticeDrops() -> Int {
        var found = 0
        for isMain in [false, true] {
            let sealed = (isMain ? main : small).prefix { $0.isSealed }.map(\.id)
            for id in sealed {
                let place = self.place(of: id).place, segment = segment(isMain, place), pages = segment.frontier / PageLayout.page
                // A segment that has lost nothing so far is probed in four places.
                let last = max(0, pages - 1), probes = [0, last / 3, last * 2 / 3, last]
                if segment.lost == 0, probes.allSatisfy({ !segment.taken.contains($0) }) { continue }
                let gone = segment.taken.count * PageLayout.page - segment.lost
                found += gone
                mapped -= gone
                change(isMain, place) { $0.lost += gone }
                if segment.taken.count == pages {
                    droppedByKernel += segment.liveCount
                    retire(isMain, place)
                }
            }
        }
        return found
    }

    // MARK: Turns

    /// Evicts the next item in turn, or moves the item on to the main queue. The next item is the oldest of the small
    /// queue while that queue has a tenth of all bytes or of the memory, otherwise of the main queue.
    private mutating func evict(isPurge: Bool = false, sparing spared: Int = -1, mayOpen: Bool = true) -> Bool {
        let smallBytes = small.reduce(0) { $0 + $1.liveBytes }, smallMapped = small.reduce(0) { $0 + $1.frontier - $1.lost }
        let isSmallFull = Double(smallBytes) >= Double(liveBytes) * 0.1 || Double(smallMapped) >= Double(mapped) * 0.1
        let fromMain = small.isEmpty || !main.isEmpty && !isSmallFull
        var queue = fromMain ? main : small
        guard let first = queue.first else { return false }
        if first.id == spared {
            queue.removeFirst()
            if queue.isEmpty { queue = fromMain ? small : main }
        }
        guard let segment = queue.first else { return false }
        turn(segment.id, isPurge, mayOpen)
        return true
    }

    private mutating func turn(_ id: Int, _ isPurge: Bool, _ mayOpen: Bool) {
        let (isMain, place) = place(of: id), segment = segment(isMain, place)
        for number in segment.turn..<segment.items.count {
            let item = segment.items[number]
            // An item whose header was on a reclaimed page is lost.
            guard segment.isThere(item.offset) else { continue }
            change(id) { $0.turn = number + 1 }
            guard item.isListed else { continue }
            if item.uses > 0, copied < 4 << 20, item.key != replacing, keep(item, number, id, mayOpen) { return }
            let now = self.place(of: id)
            unlist(now.isMain, now.place, number, item.header.cost)
            if isPurge { purged += 1 } else { evictions += 1 }
            if !isMain, !isPurge { _ = ghosts.insert(UInt32(truncatingIfNeeded: item.header.hash)) }
            return
        }
        droppedByKernel += segment.liveCount
        retire(isMain, place)
    }

    /// Moves a used item to the end of the main queue. An item that was in the main queue already has one use less.
    private mutating func keep(_ item: Item, _ number: Int, _ id: Int, _ mayOpen: Bool) -> Bool {
        let (isMain, place) = place(of: id), segment = segment(isMain, place), uses = isMain ? item.uses - 1 : 0
        if segment.isLarge {
            guard segment.isWhole(item) else { return false }
            var moved = isMain ? main.remove(at: place) : small.remove(at: place)
            (moved.isMain, moved.turn) = (true, 0)
            moved.items[number].uses = uses
            link(moved)
        } else {
            guard let (target, offset) = reserve(item.header, toMain: true, forced: true, mayOpen: mayOpen), segment.isWhole(item) else {
                return false
            }
            let now = self.place(of: id)
            unlist(now.isMain, now.place, number, item.header.cost)
            change(target) { segment in
                segment.items.append(Item(key: item.key, header: item.header, offset: offset, uses: uses))
                segment.liveCount += 1
                segment.liveBytes += item.header.cost
            }
            copied += item.header.count
            let (isMain, place) = self.place(of: target)
            if self.segment(isMain, place).isLarge { seal(target) }
        }
        if isMain { turns += 1 } else { promotions += 1 }
        return true
    }

    // MARK: Room

    private mutating func reserve(_ header: ItemHeader, toMain: Bool, forced: Bool, mayOpen: Bool = true) -> (id: Int, offset: Int)? {
        let needed = PageLayout.advance(PageLayout.sentinel, header.count - 1) + 1, isLarge = needed > min(segmentSize, 1 << 20) / 4
        while true {
            guard !isLarge, let open = (toMain ? main : small).first(where: { !$0.isSealed && !$0.isLarge }) else {
                guard mayOpen else { return nil }
                let capacity = isLarge ? (needed + PageLayout.mask) & ~PageLayout.mask : segmentSize
                ids += 1
                let id = ids
                link(Segment(id: id, capacity: capacity, isLarge: isLarge, isMain: toMain))
                guard isLarge else { continue }
                while !extend(id, to: capacity, forced) {
                    if evict(sparing: id) { continue }
                    let (isMain, place) = place(of: id)
                    retire(isMain, place)
                    return nil
                }
                change(id) { $0.end = needed }
                return (id, PageLayout.sentinel)
            }
            let start = PageLayout.start(open.end, prefix: header.prefix), end = PageLayout.advance(start, header.count - 1) + 1
            if end > open.capacity {
                guard mayOpen else { return nil }
                seal(open.id)
                continue
            }
            if end > open.frontier, !extend(open.id, to: end, forced) {
                if !forced, evict(sparing: open.frontier == 0 ? open.id : -1) { continue }
                if open.frontier == 0 {
                    let (isMain, place) = place(of: open.id)
                    retire(isMain, place)
                }
                return nil
            }
            change(open.id) { $0.end = end }
            return (open.id, start)
        }
    }

    private mutating func extend(_ id: Int, to end: Int, _ forced: Bool) -> Bool {
        let (isMain, place) = place(of: id), segment = segment(isMain, place)
        let needed = (end + PageLayout.mask) & ~PageLayout.mask
        let target = min(segment.capacity, max(needed, segment.frontier + min(64 << 10, segment.capacity / 4)))
        guard forced || mapped + target - segment.frontier <= mostMapped else { return false }
        mapped += target - segment.frontier
        change(id) { $0.frontier = target }
        return true
    }

    private mutating func seal(_ id: Int) {
        let (isMain, place) = place(of: id)
        change(id) { $0.isSealed = true }
        if segment(isMain, place).liveCount == 0 { retire(isMain, place) }
    }

    // MARK: Segments

    /// Adds a segment at the end of the queue. A segment that is full at once goes before the segment that is being
    /// filled.
    private mutating func link(_ segment: Segment) {
        var queue = segment.isMain ? main : small
        if let last = queue.last, !last.isSealed, !last.isLarge { queue.insert(segment, at: queue.count - 1) } else { queue.append(segment) }
        if segment.isMain { main = queue } else { small = queue }
    }

    private mutating func retire(_ isMain: Bool, _ place: Int) {
        let gone = isMain ? main.remove(at: place) : small.remove(at: place)
        mapped -= gone.frontier - gone.lost
    }

    private func segment(_ isMain: Bool, _ place: Int) -> Segment { isMain ? main[place] : small[place] }

    private func place(of id: Int) -> (isMain: Bool, place: Int) {
        if let place = small.firstIndex(where: { $0.id == id }) { return (false, place) }
        guard let place = main.firstIndex(where: { $0.id == id }) else { preconditionFailure("there is no segment \(id)") }
        return (true, place)
    }

    private mutating func change(_ id: Int, _ body: (inout Segment) -> Void) {
        let (isMain, place) = place(of: id)
        change(isMain, place, body)
    }

    private mutating func change(_ isMain: Bool, _ place: Int, _ body: (inout Segment) -> Void) {
        if isMain { body(&main[place]) } else { body(&small[place]) }
    }

    // MARK: Items

    private func find(_ key: Int) -> (isMain: Bool, place: Int, item: Int)? {
        for isMain in [false, true] {
            for (place, segment) in (isMain ? main : small).enumerated() {
                if let item = segment.items.firstIndex(where: { $0.isListed && $0.key == key }) { return (isMain, place, item) }
            }
        }
        return nil
    }

    /// Finds an item for a caller that reads no value: an item whose header is gone is lost.
    private mutating func findKept(_ key: Int) -> (isMain: Bool, place: Int, item: Int)? {
        guard let (isMain, place, item) = find(key) else { return nil }
        let segment = segment(isMain, place)
        if segment.isThere(segment.items[item].offset) { return (isMain, place, item) }
        forget(isMain, place, item)
        return nil
    }

    private mutating func forget(_ isMain: Bool, _ place: Int, _ item: Int) {
        unlist(isMain, place, item, average(segment(isMain, place)))
        droppedByKernel += 1
    }

    private func cost(of item: Item, _ segment: Segment) -> Int { segment.isThere(item.offset) ? item.header.cost : average(segment) }

    /// Returns the cost that counts for an item whose length is gone. For the last item that is the rest of the live
    /// bytes.
    private func average(_ segment: Segment) -> Int {
        segment.liveCount == 1 ? segment.liveBytes : segment.liveBytes / segment.liveCount / 8 * 8
    }

    private mutating func unlist(_ isMain: Bool, _ place: Int, _ item: Int, _ cost: Int) {
        change(isMain, place) { segment in
            segment.items[item].isListed = false
            segment.liveCount -= 1
            segment.liveBytes -= cost
        }
    }
}
