extension PurgeableCache {
    /// Returns the value under `key`, or else the value that `load` makes, which is then kept.
    ///
    /// Single flight: at most one load per key runs, for all callers of any loading method. If the load throws, all
    /// waiting callers get the error. If its caller is cancelled, the next caller in line loads. Nothing is kept of
    /// a load that threw, nor of a load that began before the key was inserted or removed, or one of its tags purged;
    /// later callers load anew.
    ///
    /// A value older than the cache's `refreshAfter` is returned, and one background task reloads the value, for
    /// all callers. The value keeps its tags. If that load throws, the value stays, and the next attempt follows
    /// after another `refreshAfter`. The new value is kept only if the entry is still the same: not after a
    /// removal, a purge, an eviction or another insert.
    ///
    /// - Parameters:
    ///   - key: the key for look-ups.
    ///   - tags: names under which `purge(tag:)` finds the entry.
    ///   - load: a closure that makes the value.
    /// - Returns: the value, even if the cache could not keep the value.
    /// - Throws: errors of `load`; `CancellationError` if the caller was cancelled while waiting;
    ///   `RecursiveLoadError` if `load`, or a task that has inherited its task-local values, calls a loading method
    ///   with the same key. Two loads that ask for each other's keys wait for ever.
    /// - Complexity: O(1) plus the load. A hit neither waits nor takes a lock that `value(forKey:)` does not
    ///   take.
    public func value(
        forKey key: Key, tags: [String] = [], orLoad load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await value(key, tags, { (try await load(), nil) }, refresh: { begin($0, of: key, load) })
    }

    /// Returns a value as `value(forKey:tags:orLoad:)` does. The load also returns the value's time to live; `nil` for
    /// that of the cache. A refreshed value always gets the cache's.
    package func value(
        forKey key: Key, tags: [String],
        orLoadLasting load: @escaping @Sendable () async throws -> (value: Value, timeToLive: Duration?)
    ) async throws -> Value {
        try await value(key, tags, load, refresh: { begin($0, of: key) { try await load().value } })
    }

    private func value(
        _ key: Key, _ tags: [String], _ load: () async throws -> (value: Value, timeToLive: Duration?),
        refresh: (CacheRefresh) -> Void
    ) async throws -> Value {
        if lifetime.refreshAfter != nil, let hit = refreshableValue(forKey: key) {
            if let due = hit.refresh { refresh(due) }
            return hit.value
        }
        if let value = value(forKey: key) { return value }
        noteLoading()
        return try await loads.value(forKey: key, tags: tags, known: { peek(key) }) { flight in
            let (loaded, cost) = try await loadRecord.timing(time, load) { loaded in
                let cost = costOf(key, loaded.value)
                return ((loaded, cost), cost)
            }
            keep(loaded.value, key, cost, tags, LoadOrigin(flight: flight), timeToLive: loaded.timeToLive)
            return loaded.value
        }
    }

    /// Returns the value under `key`, or else the value that `load` makes, which is then kept. Blocks the calling
    /// thread meanwhile.
    ///
    /// For threads that may block. Call `value(forKey:orLoad:)` from asynchronous code: a blocked thread of Swift's
    /// cooperative pool is missing there. Both methods share their loads, so a thread may wait for a task's load,
    /// and a task for a thread's. A value older than `refreshAfter` is returned without a refresh.
    ///
    /// - Parameters:
    ///   - key: the key for look-ups.
    ///   - tags: names under which `purge(tag:)` finds the entry.
    ///   - load: a closure that makes the value, on the calling thread.
    /// - Returns: the value, even if the cache could not keep the value.
    /// - Throws: errors of `load` or of the load waited for; `RecursiveLoadError` if `load` calls a loading
    ///   method with the same key.
    /// - Complexity: O(1) plus the load.
    public func valueBlocking(forKey key: Key, tags: [String] = [], orLoad load: () throws -> Value) throws -> Value {
        if let value = value(forKey: key) { return value }
        noteLoading()
        return try loads.value(
            forKey: key, tags: tags, known: { peek(key) },
            loadNow: { flight in
                let (value, cost) = try timed(key, now: load)
                keep(value, key, cost, tags, LoadOrigin(flight: flight))
                return value
            })
    }

    /// Returns the values under `keys` and counts each as used. Missing and expired values are left out.
    ///
    /// - Complexity: O(number of keys).
    public func values(forKeys keys: some Sequence<Key>) -> [Key: Value] {
        keys.lookedUp { value(forKey: $0) }.found
    }

    /// Returns the values under `keys`. One call of `load` makes the missing values, which are then kept.
    ///
    /// Keys that another caller is loading are waited for instead. Other callers that ask for keys of this call
    /// wait for this load. If a load waited for throws, so does this method. If its caller was cancelled, `load` is
    /// called once more for the keys that no other caller took over.
    ///
    /// - Parameters:
    ///   - keys: the keys; duplicates are looked up and loaded once.
    ///   - tags: names under which `purge(tag:)` finds the loaded entries.
    ///   - load: a closure that gets the missing keys in the order of `keys`. Keys without a loaded value are
    ///     absent from the result, and a caller that waits for such a key alone loads by itself. Values for other
    ///     keys are ignored.
    /// - Throws: errors as for `value(forKey:tags:orLoad:)`.
    /// - Complexity: O(number of keys) plus the loads.
    public func values(
        forKeys keys: some Sequence<Key>, tags: [String] = [], orLoad load: ([Key]) async throws -> [Key: Value]
    ) async throws -> [Key: Value] {
        let (found, missing) = keys.lookedUp { value(forKey: $0) }
        if missing.isEmpty { return found }
        noteLoading()
        let loaded = try await loads.values(forKeys: missing, tags: tags, known: { peek($0) }) { led in
            let values = try await timed(led.map(\.key), load)
            for (key, flight) in led {
                guard let (value, cost) = values[key] else { continue }
                keep(value, key, cost, tags, LoadOrigin(flight: flight))
            }
            return values.mapValues { $0.value }
        }
        return found.merging(loaded) { $1 }
    }

    /// Load time per byte of cost, in nanoseconds, as a moving average that favours recent loads; `nil` before the
    /// first load.
    public var rebuildTimePerByte: Double? { loadRecord.nanosecondsPerByte }

    // MARK: Helpers

    /// Makes inserts look for loads from now on.
    private func noteLoading() { if !counters.has(.loads) { counters.use(.loads) } }

    /// Returns the value without counting a use.
    private func peek(_ key: Key) -> Value? {
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard), table.times[slot].deadline > now else { return nil }
            return Layout.value(shard.place(slot, Layout.pairSize).pair).pointee
        }
    }

    @discardableResult
    func keep(
        _ value: Value, _ key: Key, _ cost: Int, _ tags: [String], _ load: LoadOrigin, timeToLive: Duration? = nil
    ) -> Bool {
        insert(value, forKey: key, cost: cost, tags: tags, times: times(timeToLive), of: load)
    }

    // MARK: Load times

    func timed(_ key: Key, _ load: () async throws -> Value) async throws -> (value: Value, cost: Int) {
        try await loadRecord.timing(time, load) { priced(key, $0) }
    }

    private func timed(_ key: Key, now load: () throws -> Value) throws -> (value: Value, cost: Int) {
        try loadRecord.timing(time, now: load) { priced(key, $0) }
    }

    private func priced(_ key: Key, _ value: Value) -> (noted: (value: Value, cost: Int), bytes: Int) {
        let cost = costOf(key, value)
        return ((value, cost), cost)
    }

    private func timed(_ keys: [Key], _ load: ([Key]) async throws -> [Key: Value]) async throws -> [Key: (
        value: Value, cost: Int
    )] {
        try await loadRecord.timing(time) {
            try await load(keys)
        } note: { values in
            var loaded: [Key: (value: Value, cost: Int)] = [:]
            for key in keys { loaded[key] = values[key].map { ($0, costOf(key, $0)) } }
            return (loaded, loaded.values.reduce(0) { $0 &+ max(0, $1.cost) })
        }
    }
}
