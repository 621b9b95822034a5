import Synchronization

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
