import CPlimsollProcess
import Synchronization

/// A cache for any `Sendable` value that bounds its cost exactly and gives way under memory pressure.
///
/// Thread-safe. Entries are spread over shards by hash. As long as nothing in the cache expires, a look-up of trivial keys and values takes no lock, and of others
/// none in a shard that nobody has written to for a thousand look-ups; any other takes the lock of one shard. None allocates.
/// The sum of costs never exceeds `limit` when an insert returns. Values and keys are released, and listeners called, after the lock; only a key's `==` runs
/// under it, so it must not use the cache.
///
/// Registered with a manager, the cache grows only while memory has room (see `ChargeMeter`) and releases coldest first. What the kernel gets back depends on
/// the heap: trivial values and objects of a page or more come back, small objects that lie among live ones hardly do, with any allocator.
///
/// A forked child should call `exec` or make caches of its own and use them on one thread: locks that other threads of the parent held stay locked in the child.
///
/// The policy is S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).
public final class PurgeableCache<Key: Hashable & Sendable, Value: Sendable>: Purgeable, TagPurgeable {
    public let name: String
    public let rebuildCost: RebuildCost
    public let releasesUnderPressure: Bool

    // Mutable state and what guards it:
    //   each shard           its own mutex; values are also read without it, see CacheShard
    //   directory            atomics, written under the lock of the shard that splits
    //   counters             relaxed atomics: numbers that publish nothing else
    //   listeners, loads     their own mutexes, as those of invalidation
    //   limit and bound      `limitChanges`, to which no code of others is called; read without it
    //   loadRecord, claims   relaxed atomics, as the counters
    //   batch                taken out by whoever releases, so never shared
    @usableFromInline let hasher: CacheHash
    @usableFromInline let directory: CacheDirectory
    @usableFromInline let counters: CacheCounters
    @usableFromInline let costOf: @Sendable (Key, Value) -> Int
    @usableFromInline let lifetime: CacheLifetime
    let time: Timekeeper
    let meter = AtomicLazyReference<ChargeMeter>()
    let listeners = Mutex<[@Sendable (Key, Value, RemovalReason) -> Void]>([])
    let invalidationListeners = Mutex<[@Sendable () -> Void]>([])
    /// How often the limit has been set.
    let limitChanges = Mutex<UInt64>(0)
    let loads = SingleFlight<Key, Value>()
    let taggedLoads = TaggedLoads<Key>()
    let loadRecord = LoadRecord()
    let claims = Atomic<Int64>(0)
    let batch = Mutex<Batch?>(Batch(capacity: slice))

    @usableFromInline typealias Layout = SlotLayout<Key, Value>
    typealias Entry = CacheEntry<Key, Value>
    typealias Batch = CacheBatch<Entry>

    /// Entries taken out of a shard in one hold of its lock when releasing.
    static var slice: Int { 32 }
    /// Look-ups under the lock after which a shard opens.
    @usableFromInline let opensAfter: Int
    /// A shard that has grown to this many entries splits: just before its index and its block would double.
    @usableFromInline static var splitCount: Int { 512 }

    /// - Parameters:
    ///   - name: how reports name it.
    ///   - limit: bound of the sum of costs; `nil` for no bound but what memory has room for.
    ///   - rebuildCost: what it costs to make a value again.
    ///   - timeToLive: age at which a value counts as missing; `nil` for ever.
    ///   - timeToIdle: time without a use after which it does.
    ///   - refreshAfter: age from which `value(forKey:orLoad:)`, awaited, returns the value and loads it anew beside that.
    ///   - shardCount: how many parts it may split into as it grows, rounded up to a power of two, at most 4096; more let more threads write at once.
    ///     By default 32 for each core.
    ///   - releasesUnderPressure: whether a manager may ask it to release. If not, its bytes are counted and it still grows only while memory has room.
    ///   - cost: bytes that an entry stands for. Called once an insert, outside any lock. By default the sizes of `Key` and
    ///     `Value` themselves and 64 bytes, without what they refer to.
    public convenience init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil, timeToIdle: Duration? = nil,
        refreshAfter: Duration? = nil, shardCount: Int? = nil, releasesUnderPressure: Bool = true,
        cost: @escaping @Sendable (Key, Value) -> Int = { _, _ in MemoryLayout<Key>.stride + MemoryLayout<Value>.stride + 64 }
    ) {
        self.init(
            name, limit: limit, rebuildCost: rebuildCost, lifetime: CacheLifetime(timeToLive, timeToIdle, refreshAfter), shardCount: shardCount,
            releasesUnderPressure: releasesUnderPressure, time: .running, cost: cost)
    }

    init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, lifetime: CacheLifetime, shardCount: Int? = nil,
        releasesUnderPressure: Bool = true, opensAfter: Int = 1024, time: Timekeeper, hashSeed: UInt64 = .random(in: .min ... .max),
        cost: @escaping @Sendable (Key, Value) -> Int
    ) {
        let shardCount = shardCount ?? 32 * Int(plimsoll_processor_count())
        precondition(shardCount > 0 && shardCount <= 4096, "PurgeableCache \(name): shardCount is \(shardCount), allowed is 1...4096")
        self.name = name
        self.rebuildCost = rebuildCost
        self.releasesUnderPressure = releasesUnderPressure
        self.lifetime = lifetime
        self.opensAfter = opensAfter
        self.time = time
        costOf = cost
        hasher = CacheHash(seed: hashSeed)
        counters = CacheCounters()
        counters.bound.pointee.store(max(0, limit?.bytes ?? Int.max), ordering: .relaxed)
        counters.limit.pointee.store(max(0, limit?.bytes ?? Int.max), ordering: .relaxed)
        let depth = UInt32(Int.bitWidth - (shardCount - 1).leadingZeroBitCount)
        directory = CacheDirectory(depth: depth, first: Layout.shard(depth: 0))
        if lifetime.isLimited { counters.use(.expiry) }
        // Asked of every cache, as it asks the kernel the first time, which is not for a look-up to wait for.
        if ThreadSeats.areThere, !Layout.isTrivial { counters.use(.visitors) }
    }

    deinit {
        // What the cache declared dies with it.
        meter.load()?.give(counters.total.pointee.load(ordering: .relaxed))
        directory.forEach { shard in
            // Nobody else is left, so that what follows needs no lock; and no value is to end under one.
            let top = shard.lock.pointee.withLock { $0.top }
            for slot in 0..<UInt32(top) {
                let place = shard.place(slot, Layout.pairSize)
                if place.node.pointee.queue != .free { Layout.destroy(place.pair) }
            }
            shard.free()
            return true
        }
        directory.free()
        counters.free()
    }

    // MARK: Values

    /// The value under `key`, which thereby counts as used; `nil` if there is none or its time has passed.
    ///
    /// - Complexity: O(1); no allocation; see the class for when there is a lock.
    @inlinable
    public func value(forKey key: Key) -> Value? {
        let hash = hasher.of(key)
        return Layout.isTrivial ? readUnlocked(key, hash) : readOpen(key, hash)
    }

    /// Calls `body` with the value under `key`, which thereby counts as used; `nil` if there is none or its time has passed.
    ///
    /// The value is lent: where a look-up takes no lock, no reference to it is counted either, which is most of what looking up an object or a `String` costs.
    /// `body` runs under no lock, may take its time and use the cache; whatever leaves the cache meanwhile, the value lives until `body` ends.
    ///
    /// `body` must not go on in a forked child: there the bits of the value are zeros. A child that is forked inside `body` may only call `exec` or `_exit`.
    @inlinable
    public func withValue<Result, Failure: Error>(forKey key: Key, _ body: (borrowing Value) throws(Failure) -> Result) throws(Failure) -> Result? {
        let hash = hasher.of(key)
        if Layout.isLendable, let seat = ThreadSeat.current, let value = borrow(key, hash, seat) {
            defer { seat.giveBack(value) }
            return try body(seat.room(Value.self).pointee)
        }
        guard let value = Layout.isTrivial ? readUnlocked(key, hash) : readCopy(key, hash) else { return nil }
        return try body(value)
    }

    /// Keeps `value` under `key`, replacing what was there.
    ///
    /// - Parameters:
    ///   - value: what is kept; its cost is what the cache's closure says.
    ///   - key: what it is looked up by.
    ///   - tags: names under which `purge(tag:)` finds it.
    ///   - timeToLive: age at which the value counts as missing, in place of the cache's own.
    /// - Returns: false, and nothing has changed, if its cost is negative or exceeds the limit, or if memory has no room
    ///   for it and the cache nothing to evict.
    @inlinable
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, tags: [String] = [], timeToLive: Duration? = nil) -> Bool {
        insert(value, forKey: key, cost: costOf(key, value), tags: tags, timeToLive: timeToLive)
    }

    /// Keeps `value` under `key` at a cost of `cost` bytes, whatever the cost closure would say.
    @inlinable
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, cost: Int, tags: [String] = [], timeToLive: Duration? = nil) -> Bool {
        insert(value, forKey: key, cost: cost, tags: tags, times: times(timeToLive), of: nil)
    }

    /// Takes out and returns the value under `key`; `nil` if there is none or its time has passed.
    @discardableResult
    public func removeValue(forKey key: Key) -> Value? {
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        let entry: Entry? = withShardToWrite(of: hash) { shard, table -> Entry? in
            guard let slot = find(key, hash, in: shard) else { return nil }
            return takeOut(slot, shard, &table, table.isFresh(slot, at: now, idleTime: nil) ? .removed : .expired)
        }
        guard let entry else { return nil }
        forget(entry.cost)
        tell(entry)
        return entry.reason == .removed ? entry.value : nil
    }

    /// Whether there is a value under `key`; asking is no use of it.
    public func contains(_ key: Key) -> Bool {
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        return withShard(of: hash) { shard, table in find(key, hash, in: shard).map { table.times[$0].deadline > now } ?? false }
    }

    /// Calls `listener` with each entry that leaves and why, on the thread that made it leave, after the lock.
    public func onRemoval(_ listener: @escaping @Sendable (Key, Value, RemovalReason) -> Void) {
        listeners.withLock { $0.append(listener) }
        counters.use(.listeners)
    }

    /// Calls `listener` before entries leave because what they say may not be true any more: by `purge(tag:)` or `removeAll()`. `CacheInvalidation.isRunning`
    /// tells removal listeners of those entries the same.
    package func onInvalidation(_ listener: @escaping @Sendable () -> Void) { invalidationListeners.withLock { $0.append(listener) } }

    func invalidating<Result>(_ body: () -> Result) -> Result {
        let listeners = invalidationListeners.withLock { $0 }
        guard !listeners.isEmpty else { return body() }
        for listener in listeners { listener() }
        return CacheInvalidation.$isRunning.withValue(true) { body() }
    }

    // MARK: Size

    /// Bound of the sum of costs. Lowering it evicts at once, what is least worth keeping first, and only then is it seen: whoever reads it finds no more than
    /// that held, but for what is pinned.
    public var limit: ByteCount {
        get { ByteCount(counters.limit.pointee.load(ordering: .relaxed)) }
        set { setLimit(max(0, newValue.bytes)) }
    }

    /// Age at which a value counts as missing, unless the value was inserted with a time to live of its own; `nil` for ever.
    public var timeToLive: Duration? { lifetime.timeToLive.map { .nanoseconds($0) } }

    /// Time without a use after which a value counts as missing; `nil` for ever.
    public var timeToIdle: Duration? { lifetime.idleTime.map { .nanoseconds($0) } }

    /// Number of entries.
    public var count: Int { sum { $0.count } }

    /// Sum of the costs of the entries held, in bytes; O(1).
    public var byteCount: Int { counters.total.pointee.load(ordering: .relaxed) }

    /// What the cache has done and holds.
    public var statistics: CacheStatistics {
        var statistics = CacheStatistics()
        statistics.hits = counters.sum(.hit) + sum { $0.hits }
        statistics.misses = counters.sum(.miss) + sum { $0.misses }
        statistics.count = count
        statistics.purged = counters.sum(.purge)
        statistics.evictions = sum { $0.evictions }
        statistics.expired = counters.sum(.expiry)
        statistics.replaced = counters.sum(.replacement)
        statistics.rejected = counters.sum(.rejection)
        loadRecord.tell(&statistics)
        statistics.byteCount = byteCount
        return statistics
    }

    func sum(_ number: (borrowing CacheTable) -> Int) -> Int {
        var sum = 0
        directory.forEach { shard in
            sum += shard.lock.pointee.withLock { number($0) }
            return true
        }
        return sum
    }
}
