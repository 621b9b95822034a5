/// Release on purpose, and detection of pages that the kernel took.
extension VolatileLog {
    /// Releases at least `target` bytes, oldest first, or everything. Hot items survive only where open segments have
    /// room: a release takes no new memory. If at least half is to go, whole segments go without a check of each item.
    ///
    /// - Returns: bytes released.
    mutating func release(_ target: Int, _ reason: RemovalReason = .purged) -> Int {
        let before = mapped
        (copied, requeued) = (0, 0)
        giveSpare(downTo: 0)
        let isBlind = target >= before / 2 && !isListening
        while before - mapped < target {
            if isBlind {
                let number = small.oldest >= 0 ? small.oldest : main.oldest
                guard number >= 0 else { break }
                retire(number, reason)
            } else {
                if target >= before { copied = .max }
                guard evictNext(reason, mayOpen: false) else { break }
            }
        }
        if liveCount == 0, small.oldest < 0, main.oldest < 0 {
            index.removeAll()
            numbers.allSwept()
        }
        return before - mapped
    }

    /// Evicts up to `count` bytes, but none of the share. A segment is released as a whole, so it may be more.
    mutating func evictAboveShare(_ count: Int) -> Int {
        let before = mapped, kept = max(share, before - max(0, count))
        guard share > 0, before > share else { return 0 }
        (copied, requeued) = (0, 0)
        giveSpare(downTo: 0)
        while mapped > kept { guard evictNext() else { break } }
        return max(0, before - mapped)
    }

    /// Finds the pages that the kernel took. The kernel takes pages in the order of sealing, but skips once those read
    /// since (a huge page as a whole). So every sealed segment is checked; a segment that is still whole only at some
    /// pages.
    mutating func noticeDrops() -> Int {
        isVolatile ? noticeDrops(from: small.oldest) + noticeDrops(from: main.oldest) : 0
    }

    private mutating func noticeDrops(from oldest: Int) -> Int {
        var found = 0, number = oldest
        while number >= 0, let segment = segments[number], segment.isSealed {
            let this = number
            number = segment.newer
            if segment.lost == 0, segment.seemsWhole { continue }
            var there = 0, page = 0
            while page < segment.frontier {
                if segment.isThere(page) { there += PageLayout.page }
                page += PageLayout.page
            }
            let taken = segment.frontier - there - segment.lost
            found += taken
            segments[this]!.lost += taken
            withQueue(segment.isMain) { $0.mapped -= taken }
            sealed -= taken
            countOut(taken, areTaken: true)
            if there == 0 { retire(this, .droppedByKernel) }
        }
        return found
    }

    /// Finds the pages that the kernel took, if the oldest page of all is gone. So a log that grows as fast as the
    /// kernel reclaims does not depend on a manager.
    mutating func noticeOldDrops() {
        if isGone(small.oldest) || isGone(main.oldest) { _ = noticeDrops() }
    }

    private func isGone(_ number: Int) -> Bool {
        guard number >= 0, let segment = segments[number] else { return false }
        return segment.isSealed && !segment.isThere(0)
    }

    /// Most items that one call of `turnOver` handles, in a few milliseconds. Other writers wait for that time.
    private static let mostTurned = 1 << 14

    /// Evicts from the segments that were sealed longer than `age` ago, keeping hot items. Copies no more than an
    /// insert does, and handles `mostTurned` items at most.
    ///
    /// - Returns: true if such segments are left for another call.
    mutating func turnOver(olderThan age: Duration) -> Bool {
        (copied, requeued) = (0, 0)
        var turned = 0
        while isSealed(small.oldest, longerAgoThan: age) {
            guard keepsUsed, turned < Self.mostTurned else { return true }
            turned += 1
            turn(of: small.oldest, .evicted, mayOpen: true)
        }
        while isSealed(main.oldest, longerAgoThan: age) {
            guard keepsUsed, turned < Self.mostTurned else { return true }
            turned += 1
            turn(of: main.oldest, .evicted, mayOpen: true)
        }
        return false
    }

    private func isSealed(_ number: Int, longerAgoThan age: Duration) -> Bool {
        guard number >= 0, let segment = segments[number] else { return false }
        return segment.isSealed && now - segment.sealedAt > age
    }

    /// Removes every item with that tag.
    ///
    /// - Returns: number of items removed.
    mutating func purge(tag: UInt64) -> Int {
        var number = 0, count = 0
        while number < segments.count {
            if let segment = segments[number], segment.mayBear(tag) {
                segment.eachItem(tag: tag) { word, header in
                    guard let slot = index.find(word(number), header.hash) else { return }
                    leave(slot, word(number), header, in: segment, .purged)
                    count += 1
                }
                if segment.isSealed, segments[number]!.liveCount == 0 { retire(number, .purged) }
            }
            number += 1
        }
        return count
    }

    /// Returns the number of items with that tag.
    func count(tag: UInt64) -> Int {
        var count = 0
        for case (let number, let segment?) in segments.enumerated() where segment.mayBear(tag) {
            segment.eachItem(tag: tag) { word, header in if index.find(word(number), header.hash) != nil { count += 1 }
            }
        }
        return count
    }
}

extension Segment {
    /// Returns true if the segment may contain an item with that tag.
    fileprivate func mayBear(_ tag: UInt64) -> Bool { tags & 1 << (tag & 63) != 0 }

    /// Calls `body` with each item that has that tag, and with a function that makes the item's word from a segment
    /// number.
    fileprivate func eachItem(tag: UInt64, _ body: ((Int) -> SlotWord, ItemHeader) -> Void) {
        var position = cursor
        while let (offset, header) = nextItem(from: position) {
            position = next(after: offset, header)
            let tags = base + offset + header.tagsStart
            guard (0..<header.tags).contains(where: { tags.load(fromByteOffset: $0 * 8, as: UInt64.self) == tag })
            else { continue }
            body({ SlotWord(segment: $0, offset: offset, hash: header.hash) }, header)
        }
    }
}
