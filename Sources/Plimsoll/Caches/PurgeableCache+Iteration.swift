import Synchronization

extension PurgeableCache {
    /// Copies of at most `count` entries in the order in which they would leave if nobody asked for any of them: those about to go first.
    ///
    /// Looking is no use of an entry. What comes and goes meanwhile may be in it or not; across shards the order is by the place within each.
    ///
    /// - Complexity: O(entries); each shard is locked once, for as long as it takes to copy what is wanted of it.
    public func coldest(_ count: Int = .max) -> [(key: Key, value: Value)] { entries(count) { $0.order() }.map { ($0.key, $0.value) } }

    /// The same from the other end: those that would stay longest first.
    public func hottest(_ count: Int = .max) -> [(key: Key, value: Value)] { entries(count) { $0.order().reversed() }.map { ($0.key, $0.value) } }

    struct Copy {
        var key: Key
        var value: Value
        var cost: Int
        var tags: [String]
        var expires: Int64
        /// Where in the order of its shard, from 0 to 1.
        var rank: Double
    }

    func entries(_ count: Int, order: (borrowing CacheTable) -> [UInt32]) -> [Copy] {
        var copies: [Copy] = []
        let now = counters.has(.expiry) ? self.now : .min
        directory.forEach { shard in
            shard.lock.pointee.withLock { table in
                let slots = order(table)
                for (place, slot) in slots.prefix(max(0, count)).enumerated() where table.times[slot].deadline > now {
                    let pair = shard.place(slot, Layout.pairSize).pair
                    copies.append(
                        Copy(
                            key: Layout.key(pair).pointee, value: Layout.value(pair).pointee, cost: table.cost(of: slot),
                            tags: table.tagged.isUsed ? table.tags.names(table.tagged[slot]) : [], expires: table.times[slot].expires,
                            rank: Double(place) / Double(slots.count)))
                }
            }
            return true
        }
        copies.sort { $0.rank < $1.rank }
        return Array(copies.prefix(max(0, count)))
    }
}

extension CacheTable {
    /// All slots in use, as they would leave: of each queue those that have not been used since they came into it, and then the others.
    borrowing func order() -> [UInt32] {
        var order: [UInt32] = []
        order.reserveCapacity(count)
        for isUsed in [false, true] {
            for queue in [small, main] {
                var slot = queue.oldest
                for _ in 0..<queue.count {
                    if (mark(slot).pointee.load(ordering: .relaxed) > 0) == isUsed { order.append(slot) }
                    slot = node(slot).pointee.newer
                }
            }
        }
        var slot = pinned.oldest
        for _ in 0..<pinned.count {
            order.append(slot)
            slot = node(slot).pointee.newer
        }
        return order
    }
}
