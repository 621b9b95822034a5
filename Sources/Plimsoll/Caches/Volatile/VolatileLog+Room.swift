import CPlimsollMemory
import Synchronization

/// Room for items: segments are opened, filled front to back, and sealed.
extension VolatileLog {
    /// Minimum number of bytes by which a segment grows.
    private var leastStep: Int { min(Self.step, segmentSize / 4) }

    /// Returns true if evicting everything would make room for an item's pages. If not, nothing is evicted.
    func canHave(_ header: ItemHeader) -> Bool {
        guard let meter else { return true }
        let bytes = max(header.pagesBytes, leastStep)
        let room = meter.room(leavesReserve: isAboveShare(with: bytes))
        return bytes <= room || bytes - room <= mapped + spare
    }

    /// Reserves room for an item at the end of a queue.
    ///
    /// - Parameter forced: true to take the memory without evicting elsewhere: for copies, whose old place is released
    ///   at once.
    mutating func reserve(_ header: ItemHeader, toMain: Bool, forced: Bool, mayOpen: Bool = true) -> (
        number: Int, offset: Int
    )? {
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
                    // Evicting from a segment without pages frees nothing. Another segment would be opened instead, and
                    // so on for ever. That happens before a main queue in which nothing counts any more. Another case
                    // is that another cache has taken the room that `canHave` saw.
                    guard !forced, evictNext(sparing: segment.frontier == 0 ? open : -1) else {
                        if segment.frontier == 0 { retire(open, .removed) }
                        return nil
                    }
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
        let isHuge =
            allowsHugePages && capacity == 2 << 20 && mapped >= Self.hugeFrom
            && plimsoll_allow_huge_pages(base, capacity) == 0
        let generation = Self.generations.wrappingAdd(1, ordering: .relaxed).newValue
        while segments.count <= number { segments.append(nil) }
        segments[number] = Segment(
            base: base, capacity: capacity, generation: generation, isMain: isMain, isLarge: bytes != nil,
            isHuge: isHuge)
        link(number)
        if bytes == nil { withQueue(isMain) { $0.open = number } }
        // Base before generation: a reader loads them the other way round, and checks the pages against the loaded
        // generation.
        table[number].pointee.base.store(UInt(bitPattern: base), ordering: .releasing)
        table[number].pointee.generation.store(generation, ordering: .releasing)
        sweep()
        return number
    }

    /// Makes the pages up to `end`, or all, resident, with their sentinels. Returns false if there is no room.
    private mutating func extend(_ number: Int, to end: Int? = nil, forced: Bool) -> Bool {
        let segment = segments[number]!
        let needed = ((end ?? segment.capacity) + PageLayout.mask) & ~PageLayout.mask
        let target =
            segment.isHuge
            ? segment.capacity
            : min(segment.capacity, max(needed, segment.frontier + min(Self.step, segment.capacity / 4)))
        let bytes = target - segment.frontier
        guard forced || mapped + bytes <= mappedBound, declare(bytes, isCopy: forced) else { return false }
        // One call for all pages instead of a page fault each. If the call fails, the writes below fault the pages in.
        _ = plimsoll_populate(segment.base + segment.frontier, bytes)
        var page = segment.frontier
        while page < target {
            // Relaxed: readers get here only by a slot that is published with release after this.
            Segment.sentinel(segment.base, page).pointee.store(segment.generation, ordering: .relaxed)
            page += PageLayout.page
        }
        segments[number]!.frontier = target
        mapped += bytes
        withQueue(segment.isMain) { $0.mapped += bytes }
        return true
    }

    /// Offers a full segment to the kernel, which takes the pages when memory is short.
    mutating func seal(_ number: Int) {
        guard var segment = segments[number], !segment.isSealed else { return }
        segment.isSealed = true
        segment.sealedAt = now
        segments[number] = segment
        withQueue(segment.isMain) { if $0.open == number { $0.open = -1 } }
        sealed += segment.frontier
        if isVolatile, segment.frontier > 0, plimsoll_mark_volatile(segment.base, segment.frontier) != 0 {
            // Locked pages (mlockall) cannot be volatile. From here on this is an ordinary, bounded cache.
            isVolatile = false
        }
        if segment.liveCount == 0 { retire(number, .removed) }
    }
}
