import Synchronization

/// An entry that is being reloaded.
struct CacheRefresh: Sendable {
    /// Placeholder for the entry's refresh time until the reload ends. The value lies far in the future, so that
    /// the next caller starts no reload. The reload keeps its value only if the entry still has this claim.
    let claim: Int64
    let tags: [String]
}

extension PurgeableCache {
    /// Returns the value under `key` and counts the use. `refresh` is set if the caller must reload the value.
    /// Returns `nil` if there is no value now.
    func refreshableValue(forKey key: Key) -> (value: Value, refresh: CacheRefresh?)? {
        let hash = hasher.of(key), now = now
        let hit = withShard(of: hash) { shard, table -> (value: Value, refresh: CacheRefresh?)? in
            guard let slot = find(key, hash, in: shard), table.isFresh(slot, at: now, idleTime: lifetime.idleTime)
            else { return nil }
            table.hits &+= 1
            let place = shard.place(slot, Layout.pairSize)
            place.use()
            let value = Layout.value(place.pair).pointee
            guard table.times[slot].refreshes <= now else { return (value, nil) }
            // Later than any real time, and never used twice.
            let claim = Int64.max - claims.wrappingAdd(1, ordering: .relaxed).newValue
            set(claim, slot, &table)
            return (
                value, CacheRefresh(claim: claim, tags: table.tagged.isUsed ? table.tags.names(table.tagged[slot]) : [])
            )
        }
        // The look-up that follows a miss adds the miss to the sample.
        if hit != nil, isSampled(hash) { sample(key, hash) }
        return hit
    }

    /// Reloads the value under `key`, and keeps the new value if the entry has not changed meanwhile.
    func begin(_ refresh: CacheRefresh, of key: Key, _ load: @escaping @Sendable () async throws -> Value) {
        Task {
            // Not part of the load within which a caller may have asked for the value.
            await LoadToken.$current.withValue(nil) {
                let loaded = try? await timed(key, load)
                // A removal or a purge meanwhile has taken the entry, and the claim with it.
                let isKept = loaded.map { keep($0.value, key, $0.cost, refresh.tags, LoadOrigin(claim: refresh.claim)) }
                if isKept != true { putOff(refresh.claim, key) }
            }
        }
    }

    /// Postpones the refresh after a failed reload. The value stays, and the next attempt follows after another
    /// `refreshAfter`.
    private func putOff(_ claim: Int64, _ key: Key) {
        let hash = hasher.of(key), next = times(nil)?.times.refreshes ?? .max
        withShard(of: hash) { shard, table in
            if let slot = slot(claim, key, hash, shard, &table) { set(next, slot, &table) }
        }
    }

    /// Returns true if the value that `load` brings for `key` may be kept. The shard is locked.
    @usableFromInline
    func isWanted(_ load: LoadOrigin, _ key: Key, _ hash: UInt32, _ shard: CacheShard, _ table: inout CacheTable)
        -> Bool
    {
        if load.isRevoked { return false }
        if let claim = load.claim { return slot(claim, key, hash, shard, &table) != nil }
        guard let slot = find(key, hash, in: shard) else { return true }
        return table.times[slot].deadline <= (counters.has(.expiry) ? now : .min)
    }

    /// Returns the slot of `key` if its entry still has the claim.
    private func slot(_ claim: Int64, _ key: Key, _ hash: UInt32, _ shard: CacheShard, _ table: inout CacheTable)
        -> UInt32?
    {
        guard let slot = find(key, hash, in: shard), table.times[slot].refreshes == claim else { return nil }
        return slot
    }

    private func set(_ refreshes: Int64, _ slot: UInt32, _ table: inout CacheTable) {
        var times = table.times[slot]
        times.refreshes = refreshes
        table.times.set(slot, times)
    }
}
