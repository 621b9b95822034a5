import Synchronization

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
