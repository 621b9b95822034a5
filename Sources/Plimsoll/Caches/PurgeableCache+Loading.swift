extension PurgeableCache {
    /// The value under `key`, or else the one that `load` makes, which is then kept.
    ///
    /// However many callers ask for the same key, here or with the loads of other forms, one load runs. If it throws, all who wait get the error; if its caller was
    /// cancelled, the next one loads anew. Nothing is kept of a load that threw, nor of one that began before one of its tags was purged.
    ///
    /// A value older than the cache's `refreshAfter` is returned and loaded anew beside that, in one task however many ask. It keeps its tags. If that load throws, the
    /// value stays, and the next attempt is made once `refreshAfter` has passed again. What it brings is kept only if the entry is still the one it was begun for: not
    /// after a removal, a purge, an eviction or another insert.
    ///
    /// - Parameters:
    ///   - key: what it is looked up by.
    ///   - tags: names under which `purge(tag:)` finds it.
    ///   - load: makes the value.
    /// - Returns: the value, also if it could not be kept.
    /// - Throws: what `load` throws; `CancellationError` to a caller that was cancelled while it waited; `RecursiveLoadError` if `load`, or a task that has
    ///   inherited its task-local values, asks for the same key by a form that loads. Two loads that ask for each other's keys wait for ever.
    /// - Complexity: O(1) and the load; a hit neither waits nor takes a lock that `value(forKey:)` doesn't.
    public func value(
        forKey key: Key, tags: [String] = [], orLoad load: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        try await value(key, tags, load) { begin($0, of: key, load) }
    }

    private func value(
        _ key: Key, _ tags: [String], _ load: () async throws -> Value, refresh: (CacheRefresh) -> Void
    ) async throws -> Value {
        if lifetime.refreshAfter != nil, let hit = refreshableValue(forKey: key) {
            if let due = hit.refresh { refresh(due) }
            return hit.value
        }
        if let value = value(forKey: key) { return value }
        return try await loads.value(forKey: key) {
            // Loaded by somebody else between our miss and our turn.
            if let value = peek(key) { return value }
            return try await taggedLoads.during([key], tags) { tagged in
                let (value, cost) = try await timed(key, load)
                keep(value, key, cost, tags, tagged)
                return value
            }
        }
    }

    /// Returns the value under `key`, or else the one that `load` makes, which is then kept; blocks the calling thread meanwhile.
    ///
    /// For threads that may block. Call `value(forKey:orLoad:)` from asynchronous code: a thread of Swift's cooperative pool that waits here is missing
    /// there. Both forms share their loads, so a thread may wait for the load of a task, and a task for that of a thread. A value older than `refreshAfter`
    /// is returned without a refresh.
    ///
    /// - Parameters:
    ///   - key: what it is looked up by.
    ///   - tags: names under which `purge(tag:)` finds it.
    ///   - load: makes the value, on the calling thread.
    /// - Returns: the value, also if it could not be kept.
    /// - Throws: what `load`, or the load waited for, throws; `RecursiveLoadError` if `load` asks for the same key by a form that loads.
    /// - Complexity: O(1) and the load.
    public func valueBlocking(forKey key: Key, tags: [String] = [], orLoad load: () throws -> Value) throws -> Value {
        if let value = value(forKey: key) { return value }
        return try loads.value(
            forKey: key,
            loadNow: {
                if let value = peek(key) { return value }
                return try taggedLoads.during(
                    [key], tags,
                    now: { tagged in
                        let (value, cost) = try timed(key, now: load)
                        keep(value, key, cost, tags, tagged)
                        return value
                    })
            })
    }

    /// The values under `keys`, each of which thereby counts as used; what is missing, or has expired, is not among them.
    ///
    /// - Complexity: O(number of keys).
    public func values(forKeys keys: some Sequence<Key>) -> [Key: Value] { lookUp(keys).found }

    /// The values under `keys`; those that are missing are made by one call of `load` and then kept.
    ///
    /// What somebody else is loading just then is waited for instead, and who asks meanwhile for what this call loads waits for it. If a load waited for throws, so does
    /// this; if its caller was cancelled, `load` is called once more for what nobody took over.
    ///
    /// - Parameters:
    ///   - keys: as often as they occur, each is looked up and loaded once.
    ///   - tags: names under which `purge(tag:)` finds what is loaded.
    ///   - load: gets the missing keys in the order of `keys`. What it doesn't return is absent from the result, and whoever waits for one of those alone loads by
    ///     itself; what it returns besides is ignored.
    /// - Throws: as `value(forKey:tags:orLoad:)`.
    /// - Complexity: O(number of keys) and the loads.
    public func values(
        forKeys keys: some Sequence<Key>, tags: [String] = [], orLoad load: ([Key]) async throws -> [Key: Value]
    ) async throws -> [Key: Value] {
        let (found, missing) = lookUp(keys)
        if missing.isEmpty { return found }
        let loaded = try await loads.values(forKeys: missing, known: { peek($0) }) { keys in
            try await taggedLoads.during(keys, tags) { tagged in try await keep(timed(keys, load), tags, tagged) }
        }
        return found.merging(loaded) { $1 }
    }

    /// Nanoseconds that loads took for a byte of cost, of the last ones more than of those before; `nil` before the first.
    public var rebuildTimePerByte: Double? { loadRecord.nanosecondsPerByte }

    // MARK: Parts

    private func lookUp(_ keys: some Sequence<Key>) -> (found: [Key: Value], missing: [Key]) {
        var found: [Key: Value] = [:], missing: [Key] = [], asked: Set<Key> = []
        for key in keys where asked.insert(key).inserted {
            if let value = value(forKey: key) { found[key] = value } else { missing.append(key) }
        }
        return (found, missing)
    }

    /// The value without counting as a use.
    private func peek(_ key: Key) -> Value? {
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        return withShard(of: hash) { shard, table in
            guard let slot = find(key, hash, in: shard), table.times[slot].deadline > now else { return nil }
            return Layout.value(shard.place(slot, Layout.pairSize).pair).pointee
        }
    }

    @discardableResult
    func keep(_ value: Value, _ key: Key, _ cost: Int, _ tags: [String], _ load: TaggedLoad?) -> Bool {
        insert(value, forKey: key, cost: cost, tags: tags, times: times(nil), of: load)
    }

    private func keep(_ loaded: [(key: Key, value: Value, cost: Int)], _ tags: [String], _ load: TaggedLoad?) -> [Key: Value] {
        var values: [Key: Value] = [:]
        for (key, value, cost) in loaded {
            keep(value, key, cost, tags, load)
            values[key] = value
        }
        return values
    }

    // MARK: Time that loads take

    func timed(_ key: Key, _ load: () async throws -> Value) async throws -> (value: Value, cost: Int) {
        let began = time.elapsed()
        do { return noted(key, try await load(), since: began) } catch {
            loadRecord.addFailure()
            throw error
        }
    }

    private func timed(_ key: Key, now load: () throws -> Value) throws -> (value: Value, cost: Int) {
        let began = time.elapsed()
        do { return noted(key, try load(), since: began) } catch {
            loadRecord.addFailure()
            throw error
        }
    }

    private func noted(_ key: Key, _ value: Value, since began: Duration) -> (value: Value, cost: Int) {
        let took = time.elapsed() - began
        let cost = costOf(key, value)
        loadRecord.add(took, bytes: cost)
        return (value, cost)
    }

    private func timed(_ keys: [Key], _ load: ([Key]) async throws -> [Key: Value]) async throws -> [(key: Key, value: Value, cost: Int)] {
        let began = time.elapsed()
        do {
            let values = try await load(keys), took = time.elapsed() - began
            let loaded = keys.compactMap { key in values[key].map { (key: key, value: $0, cost: costOf(key, $0)) } }
            loadRecord.add(took, bytes: loaded.reduce(0) { $0 &+ max(0, $1.cost) })
            return loaded
        } catch {
            loadRecord.addFailure()
            throw error
        }
    }
}
