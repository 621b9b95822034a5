import Synchronization

extension PurgeableCache {
    /// Keeps what is under `key` from being evicted or released until `unpin` has been called as often. It can still be replaced, which leaves it pinned, or
    /// removed, purged by tag or expire, which doesn't.
    ///
    /// What is pinned counts toward the limit: an insert that would need its room is refused.
    ///
    /// - Returns: false if there is nothing under `key`.
    @discardableResult
    public func pin(_ key: Key) -> Bool {
        let hash = hasher.of(key)
        counters.use(.pins)
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard) else { return false }
            table.pin(slot)
            return true
        }
    }

    /// Takes back one `pin`.
    ///
    /// - Returns: false if what is under `key` is not pinned.
    @discardableResult
    public func unpin(_ key: Key) -> Bool {
        let hash = hasher.of(key)
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard) else { return false }
            return table.unpin(slot)
        }
    }

    /// Number of entries that are pinned.
    public var pinnedCount: Int { sum { $0.pinned.count } }
}

extension CacheTable {
    mutating func setPins(_ slot: UInt32, _ count: Int) {
        isPlain = false
        pins[slot] = count
    }

    mutating func pin(_ slot: UInt32) {
        if let count = pins[slot] {
            pins[slot] = count + 1
            return
        }
        setPins(slot, 1)
        unlink(slot)
        append(slot, to: .pinned)
    }

    mutating func unpin(_ slot: UInt32) -> Bool {
        guard let count = pins[slot] else { return false }
        pins[slot] = count > 1 ? count - 1 : nil
        if count == 1 {
            unlink(slot)
            append(slot, to: .main)
        }
        return true
    }
}
