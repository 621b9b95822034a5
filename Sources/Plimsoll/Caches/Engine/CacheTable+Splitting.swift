import Synchronization

extension CacheTable {
    /// Moves what has `bit` in its hash to `other`, which is empty, oldest first, so that both keep their order.
    ///
    /// - Parameter move: moves key and value from a slot here to one there.
    mutating func split(into other: inout CacheTable, bit: UInt32, move: (_ from: UInt32, _ to: UInt32) -> Void) {
        depth += 1
        // About half of them, and some to grow by.
        other.reserve(count * 5 / 8)
        for place in [SlotNode.Queue.small, .main, .pinned] {
            var next = place == .small ? small.oldest : place == .main ? main.oldest : pinned.oldest
            while next != SlotNode.none {
                let slot = next
                next = node(slot).pointee.newer
                if node(slot).pointee.hash >> bit & 1 == 1 { send(slot, to: &other, place, move) }
            }
        }
        // Those of either are not asked for in the other.
        other.ghosts = ghosts.copy()
    }

    private mutating func send(_ slot: UInt32, to other: inout CacheTable, _ place: SlotNode.Queue, _ move: (UInt32, UInt32) -> Void) {
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
