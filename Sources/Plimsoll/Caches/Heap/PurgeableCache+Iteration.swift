import Synchronization

extension PurgeableCache {
    /// Returns copies of at most `count` entries, next to be evicted first, as if no entry were used again.
    ///
    /// Does not count as a use. Entries inserted or removed meanwhile may or may not be included. Across shards,
    /// entries are ordered by their relative position in the shard.
    ///
    /// - Complexity: O(entries). Each shard is locked once, while its entries are copied.
    public func coldest(_ count: Int = .max) -> [(key: Key, value: Value)] {
        entries(count) { $0.order() }.map { ($0.key, $0.value) }
    }

    /// Returns copies of at most `count` entries, last to be evicted first.
    public func hottest(_ count: Int = .max) -> [(key: Key, value: Value)] {
        entries(count) { $0.order().reversed() }.map { ($0.key, $0.value) }
    }

    struct Copy {
        var key: Key
        var value: Value
        var cost: Int
        var tags: [String]
        var expires: Int64
        /// Position in the order of the shard, from 0 to 1.
        var rank: Double
    }

    func entries(_ count: Int, order: (borrowing CacheTable) -> [UInt32]) -> [Copy] {
        var copies: [Copy] = []
        let now = counters.has(.expiry) ? self.now : .min
        directory.forEach { shard in
            shard.lock.pointee.withLock { table in
                let slots = order(table)
                // Expired entries take no other entry's place.
                var left = max(0, count)
                for (place, slot) in slots.enumerated() where table.times[slot].deadline > now {
                    guard left > 0 else { break }
                    left -= 1
                    let pair = shard.place(slot, Layout.pairSize).pair
                    copies.append(
                        Copy(
                            key: Layout.key(pair).pointee, value: Layout.value(pair).pointee,
                            cost: table.cost(of: slot),
                            tags: table.tagged.isUsed ? table.tags.names(table.tagged[slot]) : [],
                            expires: table.times[slot].expires,
                            rank: Double(place) / Double(slots.count)))
                }
            }
            return true
        }
        copies.sort { $0.rank < $1.rank }
        return Array(copies.prefix(max(0, count)))
    }
}

extension PurgeableCache: SampledPurgeable {
    package func withSample(of count: Int, _ body: ([SampledEntry]) -> Void) {
        var shards = 0
        directory.forEach { _ in
            shards += 1
            return true
        }
        let each = count / max(1, shards) + 1
        let copies = entries(.max) { table in
            let order = table.order()
            return stride(from: 0, to: order.count, by: max(1, order.count / each)).map { order[$0] }
        }
        // By rank, so that hot and cold entries have equal chances.
        let chosen = (0..<min(count, copies.count)).map { copies[$0 * copies.count / min(count, copies.count)] }
        let sample = chosen.map { copy in
            SampledEntry(
                cost: copy.cost, inlineBytes: MemoryLayout<Key>.stride + MemoryLayout<Value>.stride,
                words: Self.words(of: copy.key) + Self.words(of: copy.value))
        }
        withExtendedLifetime(chosen) { body(sample) }
    }

    private static func words<Part>(of part: Part) -> [UInt64] {
        withUnsafeBytes(of: part) { bytes in
            stride(from: 0, to: bytes.count - 7, by: 8).map {
                bytes.loadUnaligned(fromByteOffset: $0, as: UInt64.self)
            }
        }
    }
}

extension CacheTable {
    /// Returns all slots in use in the order of eviction. First come the slots of each queue without a use since
    /// they entered the queue, then the others.
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
