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

    private var leastMapped: Int { hasReaders ? CachePiece.leastMappedForReaders : CachePiece.leastMapped }

    /// Frees memory that readers may still be reading only when no reader can be left.
    private mutating func retire(_ piece: CachePiece) {
        guard hasReaders else { return piece.free() }
        _ = piece.giveBack(0, to: piece.byteCount)
        retired.append(piece)
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

    /// Removes the oldest slot from its queue.
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
        let piece = CachePiece(4 << bits, leastMapped: leastMapped)
        let index = CacheIndex(piece.base, bits: bits)
        for slot in 0..<UInt32(top) where node(slot).pointee.queue != .free { index.add(slot, node(slot).pointee.hash) }
        // The newcomer that needs the room is in no queue yet, and will be listed next.
        published.pointee.store(index.word, ordering: .releasing)
        retire(cells)
        cells = piece
    }

    /// Empties the index and shrinks it to the smallest size.
    ///
    /// - Returns: the previous index memory; `nil` if readers may be in the index, which is then cleared in
    ///   place.
    mutating func clearIndex() -> CachePiece? {
        if hasReaders {
            let index = index
            for place in 0...index.mask { index.clear(place) }
            return nil
        }
        let piece = CachePiece(4 << Self.leastBits)
        published.pointee.store(CacheIndex(piece.base, bits: Self.leastBits).word, ordering: .relaxed)
        defer { cells = piece }
        return cells
    }
}
