import CPlimsollMemory
import Synchronization

extension VolatileLog {
    /// Share of the items' bytes, and of the memory, that the small queue may hold.
    private static var smallShare: Double { 0.1 }
    /// Bytes copied for one insert, at most. Beyond that everything is hot, and hot items are evicted too.
    private static let mostCopied = 4 << 20
    /// Number of times that large items move for one insert, at most. An item that no reader uses meanwhile moves
    /// three times at most, so only uses during the insert reach this bound.
    private var mostRequeued: Int { 4 * segments.count }

    /// True while used items are kept. If false, as much was copied or moved as one call may.
    var keepsUsed: Bool { copied < Self.mostCopied && requeued < mostRequeued }

    /// True if the small queue has its share of the items' bytes, or of the memory.
    ///
    /// A new value of a present key goes to the small queue. So if a few keys are written again and again, that queue
    /// is full of dead items. By the items' bytes alone, the dead items would push the main queue out.
    private var isSmallFull: Bool {
        Double(small.liveBytes) >= Double(liveBytes) * Self.smallShare
            || Double(small.mapped) >= Double(mapped) * Self.smallShare
    }

    /// Returns the next segment to evict from; -1 for none.
    private func victim(sparing spared: Int) -> Int {
        let fromSmall = small.oldest >= 0 && (main.oldest < 0 || isSmallFull)
        let first = fromSmall ? small.oldest : main.oldest
        if first != spared { return first }
        return first >= 0 && segments[first]!.newer >= 0
            ? segments[first]!.newer : fromSmall ? main.oldest : small.oldest
    }

    /// Handles the next item in eviction order: copies a used item forward, evicts an unused one. Releases the memory
    /// of a segment at the end.
    ///
    /// - Parameters:
    ///   - mayOpen: true if a copy may open another segment.
    /// - Returns: false if nothing is left.
    mutating func evictNext(_ reason: RemovalReason = .evicted, sparing spared: Int = -1, mayOpen: Bool = true) -> Bool
    {
        let number = victim(sparing: spared)
        guard number >= 0 else { return false }
        turn(of: number, reason, mayOpen: mayOpen)
        return true
    }

    mutating func turn(of number: Int, _ reason: RemovalReason, mayOpen: Bool) {
        guard let segment = segments[number] else { return }
        var cursor = segment.cursor
        while let (offset, header) = segment.nextItem(from: cursor) {
            cursor = segment.next(after: offset, header)
            segments[number]!.cursor = cursor
            let word = SlotWord(segment: number, offset: offset, hash: header.hash)
            guard let slot = index.find(word, header.hash) else { continue }
            let uses = SlotWord(bits: slot.pointee.load(ordering: .relaxed)).uses
            let isHot = uses > 0 && keepsUsed && word != replacing && !hasExpired(segment, offset, header)
            if isHot, keep(slot, word, header, in: segment, uses: segment.isMain ? uses - 1 : 0, mayOpen: mayOpen) {
                return
            }
            leave(slot, word, header, in: segment, reason)
            if !segment.isMain, reason == .evicted { _ = ghosts.insert(UInt32(truncatingIfNeeded: header.hash)) }
            return
        }
        // Items still counted were on pages that are gone.
        retire(number, .droppedByKernel)
    }

    /// Removes an item from the index and records the reason.
    mutating func leave(
        _ slot: HashIndex.Slot, _ word: SlotWord, _ header: ItemHeader, in segment: Segment, _ reason: RemovalReason
    ) {
        index.remove(slot)
        depart(word, header.cost, segment.key(at: word.offset, header), reason)
    }

    func hasExpired(_ segment: Segment, _ offset: Int, _ header: ItemHeader) -> Bool {
        header.hasExpiry
            && (segment.base + offset + ItemHeader.size).load(as: UInt64.self) <= UInt64(max(0, now.inNanoseconds))
    }

    /// Moves a hot item to the end of the main queue. Returns false if there is no room, or if the item was taken
    /// meanwhile.
    private mutating func keep(
        _ slot: HashIndex.Slot, _ word: SlotWord, _ header: ItemHeader, in segment: Segment, uses: UInt64, mayOpen: Bool
    ) -> Bool {
        if segment.isLarge {
            guard segment.isThere(word.offset, count: header.count) else { return false }
            // A large item has a segment to itself, so no copy is needed. The pages keep their age for the kernel.
            index.move(slot, to: SlotWord(segment: word.segment, offset: word.offset, hash: header.hash, uses: uses))
            requeue(word.segment)
            requeued += 1
            return true
        }
        guard let (number, offset) = reserve(header, toMain: true, forced: true, mayOpen: mayOpen) else { return false }
        copyForward(header, from: segment, word.offset, to: segments[number]!.base, offset)
        guard segment.isThere(word.offset, count: header.count) else { return false }
        segments[number]!.tags |= segment.tags
        count(word.segment, items: -1, bytes: -header.cost)
        count(number, items: 1, bytes: header.cost)
        index.move(slot, to: SlotWord(segment: number, offset: offset, hash: header.hash, uses: uses))
        copied += header.count
        if segments[number]!.isLarge { seal(number) }
        return true
    }

    private func copyForward(
        _ header: ItemHeader, from segment: Segment, _ source: Int, to base: UnsafeMutableRawPointer, _ target: Int
    ) {
        // Write the header as it was read, so that a walk can continue even if the rest turns out to be gone.
        (base + target).storeBytes(of: header.lengths, as: UInt64.self)
        (base + target).storeBytes(of: header.hash, toByteOffset: 8, as: UInt64.self)
        plimsoll_copy_racing(
            base + target + ItemHeader.size, segment.base + source + ItemHeader.size, header.prefix - ItemHeader.size)
        var (from, to) = (PageLayout.advance(source, header.prefix), PageLayout.advance(target, header.prefix))
        var left = header.value
        while left > 0 {
            let length = min(left, PageLayout.page - (from & PageLayout.mask), PageLayout.page - (to & PageLayout.mask))
            plimsoll_copy_racing(base + to, segment.base + from, length)
            from = PageLayout.advance(from, length)
            to = PageLayout.advance(to, length)
            left -= length
        }
    }

    /// Ends a segment and releases the memory. Items still counted leave for `reason`.
    mutating func retire(_ number: Int, _ reason: RemovalReason) {
        let segment = segments[number]!
        unlink(number)
        tally(reason, segment.liveCount)
        liveCount -= segment.liveCount
        withQueue(segment.isMain) { $0.liveBytes -= segment.liveBytes }
        // Zero first: from here on the segment's slots name nothing.
        table[number].pointee.generation.store(0, ordering: .releasing)
        if plimsoll_blank(segment.base, AddressSpace.rounded(segment.capacity)) != 0 {
            // The process has too many mappings to split this one, or too many locked pages for another. Release the
            // pages in another way, or at least write zeros. Old contents would pass for items of the next segment at
            // this address.
            _ = plimsoll_empty(segment.base, segment.frontier)
        }
        space.give(segment.base, segment.capacity)
        segment.firsts?.deallocate()
        segments[number] = nil
        if segment.isSealed { sealed -= segment.frontier - segment.lost }
        countOut(segment.frontier - segment.lost)
        if segment.liveCount == 0 { numbers.give(number) } else { numbers.giveWhenSwept(number) }
    }

    /// Sweeps a part of the index for slots whose segment is gone, so that segment numbers can be reused.
    mutating func sweep() {
        guard numbers.hasWaiting else { return }
        if index.sweep(pages: index.pageCount / 32 + 1, isGone: { segments[$0.segment] == nil }) {
            numbers.roundEnded()
        }
    }
}
