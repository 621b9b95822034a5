extension VolatileCache {
    /// Returns the value under `key`, or else the one that `load` makes, which is then kept.
    ///
    /// Concurrent callers of the same key, here or in the other forms, share one load (single flight). If the load
    /// throws, all waiting callers get the error. If the loading caller was cancelled, the next caller loads anew. A
    /// load that threw leaves no value; neither does a load that began before the key was inserted or removed, or one
    /// of the tags purged.
    ///
    /// - Parameters:
    ///   - key: the key to look up.
    ///   - tags: names under which `purge(tag:)` finds the value; at most 255.
    ///   - load: a closure that makes the value.
    /// - Throws: the error of `load`; `CancellationError` to a caller that was cancelled while waiting;
    ///   `RecursiveLoadError` if `load` requests the same key by a form that loads.
    public func value(forKey key: Key, tags: [String] = [], orLoad load: @Sendable () async throws -> Value)
        async throws -> Value
    {
        if let value = value(forKey: key) { return value }
        return try await loads.value(
            forKey: key, tags: tags, known: { value(forKey: key, isCounted: false) }
        ) { flight in
            let value = try await timed(load)
            insert(value, forKey: key, tags: tags, of: LoadOrigin(flight: flight))
            return value
        }
    }

    /// Returns the value under `key`, or else the one that `load` makes, which is then kept; blocks the calling thread
    /// meanwhile.
    ///
    /// For threads that may block. From asynchronous code call `value(forKey:orLoad:)`: a waiting thread is missing
    /// from Swift's cooperative pool. Both forms share their loads.
    ///
    /// - Parameters:
    ///   - key: the key to look up.
    ///   - tags: names under which `purge(tag:)` finds the value; at most 255.
    ///   - load: a closure that makes the value, on the calling thread.
    /// - Throws: the error of `load`, or of the load waited for; `RecursiveLoadError` if `load` requests the same key
    ///   by a form that loads.
    public func valueBlocking(forKey key: Key, tags: [String] = [], orLoad load: () throws -> Value) throws -> Value {
        if let value = value(forKey: key) { return value }
        guard let loads = ownLoads else { return try timed(now: load) }
        return try loads.value(
            forKey: key, tags: tags, known: { value(forKey: key, isCounted: false) },
            loadNow: { flight in
                let value = try timed(now: load)
                insert(value, forKey: key, tags: tags, of: LoadOrigin(flight: flight))
                return value
            })
    }

    /// Returns the values under `keys`, each of which thereby counts as used. Keys without a value are absent.
    ///
    /// - Complexity: O(number of keys) and a copy of each value.
    public func values(forKeys keys: some Sequence<Key>) -> [Key: Value] {
        keys.lookedUp { value(forKey: $0) }.found
    }

    /// Returns the values under `keys`. One call of `load` makes the missing values, which are then kept.
    ///
    /// The call waits for keys that another caller is loading. If that load throws, so does this call. If the loading
    /// caller was cancelled, `load` is called once more for the remaining keys.
    ///
    /// - Parameters:
    ///   - keys: the keys to look up; duplicates are looked up and loaded once.
    ///   - tags: names under which `purge(tag:)` finds the loaded values; at most 255.
    ///   - load: a closure that gets the missing keys in the order of `keys`. Keys that the closure doesn't return are
    ///     absent from the result; other keys are ignored.
    /// - Throws: as `value(forKey:tags:orLoad:)`.
    public func values(
        forKeys keys: some Sequence<Key>, tags: [String] = [], orLoad load: ([Key]) async throws -> [Key: Value]
    ) async throws -> [Key: Value] {
        let (found, missing) = keys.lookedUp { value(forKey: $0) }
        if missing.isEmpty { return found }
        let loaded = try await loads.values(
            forKeys: missing, tags: tags, known: { value(forKey: $0, isCounted: false) }
        ) { led in
            let loaded = try await timed { try await load(led.map(\.key)) }
            var values: [Key: Value] = [:]
            for (key, flight) in led {
                guard let value = loaded[key] else { continue }
                values[key] = value
                insert(value, forKey: key, tags: tags, of: LoadOrigin(flight: flight))
            }
            return values
        }
        return found.merging(loaded) { $1 }
    }

    // Loads are recorded without their bytes. A time for each byte would decide the order in which caches release, and
    // here the kernel reclaims by age.
    private func timed<Loaded>(_ load: () async throws -> Loaded) async throws -> Loaded {
        try await loadRecord.timing(store.time, load) { ($0, 0) }
    }

    private func timed(now load: () throws -> Value) throws -> Value {
        try loadRecord.timing(store.time, now: load) { ($0, 0) }
    }
}
