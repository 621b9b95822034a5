import Synchronization

// Slots, their queues, and the index that lists them.
extension CacheTable {
    @inline(__always)
    mutating func takeSlot() -> UInt32? {
        if free != SlotNode.none {
            let slot = free
            if !isPlain { times.set(slot, SlotTimes()) }
            free = node(slot).pointee.newer
            if free != SlotNode.none { node(free).pointee.older = SlotNode.none }
            return slot
        }
        guard top < SlotBlock.most else { return nil }
        let slot = UInt32(top)
        if top == slots.room { reserve(top + 1) }
        node(slot).pointee.queue = .free
        if !isPlain { reserveExtras(slot) }
        top += 1
        return slot
    }

    /// Grows the block to at least `count` slots.
    @inline(never)
    mutating func reserve(_ count: Int) {
        guard count > slots.room else { return }
        if let old = slots.grow(to: count, leastMapped: leastMapped, used: top, move: move) { retire(old) }
    }

    private var leastMapped: Int { hasReaders ? CacheAllocation.leastMappedForReaders : CacheAllocation.leastMapped }

    /// Frees memory that readers may still be reading only when no reader can be left.
    private mutating func retire(_ allocation: CacheAllocation) {
        guard hasReaders else { return allocation.free() }
        _ = allocation.giveBack(0, to: allocation.byteCount)
        retired.append(allocation)
    }

    @inline(__always)
    mutating func append(_ slot: UInt32, to place: SlotNode.Queue) {
        let node = node(slot), cost = cost(of: slot)
        let newest = withQueue(place) { queue in
            let newest = queue.newest
            queue.newest = slot
            if newest == SlotNode.none { queue.oldest = slot }
            queue.cost &+= cost
            queue.count &+= 1
            return newest
        }
        node.pointee.link(in: place, older: newest, newer: SlotNode.none)
        if newest != SlotNode.none { self.node(newest).pointee.newer = slot }
    }

    @inline(__always)
    mutating func unlink(_ slot: UInt32) {
        let node = node(slot), cost = cost(of: slot)
        let (older, newer) = (node.pointee.older, node.pointee.newer)
        let isOldest = withQueue(node.pointee.queue) { queue in
            queue.cost &-= cost
            queue.count &-= 1
            let isOldest = queue.oldest == slot
            if isOldest { queue.oldest = newer }
            if queue.newest == slot { queue.newest = isOldest ? SlotNode.none : older }
            return isOldest
        }
        // The slot that becomes the oldest is not written: its memory is probably cold.
        if isOldest { return }
        self.node(older).pointee.newer = newer
        if newer != SlotNode.none { self.node(newer).pointee.older = older }
    }

    @inline(__always)
    mutating func unlinkOldest(_ slot: UInt32, of place: SlotNode.Queue) {
        let cost = cost(of: slot), newer = node(slot).pointee.newer
        withQueue(place) { queue in
            queue.cost &-= cost
            queue.count &-= 1
            queue.oldest = newer
            if newer == SlotNode.none { queue.newest = newer }
        }
    }

    @inline(__always)
    mutating func withQueue<Result>(_ place: SlotNode.Queue, _ body: (inout Queue) -> Result) -> Result {
        switch place {
        case .main: body(&main)
        case .pinned: body(&pinned)
        case .small, .free: body(&small)
        }
    }

    // MARK: The index

    /// Makes room for one more slot: at most every second cell is in use. With three of four cells in use, an index
    /// is half as large. A miss then takes twice the steps, and no processor predicts their number.
    @inline(__always)
    mutating func growIndex() {
        let bits = Int(index.word & 63)
        guard count * 2 > 1 << bits else { return }
        rebuildIndex(bits: bits + 1)
    }

    @inline(never)
    private mutating func rebuildIndex(bits: Int) {
        let allocation = CacheAllocation(4 << bits, leastMapped: leastMapped)
        let index = CacheIndex(allocation.base, bits: bits)
        for slot in 0..<UInt32(top) where node(slot).pointee.queue != .free { index.add(slot, node(slot).pointee.hash) }
        // The newcomer that needs the room is in no queue yet, and will be listed next.
        published.pointee.store(index.word, ordering: .releasing)
        retire(cells)
        cells = allocation
    }

    /// Empties the index and shrinks it to the smallest size.
    ///
    /// - Returns: the previous index memory; `nil` if readers may be in the index, which is then cleared in
    ///   place.
    mutating func clearIndex() -> CacheAllocation? {
        if hasReaders {
            let index = index
            for place in 0...index.mask { index.clear(place) }
            return nil
        }
        let allocation = CacheAllocation(4 << Self.leastBits)
        published.pointee.store(CacheIndex(allocation.base, bits: Self.leastBits).word, ordering: .relaxed)
        defer { cells = allocation }
        return cells
    }
}

extension CacheTable {
    /// Moves the entries with `bit` set in the hash to `other`, which is empty. The oldest move first, so that both
    /// tables keep their order.
    ///
    /// - Parameter move: a closure that moves key and value from a slot here to a slot there.
    mutating func split(into other: inout CacheTable, bit: UInt32, move: (_ from: UInt32, _ to: UInt32) -> Void) {
        depth += 1
        // Room for about half of the entries, and some growth.
        other.reserve(count * 5 / 8)
        for place in [SlotNode.Queue.small, .main, .pinned] {
            var next = place == .small ? small.oldest : place == .main ? main.oldest : pinned.oldest
            while next != SlotNode.none {
                let slot = next
                next = node(slot).pointee.newer
                if node(slot).pointee.hash >> bit & 1 == 1 { send(slot, to: &other, place, move) }
            }
        }
        // A hash of one half is never asked for in the other, so both may keep all ghosts.
        other.ghosts = ghosts.copy()
    }

    private mutating func send(
        _ slot: UInt32, to other: inout CacheTable, _ place: SlotNode.Queue, _ move: (UInt32, UInt32) -> Void
    ) {
        let hash = node(slot).pointee.hash, cost = cost(of: slot), pin = pins[slot]
        let names = tagged.isUsed ? tags.names(tagged[slot]) : []
        guard let target = other.add(hash, cost: cost, to: place) else { return }
        other.mark(target).pointee.store(mark(slot).pointee.load(ordering: .relaxed), ordering: .relaxed)
        move(slot, target)
        if times.isUsed { other.setTimes(target, times[slot].kept, at: wheel.now) }
        if !names.isEmpty { other.tag(target, names) }
        remove(slot)
        if let pin { other.setPins(target, pin) }
    }
}

extension CacheTable {
    /// Removes everything at once. The caller frees the returned memory, because freeing takes longer than all
    /// else.
    mutating func clear() -> TableRemains {
        var remains = TableRemains()
        (small, main, pinned) = (Queue(), Queue(), Queue())
        (count, top, free) = (0, 0, SlotNode.none)
        tags = TagIndex()
        pins = [:]
        remains.others += costs.detach()
        remains.others += tagged.detach()
        remains.others += times.detach()
        wheel = ExpiryWheel()
        (costOfAll, isPlain) = (0, true)
        if let index = clearIndex() { remains.others.append(index) }
        if hasReaders { slots.trim(to: 0) } else { remains.slots = slots.detach() }
        return remains
    }

    /// True if much of the memory belongs to unused slots.
    var isSparse: Bool { top - count > 1024 && count < top / 2 }

    /// Moves the entries of the last slots to free slots before them, and releases the memory behind. Allocates
    /// nothing.
    ///
    /// - Parameter move: a closure that moves key and value from one slot to another.
    /// - Returns: true if compaction is complete.
    mutating func compact(atMost moves: Int, _ move: (_ from: UInt32, _ to: UInt32) -> Void) -> Bool {
        var left = moves
        while top > count {
            if left == 0 { return false }
            left -= 1
            let last = UInt32(top - 1)
            if isUsed(last) {
                // There are fewer entries than slots, so some slot before the last is free.
                let target = free
                unlinkFree(target)
                relocate(last, to: target)
                move(last, target)
            } else {
                unlinkFree(last)
            }
            top -= 1
        }
        slots.trim(to: top)
        _ = costs.trim(to: top)
        _ = tagged.trim(to: top)
        _ = times.trim(to: top)
        return true
    }

    private mutating func unlinkFree(_ slot: UInt32) {
        let (before, next) = (node(slot).pointee.older, node(slot).pointee.newer)
        if before == SlotNode.none { free = next } else { node(before).pointee.newer = next }
        if next != SlotNode.none { node(next).pointee.older = before }
    }

    private mutating func relocate(_ slot: UInt32, to target: UInt32) {
        let from = node(slot), to = node(target), queue = from.pointee.queue
        to.pointee = from.pointee
        let (older, newer) = (from.pointee.older, from.pointee.newer)
        withQueue(queue) { queue in
            if queue.oldest == slot { queue.oldest = target }
            if queue.newest == slot { queue.newest = target }
        }
        let isOldest = withQueue(queue) { $0.oldest == target }
        if !isOldest { node(older).pointee.newer = target }
        if newer != SlotNode.none { node(newer).pointee.older = target }
        index.move(slot, to: target, from.pointee.hash)
        mark(target).pointee.store(mark(slot).pointee.load(ordering: .relaxed), ordering: .relaxed)
        if costs.isUsed { costs.set(target, costs[slot]) }
        if tagged.isUsed {
            tagged.set(target, tagged[slot])
            tags.move(tagged[slot], to: Int32(target))
        }
        if times.isUsed {
            let kept = times[slot].kept
            wheel.remove(slot, &times)
            times.set(target, kept)
            wheel.add(target, &times)
        }
        if let count = pins.removeValue(forKey: slot) { pins[target] = count }
        from.pointee.queue = .free
    }
}

// Optional data of a slot: tags, times and pins.
extension CacheTable {
    /// Reserves room for the optional data of `slot`, which has never been in use.
    @inline(never)
    mutating func reserveExtras(_ slot: UInt32) {
        costs.reserve(slot)
        tagged.reserve(slot)
        tagged.set(slot, TagIndex.none)
        times.reserve(slot)
        times.set(slot, SlotTimes())
    }

    /// Removes the optional data of `slot`.
    @inline(never)
    mutating func removeExtras(_ slot: UInt32) {
        if tagged.isUsed { untag(slot) }
        if wheel.isUsed { wheel.remove(slot, &times) }
        if !pins.isEmpty { pins[slot] = nil }
    }

    func isUsed(_ slot: UInt32) -> Bool { node(slot).pointee.queue != .free }

    /// Sets the tags of the entry in `slot`.
    @usableFromInline
    mutating func tag(_ slot: UInt32, _ names: [String]) {
        isPlain = false
        tagged.use(top, filledWith: TagIndex.none)
        tagged.set(slot, tags.add(Int32(slot), names))
    }

    /// Updates cost, tags and times after another entry came into `slot` under the same key.
    @usableFromInline
    mutating func replaced(_ slot: UInt32, cost: Int, _ names: [String]) {
        let old = self.cost(of: slot)
        set(slot, cost: cost)
        withQueue(node(slot).pointee.queue) { $0.cost += cost - old }
        untag(slot)
        if !names.isEmpty { tag(slot, names) }
        guard wheel.isUsed else { return }
        wheel.remove(slot, &times)
        times.set(slot, SlotTimes())
    }

    // MARK: Time

    @usableFromInline
    mutating func setTimes(_ slot: UInt32, _ new: SlotTimes, at now: Int64) {
        isPlain = false
        wheel.use(at: now)
        times.use(top, filledWith: SlotTimes())
        wheel.remove(slot, &times)
        times.set(slot, new)
        wheel.add(slot, &times)
    }

    /// Returns true if the entry in `slot` has not expired. If so, counts a use now, and moves the idle deadline to
    /// `idleTime` from now.
    @usableFromInline
    mutating func isFresh(_ slot: UInt32, at now: Int64, idleTime: Int64?) -> Bool {
        guard times.isUsed else { return true }
        var own = times[slot]
        if own.deadline <= now { return false }
        if let idleTime {
            let (sum, overflow) = now.addingReportingOverflow(idleTime)
            own.idles = overflow ? .max : sum
            times.set(slot, own)
        }
        return true
    }

    /// Returns the deadlines of the entry in `slot`, which may have been unlisted a moment ago; `.max` for never.
    // Mutating, though nothing changes: see `cost`.
    @usableFromInline
    mutating func deadlines(of slot: UInt32) -> (expires: Int64, idles: Int64) {
        let own = times[slot]
        return (own.expires, own.idles)
    }

    /// Unlists an expired slot, which the caller must still empty and hand to `discard`. Returns `nil` if none is
    /// found soon.
    @usableFromInline
    mutating func expire(at now: Int64) -> UInt32? {
        guard let slot = wheel.due(at: now, &times) else { return nil }
        remove(slot)
        return slot
    }

    mutating func untag(_ slot: UInt32) {
        guard tagged[slot] != TagIndex.none else { return }
        tags.remove(tagged[slot])
        tagged.set(slot, TagIndex.none)
    }
}
