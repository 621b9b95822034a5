import Synchronization

extension PurgeableCache {
    /// Pins the entry under `key`: the entry is neither evicted nor released until `unpin` has been called as
    /// often. A pinned entry can be replaced, which keeps the pin. Removal, purge by tag and expiry end the pin.
    ///
    /// Pinned entries count toward the limit: an insert that would need their room is refused.
    ///
    /// - Returns: false if there is no entry under `key`, or if the entry has expired.
    @discardableResult
    public func pin(_ key: Key) -> Bool {
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        counters.use(.pins)
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard), table.times[slot].deadline > now else { return false }
            table.pin(slot)
            return true
        }
    }

    /// Reverts one call of `pin`. Evicts entries if the limit was lowered meanwhile and pinned entries were above it.
    ///
    /// - Returns: false if the entry under `key` is not pinned.
    @discardableResult
    public func unpin(_ key: Key) -> Bool {
        let hash = hasher.of(key)
        let isUnpinned: Bool = withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard) else { return false }
            return table.unpin(slot)
        }
        let excess = counters.total.pointee.load(ordering: .relaxed) - counters.bound.pointee.load(ordering: .relaxed)
        if isUnpinned, excess > 0 { _ = letGo(excess, reason: .evicted) }
        return isUnpinned
    }

    /// Number of pinned entries.
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
