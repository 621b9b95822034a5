import CPlimsollMemory
import Synchronization

extension VolatileLog {
    /// Share of the items' bytes that newcomers may hold.
    private static var smallShare: Double { 0.1 }
    /// Copying more than this for one insert, everything is hot and something has to go all the same.
    private static let mostCopied = 4 << 20

    /// The segment whose turn it is; -1 for none.
    private func victim(sparing spared: Int) -> Int {
        let fromSmall = small.oldest >= 0 && (main.oldest < 0 || Double(small.liveBytes) >= Double(liveBytes) * Self.smallShare)
        let first = fromSmall ? small.oldest : main.oldest
        if first != spared { return first }
        return first >= 0 && segments[first]!.newer >= 0 ? segments[first]!.newer : fromSmall ? main.oldest : small.oldest
    }

    /// Lets the next item have its turn: copied forward if it was asked for, evicted if not. At the end of a segment its memory is given back.
    ///
    /// - Parameters:
    ///   - mayOpen: whether a copy may open another segment.
    /// - Returns: false if there is nothing left.
    mutating func evictNext(_ reason: RemovalReason = .evicted, sparing spared: Int = -1, mayOpen: Bool = true) -> Bool {
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
            let isHot = uses > 0 && copied < Self.mostCopied && word != replacing && !hasExpired(segment, offset, header)
            if isHot, keep(slot, word, header, in: segment, uses: segment.isMain ? uses - 1 : 0, mayOpen: mayOpen) { return }
            leave(slot, word, header, in: segment, reason)
            if !segment.isMain, reason == .evicted { _ = ghosts.insert(UInt32(truncatingIfNeeded: header.hash)) }
            return
        }
        // Those still counted were on pages that are gone.
        retire(number, .droppedByKernel)
    }

    /// Takes an item out of the index and tells why.
    mutating func leave(_ slot: HashIndex.Slot, _ word: SlotWord, _ header: ItemHeader, in segment: Segment, _ reason: RemovalReason) {
        index.remove(slot)
        depart(word, header.cost, segment.key(at: word.offset, header), reason)
    }

    private func hasExpired(_ segment: Segment, _ offset: Int, _ header: ItemHeader) -> Bool {
        header.hasExpiry && (segment.base + offset + ItemHeader.size).load(as: UInt64.self) <= UInt64(max(0, now.inNanoseconds))
    }

    /// Brings what is hot to the end of the main queue. False if there is no room, or if it was taken meanwhile.
    private mutating func keep(
        _ slot: HashIndex.Slot, _ word: SlotWord, _ header: ItemHeader, in segment: Segment, uses: UInt64, mayOpen: Bool
    ) -> Bool {
        if segment.isLarge {
            guard segment.isThere(word.offset, count: header.count) else { return false }
            // Has its segment to itself, so it need not be copied. Its pages keep their age in the eyes of the kernel.
            index.move(slot, to: SlotWord(segment: word.segment, offset: word.offset, hash: header.hash, uses: uses))
            requeue(word.segment)
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

    private func copyForward(_ header: ItemHeader, from segment: Segment, _ source: Int, to base: UnsafeMutableRawPointer, _ target: Int) {
        // The header is written as it was read, so that a walk finds its way even if the rest turns out to be gone.
        (base + target).storeBytes(of: header.lengths, as: UInt64.self)
        (base + target).storeBytes(of: header.hash, toByteOffset: 8, as: UInt64.self)
        plimsoll_copy_racing(base + target + ItemHeader.size, segment.base + source + ItemHeader.size, header.prefix - ItemHeader.size)
        var (from, to) = (PageLayout.advance(source, header.prefix), PageLayout.advance(target, header.prefix))
        var left = header.value
        while left > 0 {
            let piece = min(left, PageLayout.page - (from & PageLayout.mask), PageLayout.page - (to & PageLayout.mask))
            plimsoll_copy_racing(base + to, segment.base + from, piece)
            from = PageLayout.advance(from, piece)
            to = PageLayout.advance(to, piece)
            left -= piece
        }
    }

    /// Ends a segment and gives its memory back. Items still counted leave for `reason`.
    mutating func retire(_ number: Int, _ reason: RemovalReason) {
        let segment = segments[number]!
        unlink(number)
        tally(reason, segment.liveCount)
        liveCount -= segment.liveCount
        withQueue(segment.isMain) { $0.liveBytes -= segment.liveBytes }
        // Zero first: from here on its slots say nothing.
        table[number].pointee.generation.store(0, ordering: .releasing)
        if plimsoll_blank(segment.base, AddressSpace.rounded(segment.capacity)) != 0 {
            // Too many mappings to part this one, or too many locked pages for another: the pages can be given back all the same, or hold zeros at
            // least. What stayed would be taken for items of the next segment here.
            _ = plimsoll_empty(segment.base, segment.frontier)
        }
        space.give(segment.base, segment.capacity)
        segment.firsts?.deallocate()
        segments[number] = nil
        if segment.isSealed { sealed -= segment.frontier - segment.lost }
        countOut(segment.frontier - segment.lost)
        if segment.liveCount == 0 { numbers.give(number) } else { numbers.giveWhenSwept(number) }
    }

    /// A step in clearing the index of slots whose segment is gone, so that its number can be given anew.
    mutating func sweep() {
        guard numbers.hasWaiting else { return }
        if index.sweep(pages: index.pageCount / 32 + 1, isGone: { segments[$0.segment] == nil }) { numbers.roundEnded() }
    }
}
