import Synchronization

/// A cache for any `Sendable` value that bounds its cost exactly and gives way under memory pressure.
///
/// Thread-safe. Entries are spread over shards by hash; a look-up locks one shard and allocates nothing. The sum of
/// costs never exceeds `limit` when an insert returns. Values and keys are released, and listeners called, after the
/// lock; only a key's `hash(into:)` and `==` run under it, so they must not use the cache.
///
/// Registered with a manager, the cache grows only while memory has room (see `ChargeMeter`) and releases coldest
/// first. What the kernel gets back depends on the heap: entries of a page or more come back, small ones that lie
/// among live objects hardly do, with any allocator.
public final class PurgeableCache<Key: Hashable & Sendable, Value: Sendable>: Purgeable, TagPurgeable {
    public let name: String
    public let rebuildCost: RebuildCost

    // Mutable state and what guards it:
    //   each shard           its own mutex
    //   total, bound, purged relaxed atomics: numbers that publish nothing else
    //   listeners, loads     their own mutexes
    //   batch                taken out by whoever releases, so never shared
    private let shards: [Shard]
    private let total = Atomic<Int>(0)
    private let bound: Atomic<Int>
    private let purged = Atomic<Int>(0)
    private let meter = AtomicLazyReference<ChargeMeter>()
    private let listeners = Mutex<[@Sendable (Key, Value, RemovalReason) -> Void]>([])
    private let hasListeners = Atomic<Bool>(false)
    private let loads = SingleFlight<Key, Value>()
    private let taggedLoads = TaggedLoads<Key>()
    private let batch = Mutex<Batch?>(Batch(capacity: slice))

    private let costOf: @Sendable (Key, Value) -> Int
    private let timeToLive: Duration?
    private let time: Timekeeper

    private typealias Batch = CacheBatch<CacheShard<Key, Value>.Entry>

    private final class Shard: Sendable {
        let state = Mutex(CacheShard<Key, Value>())
    }

    /// Entries taken out of a shard in one hold of its lock when releasing.
    private static var slice: Int { 32 }

    /// - Parameters:
    ///   - name: how reports name it.
    ///   - limit: bound of the sum of costs; `nil` for no bound but what memory has room for.
    ///   - rebuildCost: what it costs to make a value again.
    ///   - timeToLive: age at which a value counts as missing; `nil` for ever.
    ///   - shardCount: number of parts, rounded up to a power of two; more parts let more threads write at once, fewer judge
    ///     better what is cold.
    ///   - cost: bytes that an entry stands for. Called once an insert, outside any lock. By default the sizes of `Key` and
    ///     `Value` themselves and 64 bytes, without what they refer to.
    public init(
        _ name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil, shardCount: Int = 16,
        cost: @escaping @Sendable (Key, Value) -> Int = { _, _ in MemoryLayout<Key>.stride + MemoryLayout<Value>.stride + 64 }
    ) {
        precondition(shardCount > 0 && shardCount <= 4096, "PurgeableCache \(name): shardCount is \(shardCount), allowed is 1...4096")
        self.name = name
        self.rebuildCost = rebuildCost
        self.timeToLive = timeToLive
        time = .running
        costOf = cost
        bound = Atomic(max(0, limit?.bytes ?? Int.max))
        var power = 1
        while power < shardCount { power *= 2 }
        shards = (0..<power).map { _ in Shard() }
    }

    deinit {
        // What the cache declared dies with it.
        meter.load()?.give(total.load(ordering: .relaxed))
    }

    // MARK: Values

    /// The value under `key`, which thereby counts as used; `nil` if there is none or its time has passed.
    ///
    /// - Complexity: O(1); one lock, no allocation.
    public func value(forKey key: Key) -> Value? {
        switch shard(of: key).state.withLock({ $0.lookup(key, now: time.elapsed) }) {
        case .hit(let value): return value
        case .miss: return nil
        case .expired(let entry):
            forget(entry.cost)
            tell(entry, .expired)
            return nil
        }
    }

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
            if let value = shard(of: key).state.withLock({ $0.peek(key) }) { return value }
            return try await taggedLoads.during(key, tags) { tagged in
                let value = try await load()
                insert(value, forKey: key, cost: costOf(key, value), tags: tags, of: tagged)
                return value
            }
        }
    }

    /// Keeps `value` under `key`, replacing what was there.
    ///
    /// - Parameter tags: names under which `purge(tag:)` finds it.
    /// - Returns: false, and nothing has changed, if its cost is negative or exceeds the limit, or if memory has no room
    ///   for it and the cache nothing to evict.
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, tags: [String] = []) -> Bool {
        insert(value, forKey: key, cost: costOf(key, value), tags: tags)
    }

    /// Keeps `value` under `key` at a cost of `cost` bytes, whatever the cost closure would say.
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, cost: Int, tags: [String] = []) -> Bool {
        insert(value, forKey: key, cost: cost, tags: tags, of: nil)
    }

    /// - Parameter load: the load that brought it; what was revoked meanwhile is not kept.
    @discardableResult
    private func insert(_ value: Value, forKey key: Key, cost: Int, tags: [String], of load: TaggedLoad?) -> Bool {
        guard cost >= 0, cost <= bound.load(ordering: .relaxed) else { return false }
        let own = shard(of: key)
        guard reserve(cost, evictingFrom: own) else { return false }
        let entry = CacheShard<Key, Value>.Entry(
            key: key, value: value, cost: cost, expiry: timeToLive.map { time.elapsed() + $0 }, tags: tags)
        let (isKept, old) = own.state.withLock { load?.isRevoked ?? false ? (false, nil) : (true, $0.insert(entry)) }
        if !isKept { forget(cost) }
        if let old {
            forget(old.cost)
            tell(old, .replaced)
        }
        return isKept
    }

    /// Takes out and returns the value under `key`.
    @discardableResult
    public func removeValue(forKey key: Key) -> Value? {
        guard let entry = shard(of: key).state.withLock({ $0.removeValue(key) }) else { return nil }
        forget(entry.cost)
        tell(entry, .removed)
        return entry.value
    }

    /// Takes out everything, in slices, so that nobody waits long.
    public func removeAll() {
        let batch = takeBatch()
        for shard in shards {
            var position = 0, atEnd = false
            while !atEnd {
                atEnd = shard.state.withLock { $0.takeOut(from: &position, into: batch) }
                settle(batch, .removed)
            }
        }
        putBack(batch)
    }

    /// Takes out every entry with that tag, in slices, so that nobody waits long. A load under way with that tag is not kept, and whoever asks for its key from
    /// now on loads anew.
    ///
    /// - Returns: number of entries taken out.
    /// - Complexity: O(entries with that tag).
    @discardableResult
    public func purge(tag: String) -> Int {
        for key in taggedLoads.revoke(tag) { loads.forget(key) }
        let batch = takeBatch()
        var count = 0
        for shard in shards {
            // What listeners and others put in meanwhile is not waited for.
            var end: UInt64?, atEnd = false
            while !atEnd {
                atEnd = shard.state.withLock { state in
                    if end == nil { end = state.tagSequence }
                    return state.takeOut(tag: tag, before: end ?? 0, into: batch)
                }
                count += batch.count
                purged.wrappingAdd(batch.count, ordering: .relaxed)
                settle(batch, .purged)
            }
        }
        putBack(batch)
        return count
    }

    /// Number of entries with that tag; such as have expired are counted until somebody looks.
    public func count(tag: String) -> Int { shards.reduce(0) { $0 + $1.state.withLock { $0.count(tag: tag) } } }

    /// Calls `listener` with each entry that leaves and why, on the thread that made it leave, after the lock.
    public func onRemoval(_ listener: @escaping @Sendable (Key, Value, RemovalReason) -> Void) {
        listeners.withLock { $0.append(listener) }
        // Releasing: whoever sees true also finds the listener; the mutex orders it anyway.
        hasListeners.store(true, ordering: .releasing)
    }

    // MARK: Size

    /// Bound of the sum of costs. Lowering it evicts at once, what is least worth keeping first.
    public var limit: ByteCount {
        get { ByteCount(bound.load(ordering: .relaxed)) }
        set {
            bound.store(max(0, newValue.bytes), ordering: .relaxed)
            let excess = total.load(ordering: .relaxed) - max(0, newValue.bytes)
            if excess > 0 { _ = letGo(excess, reason: .evicted) }
        }
    }

    /// Number of entries.
    public var count: Int { shards.reduce(0) { $0 + $1.state.withLock { $0.count } } }

    /// Sum of the costs of what is held; O(1).
    public var byteCount: ByteCount { ByteCount(total.load(ordering: .relaxed)) }

    /// What the cache has done and holds.
    public var statistics: CacheStatistics {
        var sum = CacheStatistics()
        for shard in shards {
            shard.state.withLock {
                sum.hits += $0.hits
                sum.misses += $0.misses
                sum.evictions += $0.evictions
                sum.count += $0.count
            }
        }
        sum.purged = purged.load(ordering: .relaxed)
        sum.evictions -= sum.purged
        sum.byteCount = byteCount
        return sum
    }

    // MARK: Purgeable

    public var heldBytes: ByteCount { byteCount }

    /// Lets go of at least `target` bytes, coldest first, evenly over the shards. Allocates nothing.
    public func release(_ target: ByteCount) -> ByteCount { ByteCount(letGo(target.bytes, reason: .purged)) }

    public func attach(_ meter: ChargeMeter) -> Bool {
        // A second manager finds the first one's meter: only one can bound the growth.
        guard self.meter.load() == nil, self.meter.storeIfNil(meter) === meter else { return false }
        meter.takeAnyway(total.load(ordering: .relaxed))
        return true
    }

    // MARK: Room

    private func shard(of key: Key) -> Shard {
        // The dictionary inside uses the low bits of the same hash.
        shards[Int(truncatingIfNeeded: UInt(bitPattern: key.hashValue) >> 40) & (shards.count - 1)]
    }

    /// Counts `cost` in before the entry is linked, so that the sum never exceeds the bound; evicts until it fits.
    ///
    /// What is evicted for the new entry stays declared to the meter until that takes its place. Given back first, a reading in between
    /// would take the dip for the cache's size and let it grow no further: entry by entry down to nothing (measured).
    private func reserve(_ cost: Int, evictingFrom own: Shard) -> Bool {
        // More than could be had by giving up everything: nothing is given up for it.
        if let room = meter.load()?.room, cost > room, cost - room > total.load(ordering: .relaxed) { return false }
        var credit = 0
        defer { if credit > 0 { meter.load()?.give(credit) } }
        while true {
            let now = total.load(ordering: .relaxed)
            if now <= bound.load(ordering: .relaxed) - cost {
                guard total.weakCompareExchange(expected: now, desired: now + cost, ordering: .relaxed).exchanged else { continue }
                guard let meter = meter.load() else { return true }
                if credit >= cost || meter.take(cost - credit) {
                    credit = max(0, credit - cost)
                    return true
                }
                total.wrappingSubtract(cost, ordering: .relaxed)
            }
            // The own shard first: its lock is warm. An empty one means the cost lies elsewhere.
            guard evictOne(from: own, &credit) || shards.contains(where: { evictOne(from: $0, &credit) }) else {
                // Nothing left to evict. Others may be between counting in and linking; then it is worth another look.
                if total.load(ordering: .relaxed) > 0, cost <= bound.load(ordering: .relaxed), meter.load() == nil { continue }
                return false
            }
        }
    }

    private func evictOne(from shard: Shard, _ credit: inout Int) -> Bool {
        guard let entry = shard.state.withLock({ $0.evict() }) else { return false }
        total.wrappingSubtract(entry.cost, ordering: .relaxed)
        if meter.load() != nil { credit += entry.cost }
        tell(entry, .evicted)
        return true
    }

    private func forget(_ cost: Int) {
        total.wrappingSubtract(cost, ordering: .relaxed)
        meter.load()?.give(cost)
    }

    private func letGo(_ target: Int, reason: RemovalReason) -> Int {
        var released = 0, emptyInARow = 0, position = 0
        let batch = takeBatch()
        while released < target, emptyInARow < shards.count {
            // A small slice from each in turn keeps the shards even; the last ones are taken no further than needed.
            let wanted = target - released
            var gained = 0
            shards[position].state.withLock { state in
                while !batch.isFull, gained < wanted, let entry = state.evict() {
                    gained += entry.cost
                    batch.append(entry)
                }
            }
            emptyInARow = batch.count == 0 ? emptyInARow + 1 : 0
            released += gained
            if reason == .purged { purged.wrappingAdd(batch.count, ordering: .relaxed) }
            settle(batch, reason)
            position = (position + 1) & (shards.count - 1)
        }
        putBack(batch)
        return released
    }

    /// The prepared batch, or a new one if somebody else is using it.
    private func takeBatch() -> Batch {
        let prepared = batch.withLock { batch in
            defer { batch = nil }
            return batch
        }
        return prepared ?? Batch(capacity: Self.slice)
    }

    private func putBack(_ batch: Batch) { self.batch.withLock { $0 = batch } }

    private func settle(_ batch: Batch, _ reason: RemovalReason) {
        batch.drain { entry in
            forget(entry.cost)
            tell(entry, reason)
        }
    }

    private func tell(_ entry: CacheShard<Key, Value>.Entry, _ reason: RemovalReason) {
        guard hasListeners.load(ordering: .acquiring) else { return }
        for listener in listeners.withLock({ $0 }) { listener(entry.key, entry.value, reason) }
    }
}
