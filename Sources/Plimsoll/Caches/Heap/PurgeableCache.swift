import CPlimsollProcess
import Synchronization

/// A cache for any `Sendable` value that bounds its total cost exactly and releases entries under memory pressure.
///
/// Thread-safe. Entries are spread over shards by hash. In a cache without expiry, a look-up of trivial keys and
/// values takes no lock, and one of other types takes none in a shard without a write for a thousand look-ups. Any
/// other look-up takes the lock of one shard. No look-up allocates.
/// The sum of costs never exceeds `limit` when an insert returns. Values and keys are released, and listeners
/// called, after the lock. Only a key's `==` runs under the lock, so `==` must not use the cache.
///
/// A cache registered with a manager grows only while memory has room (see `ChargeMeter`) and releases the coldest
/// entries first. The heap decides what the kernel gets back. Trivial values and objects of a page or more come
/// back. Small objects that lie among live ones hardly do, with any allocator.
///
/// A forked child should call `exec`, or make caches of its own and use them on one thread. Locks that other
/// threads of the parent held stay locked in the child.
///
/// The policy is S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).
public final class PurgeableCache<Key: Hashable & Sendable, Value: Sendable>: Purgeable, MeteredPurgeable, TagPurgeable
{
    public let name: String
    public let rebuildCost: RebuildCost
    public let releasesUnderPressure: Bool

    // Mutable state and its guards:
    //   each shard           its own mutex; values are also read without the lock, see CacheShard
    //   directory            atomics, written under the lock of the shard that splits
    //   counters             relaxed atomics: numbers that publish nothing else
    //   listeners, loads     their own mutexes, as for invalidation
    //   limit and bound      `limitChanges`, under which no foreign code runs; read without the lock
    //   loadRecord, claims   relaxed atomics, as the counters
    //   batch                taken out by the releasing thread, so never shared
    //   learning             its own mutex, under which no foreign code runs
    @usableFromInline let hasher: CacheHash
    @usableFromInline let directory: CacheDirectory
    @usableFromInline let counters: CacheCounters
    @usableFromInline let costOf: @Sendable (Key, Value) -> Int
    @usableFromInline let lifetime: CacheLifetime
    let time: Timekeeper
    let meter = AtomicLazyReference<ChargeMeter>()
    let listeners = Mutex<[@Sendable (Key, Value, RemovalNotice) -> Void]>([])
    let invalidationListeners = Mutex<[@Sendable (Bool) -> Void]>([])
    /// Number of times the limit has been set.
    let limitChanges = Mutex<UInt64>(0)
    let loads = SingleFlight<Key, Value>()
    let loadRecord = LoadRecord()
    let claims = Atomic<Int64>(0)
    let batch = Mutex<Batch?>(Batch(capacity: slice))
    let learning = CurveLearning()

    @usableFromInline typealias Layout = SlotLayout<Key, Value>
    typealias Entry = CacheEntry<Key, Value>
    typealias Batch = CacheBatch<Entry>

    /// Maximum number of entries taken out of a shard under one hold of the lock when releasing.
    static var slice: Int { 32 }
    /// Number of look-ups under the lock after which a shard opens.
    @usableFromInline let opensAfter: Int
    /// Number of entries at which a shard splits, just before its index and its block would double.
    @usableFromInline static var splitCount: Int { 512 }
    /// Returns the `shardCount` of a cache that is made without one.
    static func usualShards(processors: Int) -> Int { min(4096, 32 * processors) }

    /// Creates an empty cache.
    ///
    /// - Parameters:
    ///   - name: the name shown in reports.
    ///   - limit: the bound of the sum of costs; `nil` for no bound but the room in memory.
    ///   - rebuildCost: the cost of making a value again.
    ///   - timeToLive: the age at which a value counts as missing; `nil` for ever.
    ///   - timeToIdle: the time without a use after which a value counts as missing; `nil` for ever.
    ///   - refreshAfter: the age from which the asynchronous `value(forKey:orLoad:)` returns the value and
    ///     reloads the value in the background.
    ///   - shardCount: the most shards that the cache may split into, rounded up to a power of two, at most 4096.
    ///     More shards let more threads write at once. The default is 32 for each core, or 4096 if that is fewer.
    ///   - releasesUnderPressure: true if a manager may ask the cache to release. If false, the bytes are still
    ///     counted, and the cache still grows only while memory has room.
    ///   - cost: the bytes that an entry stands for. Called once per insert, outside any lock. Count the memory that
    ///     key and value refer to.
    public convenience init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil,
        timeToIdle: Duration? = nil,
        refreshAfter: Duration? = nil, shardCount: Int? = nil, releasesUnderPressure: Bool = true,
        cost: @escaping @Sendable (Key, Value) -> Int
    ) {
        self.init(
            name, limit: limit, rebuildCost: rebuildCost, lifetime: CacheLifetime(timeToLive, timeToIdle, refreshAfter),
            shardCount: shardCount,
            releasesUnderPressure: releasesUnderPressure, time: .running, cost: cost)
    }

    init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, lifetime: CacheLifetime,
        shardCount: Int? = nil,
        releasesUnderPressure: Bool = true, opensAfter: Int = 1024, time: Timekeeper,
        hashSeed: UInt64 = .random(in: .min ... .max),
        cost: @escaping @Sendable (Key, Value) -> Int
    ) {
        let shardCount = shardCount ?? PurgeableCache.usualShards(processors: Int(plimsoll_processor_count()))
        precondition(
            shardCount > 0 && shardCount <= 4096,
            "PurgeableCache \(name): shardCount is \(shardCount), allowed is 1...4096")
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
        // Evaluated in every initializer: the first evaluation asks the kernel, and no look-up should wait for
        // that.
        if ReaderSlots.areThere, !Layout.isTrivial { counters.use(.visitors) }
    }

    deinit {
        // Release the declared charge to the meter.
        meter.load()?.give(counters.total.pointee.load(ordering: .relaxed))
        directory.forEach { shard in
            // No other thread has a reference any more, so no lock is needed. Values must not be destroyed under a
            // lock.
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

    /// Returns the value under `key` and counts the use. Returns `nil` if there is no value or the value has
    /// expired.
    ///
    /// - Complexity: O(1); no allocation. The type's documentation says which look-ups take a lock.
    @inlinable
    public func value(forKey key: Key) -> Value? {
        let hash = hasher.of(key)
        if isSampled(hash) { return sampledValue(key, hash) }
        return Layout.isTrivial ? readUnlocked(key, hash) : readOpen(key, hash)
    }

    /// Calls `body` with the value under `key` and counts the use. Returns `nil` if there is no value or the value
    /// has expired.
    ///
    /// The value is borrowed: a look-up that takes no lock does not change the reference count either. Reference
    /// counting is most of the cost of looking up an object or a `String`.
    /// `body` runs under no lock, may take long, and may use the cache. The value lives until `body` ends, even if
    /// the entry leaves the cache meanwhile.
    ///
    /// `body` must not continue in a forked child: the bits of the value are zeros there. A child that is forked
    /// inside `body` may only call `exec` or `_exit`.
    @inlinable
    public func withValue<Result, Failure: Error>(forKey key: Key, _ body: (borrowing Value) throws(Failure) -> Result)
        throws(Failure) -> Result?
    {
        let hash = hasher.of(key)
        if isSampled(hash) { sample(key, hash) }
        if Layout.isLendable, let reader = ReaderSlot.current, let value = borrow(key, hash, reader) {
            defer { reader.giveBack(value) }
            return try body(reader.room(Value.self).pointee)
        }
        guard let value = Layout.isTrivial ? readUnlocked(key, hash) : readCopy(key, hash) else { return nil }
        return try body(value)
    }

    /// Inserts `value` under `key`, replacing any previous value.
    ///
    /// - Parameters:
    ///   - value: the value to keep; the cache's closure determines the cost.
    ///   - key: the key for look-ups.
    ///   - tags: names under which `purge(tag:)` finds the entry.
    ///   - timeToLive: the age at which the value counts as missing, instead of the cache's own.
    /// - Returns: false, with nothing changed, if the cost is negative or exceeds the limit, or if memory has no
    ///   room and the cache has nothing to evict.
    @inlinable
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, tags: [String] = [], timeToLive: Duration? = nil) -> Bool {
        insert(value, forKey: key, cost: costOf(key, value), tags: tags, timeToLive: timeToLive)
    }

    /// Inserts `value` under `key` at a cost of `cost` bytes instead of the cost closure's result.
    @inlinable
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, cost: Int, tags: [String] = [], timeToLive: Duration? = nil)
        -> Bool
    {
        insert(value, forKey: key, cost: cost, tags: tags, times: times(timeToLive), of: nil)
    }

    /// Removes and returns the value under `key`. Returns `nil` if there is no value or the value has expired.
    ///
    /// The value of a load in progress for `key` is not kept. Callers that ask for the key from now on start a new
    /// load.
    @discardableResult
    public func removeValue(forKey key: Key) -> Value? {
        revokeLoad(of: key)
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        if isSampled(hash) { learning.remove(hash) }
        let entry: Entry? = withShardToWrite(of: hash) { shard, table -> Entry? in
            guard let slot = find(key, hash, in: shard) else { return nil }
            return takeOut(slot, shard, &table, table.isFresh(slot, at: now, idleTime: nil) ? .removed : .expired)
        }
        guard let entry else { return nil }
        forget(entry.cost)
        notify(entry)
        return entry.reason == .removed ? entry.value : nil
    }

    /// Lets the value of a load of `key` in progress not be kept.
    @usableFromInline
    func revokeLoad(of key: Key) { if loads.isBusy { loads.revoke(key) } }

    /// Returns true if there is a value under `key`. Does not count as a use.
    public func contains(_ key: Key) -> Bool {
        let hash = hasher.of(key), now = counters.has(.expiry) ? self.now : .min
        return withShard(of: hash) { shard, table in
            find(key, hash, in: shard).map { table.times[$0].deadline > now } ?? false
        }
    }

    /// Registers `listener`, which is called with each entry that leaves and the reason. The call runs after the
    /// lock, on the thread that removed the entry.
    public func onRemoval(_ listener: @escaping @Sendable (Key, Value, RemovalReason) -> Void) {
        onRemovalNotice { key, value, notice in listener(key, value, notice.reason) }
    }

    /// Registers `listener` as `onRemoval(_:)` does, for all that is known of the removal.
    package func onRemovalNotice(_ listener: @escaping @Sendable (Key, Value, RemovalNotice) -> Void) {
        listeners.withLock { $0.append(listener) }
        counters.use(.listeners)
    }

    /// Registers `listener`, which is called with true before `purge(tag:)` or `removeAll()` removes entries whose
    /// content may no longer be true, and with false afterwards. The notices of those entries have `isInvalid` set.
    package func onInvalidation(_ listener: @escaping @Sendable (_ begins: Bool) -> Void) {
        invalidationListeners.withLock { $0.append(listener) }
    }

    func invalidating<Result>(_ body: () -> Result) -> Result {
        let listeners = invalidationListeners.withLock { $0 }
        guard !listeners.isEmpty else { return body() }
        for listener in listeners { listener(true) }
        defer { for listener in listeners { listener(false) } }
        return body()
    }

    // MARK: Size

    /// Bound of the sum of costs. Lowering the bound evicts at once, the least valuable entries first. The new
    /// bound becomes visible only afterwards, so a reader of the bound never finds more than that held, except for
    /// pinned entries.
    public var limit: ByteCount {
        // Acquires the total from before the limit was lowered to this one.
        get { ByteCount(counters.limit.pointee.load(ordering: .acquiring)) }
        set { setLimit(max(0, newValue.bytes)) }
    }

    /// Age at which a value counts as missing, unless the value was inserted with its own time to live; `nil` for
    /// ever.
    public var timeToLive: Duration? { lifetime.timeToLive.map { .nanoseconds($0) } }

    /// Time without a use after which a value counts as missing; `nil` for ever.
    public var timeToIdle: Duration? { lifetime.idleTime.map { .nanoseconds($0) } }

    /// Number of entries.
    public var count: Int { sum { $0.count } }

    /// Sum of the costs of the entries held, in bytes.
    ///
    /// - Complexity: O(1).
    public var byteCount: Int { counters.total.pointee.load(ordering: .relaxed) }

    /// Counts of the cache's operations and contents.
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
        loadRecord.copy(into: &statistics)
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

extension PurgeableCache where Key: BitwiseCopyable, Value: BitwiseCopyable {
    /// Creates an empty cache in which each entry costs the sizes of `Key` and `Value` plus 64 bytes: such keys and values
    /// refer to no other memory.
    ///
    /// The parameters are those of the initializer with `cost:`.
    public convenience init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil,
        timeToIdle: Duration? = nil,
        refreshAfter: Duration? = nil, shardCount: Int? = nil, releasesUnderPressure: Bool = true
    ) {
        self.init(
            name, limit: limit, rebuildCost: rebuildCost, timeToLive: timeToLive, timeToIdle: timeToIdle,
            refreshAfter: refreshAfter,
            shardCount: shardCount, releasesUnderPressure: releasesUnderPressure,
            cost: { _, _ in MemoryLayout<Key>.stride + MemoryLayout<Value>.stride + 64 })
    }
}

extension PurgeableCache: CountingPurgeable {
    public var holdsAtMost: ByteCount? { limit == .max ? nil : limit }
}

extension PurgeableCache: ResizablePurgeable {
    public func resize(to limit: ByteCount) { self.limit = limit }
}

extension PurgeableCache: PromptPurgeable {}
