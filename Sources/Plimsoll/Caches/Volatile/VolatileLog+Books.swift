/// Accounting: the segments, their order in the queues, and the bytes in them.
extension VolatileLog {
    // MARK: Queues

    mutating func withQueue(_ isMain: Bool, _ body: (inout Queue) -> Void) {
        if isMain { body(&main) } else { body(&small) }
    }

    mutating func link(_ number: Int) {
        let isMain = segments[number]!.isMain
        // A large segment is full at once. Link it behind the open segment, which stays the newest.
        let open = isMain ? main.open : small.open
        let newest = isMain ? main.newest : small.newest
        let older = open >= 0 && open == newest ? segments[open]!.older : newest
        let newer = open >= 0 && open == newest ? open : -1
        segments[number]!.older = older
        segments[number]!.newer = newer
        if older >= 0 { segments[older]!.newer = number }
        if newer >= 0 { segments[newer]!.older = number }
        let pages = segments[number]!.frontier - segments[number]!.lost
        withQueue(isMain) {
            $0.mapped += pages
            if older < 0 { $0.oldest = number }
            if newer < 0 { $0.newest = number }
        }
    }

    /// Moves a segment to the end of the main queue.
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
            $0.mapped -= segment.frontier - segment.lost
            if $0.oldest == number { $0.oldest = segment.newer }
            if $0.newest == number { $0.newest = segment.older }
            if $0.open == number { $0.open = -1 }
        }
    }

    // MARK: Counting

    /// Declares `bytes` of pages about to be mapped. Uses the spare declaration first. Returns false if there is no
    /// room.
    ///
    /// - Parameter isCopy: true for copies, which free as many bytes elsewhere. Nothing is declared for copies.
    mutating func declare(_ bytes: Int, isCopy: Bool) -> Bool {
        guard let meter else { return true }
        let claimed = isCopy ? bytes : min(max(0, spare), bytes)
        // Ask only for bytes not declared yet. There may be less room by now than is held.
        guard claimed == bytes || meter.take(bytes - claimed, leavesReserve: isAboveShare(with: bytes)) else {
            lack(bytes - claimed)
            return false
        }
        spare -= claimed
        return true
    }

    /// Subtracts `bytes` of pages that are gone. During an insert the bytes stay declared, for the new item.
    mutating func countOut(_ bytes: Int, areTaken: Bool = false) {
        mapped -= bytes
        guard let meter else { return }
        let kept = isInserting && !areTaken ? bytes : min(max(0, -spare), bytes)
        spare += kept
        meter.give(bytes - kept)
        if mapped == 0, !isInserting { giveSpare(downTo: 0) }
    }

    /// Returns true if the cache has a share, and would hold more with so many bytes.
    func isAboveShare(with bytes: Int) -> Bool { share > 0 && mapped + bytes > share }

    /// Notes bytes that caches above their share should leave to this one, if this one is below its own.
    mutating func lack(_ bytes: Int) { if share > mapped { lacking = bytes } }

    /// Takes what others should leave, and the meter to ask for that.
    mutating func takeRequest() -> RoomRequest? {
        guard let meter, lacking > 0 else { return nil }
        defer { lacking = 0 }
        return RoomRequest(meter: meter, bytes: lacking)
    }

    mutating func giveSpare(downTo kept: Int) {
        guard spare > kept else { return }
        meter?.give(spare - kept)
        spare = kept
    }

    mutating func count(_ number: Int, items: Int, bytes: Int) {
        segments[number]!.liveCount += items
        segments[number]!.liveBytes += bytes
        liveCount += items
        withQueue(segments[number]!.isMain) { $0.liveBytes += bytes }
    }

    /// Stops counting an item that the index no longer names, and records the departure for the listeners.
    ///
    /// - Parameter key: a copy of the item's key, made only if there are listeners; `nil` if the key is gone.
    mutating func depart(_ word: SlotWord, _ cost: Int, _ key: @autoclosure () -> [UInt8]?, _ reason: RemovalReason) {
        guard segments[word.segment] != nil else { return }
        count(word.segment, items: -1, bytes: -cost)
        tally(reason, 1)
        if isListening, let key = key() { departures.append(Departure(key: key, reason: reason)) }
    }

    mutating func tally(_ reason: RemovalReason, _ items: Int) {
        switch reason {
        case .evicted: counts.evictions += items
        case .purged: counts.purged += items
        case .droppedByKernel: counts.droppedByKernel += items
        case .expired, .replaced, .removed: break
        }
    }

    func cost(of word: SlotWord) -> Int {
        segments[word.segment]?.header(at: word.offset)?.cost ?? averageCost(word.segment)
    }

    /// Returns the estimated cost of an item whose page, and so whose length, was taken. The segment's last item gets
    /// the remainder.
    func averageCost(_ number: Int) -> Int {
        guard let segment = segments[number], segment.liveCount > 0 else { return 0 }
        return segment.liveCount == 1 ? segment.liveBytes : segment.liveBytes / segment.liveCount & ~7
    }
}
