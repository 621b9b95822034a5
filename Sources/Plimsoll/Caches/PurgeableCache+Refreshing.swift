import Synchronization

/// An entry that is being loaded anew.
struct CacheRefresh: Sendable {
    /// What is in place of the moment from which the entry is to be refreshed, until it has been: the next to ask finds that far away, and whoever comes back with a
    /// value finds this only in the entry that it was loaded for.
    let claim: Int64
    let tags: [String]
}

extension PurgeableCache {
    /// The value under `key`, which thereby counts as used, and whether it is for the caller to load it anew; `nil` if there is none to be had now.
    func refreshableValue(forKey key: Key) -> (value: Value, refresh: CacheRefresh?)? {
        let hash = hasher.of(key), now = now
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard), table.isFresh(slot, at: now, idleTime: lifetime.idleTime) else { return nil }
            table.hits &+= 1
            let place = shard.place(slot, Layout.pairSize)
            place.use()
            let value = Layout.value(place.pair).pointee
            guard table.times[slot].refreshes <= now else { return (value, nil) }
            // Later than any moment, and never the same again.
            let claim = Int64.max - claims.wrappingAdd(1, ordering: .relaxed).newValue
            set(claim, slot, &table)
            return (value, CacheRefresh(claim: claim, tags: table.tagged.isUsed ? table.tags.names(table.tagged[slot]) : []))
        }
    }

    /// Loads the value under `key` anew, and keeps it if nothing has happened to the entry meanwhile.
    func begin(_ refresh: CacheRefresh, of key: Key, _ load: @escaping @Sendable () async throws -> Value) {
        Task {
            // No part of the load within which somebody may have asked for it.
            await LoadToken.$current.withValue(nil) {
                let isKept = try? await taggedLoads.during([key], refresh.tags, claim: refresh.claim) { tagged in
                    let (value, cost) = try await timed(key, load)
                    return keep(value, key, cost, refresh.tags, tagged)
                }
                if isKept != true { putOff(refresh.claim, key) }
            }
        }
    }

    /// The value stays; another attempt is made once it has been there for that long again.
    private func putOff(_ claim: Int64, _ key: Key) {
        let hash = hasher.of(key), next = times(nil)?.times.refreshes ?? .max
        withShard(of: hash) { shard, table in if let slot = slot(claim, key, hash, shard, &table) { set(next, slot, &table) } }
    }

    /// Whether what `load` brings for `key` may be kept, in a locked shard.
    @usableFromInline
    func isWanted(_ load: TaggedLoad, _ key: Key, _ hash: UInt32, _ shard: CacheShard, _ table: inout CacheTable) -> Bool {
        if load.isRevoked { return false }
        guard let claim = load.claim else { return true }
        return slot(claim, key, hash, shard, &table) != nil
    }

    /// The slot of `key` if it is the one that was claimed.
    private func slot(_ claim: Int64, _ key: Key, _ hash: UInt32, _ shard: CacheShard, _ table: inout CacheTable) -> UInt32? {
        guard let slot = find(key, hash, in: shard), table.times[slot].refreshes == claim else { return nil }
        return slot
    }

    private func set(_ refreshes: Int64, _ slot: UInt32, _ table: inout CacheTable) {
        var times = table.times[slot]
        times.refreshes = refreshes
        table.times.set(slot, times)
    }
}
