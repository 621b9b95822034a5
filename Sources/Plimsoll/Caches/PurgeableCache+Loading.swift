extension PurgeableCache {
    /// The value under `key`, or else the one that `load` makes, which is then kept.
    ///
    /// However many callers ask for the same key, one load runs. If it throws, all who wait get the error; if its caller was
    /// cancelled, the next one loads anew. Nothing is kept of a load that threw, nor of one that began before one of its tags was purged.
    ///
    /// - Parameter tags: names under which `purge(tag:)` finds it.
    public func value(forKey key: Key, tags: [String] = [], orLoad load: @Sendable () async throws -> Value) async throws -> Value {
        if let value = value(forKey: key) { return value }
        return try await loads.value(forKey: key) {
            // Loaded by somebody else between our miss and our turn.
            if let value = peek(key) { return value }
            return try await taggedLoads.during(key, tags) { tagged in
                let value = try await load()
                _ = insert(value, forKey: key, cost: costOf(key, value), tags: tags, times: times(nil), of: tagged)
                return value
            }
        }
    }

    /// The value without counting as a use.
    private func peek(_ key: Key) -> Value? {
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard), table.times[slot].deadline > now else { return nil }
            return Layout.value(shard.place(slot, Layout.pairSize).pair).pointee
        }
    }
}
