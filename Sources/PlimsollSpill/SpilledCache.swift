#if Spill
public import Plimsoll
import Synchronization

/// A `PurgeableCache` that spills purged and evicted values to a server. Look-ups check the server before the value
/// is loaded again.
///
/// A purge never waits for the server. Evicted values enter a small queue. The queue counts as memory, is the first
/// to be released, and accepts no value while memory is critical. A look-up waits for the server for at most
/// `SpillLimits.readTimeout`, and not at all while the server is known to be down.
///
/// A misbehaving server can at worst cause loads. Records carry a message authentication code (HMAC-SHA-256) over
/// key, value, version and generation, and records with a wrong code are rejected. An attacker with write access to
/// the server can make values disappear, but cannot inject values. Values are not encrypted on the server.
///
/// Insert, remove and load through this object. A change made only in the cache (`cache.insert` of a key that the
/// cache has evicted) leaves the old value in the store. For look-ups without a load, limits and purges by tag, use
/// the cache itself.
///
/// ```swift
/// let thumbnails = SpilledCache(cache, to: .memcached(host: "127.0.0.1"), manager: manager)
/// let image = try await thumbnails.value(forKey: id) { try await render(id) }
/// ```
public final class SpilledCache<Key: Hashable & VolatileStorable, Value: Sendable>: Sendable {
    /// The cache in memory.
    public let cache: PurgeableCache<Key, Value>

    private let engine: SpillEngine<Key, Value>
    private let registration: Registration
    private let watch: Registration

    /// Creates a spilled cache.
    ///
    /// - Parameters:
    ///   - store: target of spilled values.
    ///   - byteCount: approximate memory of a value while queued; the bound of the queue uses this number. Called
    ///     when the cache evicts a value, possibly on the purging thread, so must be fast.
    ///   - encode: encodes a value. If the closure throws, the value is not stored, and counted. Both this closure and
    ///     `decode` run on a thread of the spill, or in the task that requests a value.
    ///   - decode: decodes a value. If the closure throws, the value counts as missing.
    ///   - manager: manager of the cache. The queue is registered with this manager.
    ///   - limits: bounds of the queue and of waits.
    ///   - version: version of the format that `encode` writes. Change the version with the format.
    ///   - generation: by default a random value, so that each process finds only values of its own. A fixed value,
    ///     together with a `secret`, shares the store with earlier runs and other processes. Values must then never
    ///     change under a key, because other processes do not learn of removals in time. An attacker with write
    ///     access to the server can then restore an older value of a key.
    ///   - secret: key of the record authentication, the same bytes in all processes that share a generation: 16
    ///     unpredictable bytes or more, preferably 32 random bytes. By default a random secret of this process; no
    ///     other process accepts such records.
    /// - Precondition: The limits and the length of the secret are valid. The cache's name has at most 32 letters,
    ///   digits, `-` and `_`; otherwise the first 32 of these characters are unique to the cache.
    public convenience init(
        _ cache: PurgeableCache<Key, Value>, to store: SpillStore, byteCount: @escaping @Sendable (Value) -> Int,
        encode: @escaping @Sendable (Value) throws -> [UInt8], decode: @escaping @Sendable ([UInt8]) throws -> Value,
        manager: ResourceManager, limits: SpillLimits = SpillLimits(), version: UInt32 = 1,
        generation: UInt64 = .random(in: .min ... .max), secret: [UInt8]? = nil
    ) {
        self.init(
            cache, to: store, codec: SpillCodec(byteCount: byteCount, encode: encode, decode: decode),
            manager: manager, limits: limits, version: version, generation: generation, secret: secret)
    }

    init(
        _ cache: PurgeableCache<Key, Value>, to store: SpillStore, codec: SpillCodec<Value>,
        manager: ResourceManager, limits: SpillLimits, version: UInt32, generation: UInt64, secret: [UInt8]?,
        time: Timekeeper = .running
    ) {
        if let secret, secret.count < 16 {
            preconditionFailure(
                "SpilledCache \(cache.name): the secret has \(secret.count) bytes, allowed are 16 or more")
        }
        if let problem = limits.problem { preconditionFailure("SpilledCache \(cache.name): \(problem)") }
        self.cache = cache
        let letters = cache.name.utf8.filter {
            $0 == 45 || $0 == 95 || (48...57).contains($0) || (65...90).contains($0) || (97...122).contains($0)
        }
        let engine = SpillEngine<Key, Value>(
            store: store, codec: codec,
            encodeKey: { key in (try? key.withEncodedBytes { Array($0) }) ?? Array("\(key)".utf8) },
            limits: limits, prefix: "plimsoll:" + String(decoding: letters.prefix(32), as: UTF8.self), version: version,
            secret: secret ?? processSecret, generation: generation,
            level: { [weak manager] in manager?.level ?? .normal }, time: time)
        self.engine = engine
        registration = manager.register(SpillQueuePurgeable(name: "\(cache.name), queued for \(store.name)", engine))
        watch = manager.observe(from: .critical, "spill of \(cache.name)") { [weak engine] _ in _ = engine?.shed(.max) }
        // Weak: the cache outlives the spilling.
        cache.onRemovalNotice { [weak engine] key, value, notice in
            guard let engine, !notice.isInvalid else { return }
            switch notice.reason {
            case .evicted, .purged: engine.put(key, value, after: notice.changes, notice.left)
            case .replaced, .removed: engine.remove(key)
            case .expired, .droppedByKernel: break
            }
        }
        cache.onInvalidation { [weak engine] begins in
            if begins { engine?.beginInvalidation() } else { engine?.endInvalidation() }
        }
    }

    deinit {
        registration.cancel()
        watch.cancel()
        engine.stop()
    }

    /// Returns the value under `key` from the cache, else from the store, else from `load`. Inserts the value into
    /// the cache in each case.
    ///
    /// Each key has one look-up or load at a time, as in the cache's own method. A value from the store keeps its end of
    /// life; the ages for `refreshAfter` and the idle time start anew. A refresh (`refreshAfter`) loads and does not
    /// query the store.
    ///
    /// - Throws: Errors of `load` and of the cache's own method; never errors of the store.
    public func value(forKey key: Key, tags: [String] = [], orLoad load: @escaping @Sendable () async throws -> Value)
        async throws -> Value
    {
        let loadLasting = { @Sendable [engine, cache] () async throws -> (value: Value, timeToLive: Duration?) in
            // The key is present, so this call is a refresh.
            let found: SpillEngine<Key, Value>.Found = cache.contains(key) ? .unknown : await engine.find(key)
            switch found {
            case .value(let value, let timeToLive): return (value, timeToLive)
            case .absent: return (try await load(), nil)
            case .expired, .unknown:
                let value = try await load()
                engine.remove(key)
                return (value, nil)
            }
        }
        return try await cache.value(forKey: key, tags: tags, orLoadLasting: loadLasting)
    }

    /// Inserts `value` under `key` into the cache, and removes the key from the store.
    ///
    /// - Returns: The result of the cache's `insert`.
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, tags: [String] = [], timeToLive: Duration? = nil) -> Bool {
        engine.change(key) { cache.insert(value, forKey: key, tags: tags, timeToLive: timeToLive) }
    }

    /// Removes the value under `key` from the cache and from the store.
    ///
    /// - Returns: The value that the cache had.
    @discardableResult
    public func removeValue(forKey key: Key) -> Value? {
        engine.change(key) { cache.removeValue(forKey: key) }
    }

    /// Counts of spilling since the start.
    public var statistics: SpillStatistics { engine.statistics }
}

extension SpilledCache where Value: VolatileStorable {
    /// Creates a spilled cache that encodes values as in volatile memory.
    public convenience init(
        _ cache: PurgeableCache<Key, Value>, to store: SpillStore, manager: ResourceManager,
        limits: SpillLimits = SpillLimits(),
        version: UInt32 = 1,
        generation: UInt64 = .random(in: .min ... .max), secret: [UInt8]? = nil
    ) {
        self.init(
            cache, to: store, codec: .storable, manager: manager, limits: limits, version: version,
            generation: generation, secret: secret)
    }
}

/// The queue of a store as a purgeable: the first to be released.
private final class SpillQueuePurgeable<Key: Hashable & Sendable, Value: Sendable>: MeteredPurgeable {
    let name: String
    let rebuildCost = RebuildCost.trivial
    private let engine: SpillEngine<Key, Value>

    init(name: String, _ engine: SpillEngine<Key, Value>) { (self.name, self.engine) = (name, engine) }

    var heldBytes: Int { engine.state.withLock { $0.queue.bytes } }
    func release(_ target: Int) -> Int { engine.shed(target) }
    func dropSpares() -> Int { engine.shed(.max) }
    func restrict(to limit: ByteCount?) { engine.state.withLock { $0.restriction = max(0, limit?.bytes ?? .max) } }
    func attach(_ meter: ChargeMeter) -> Bool { engine.meter.load() == nil && engine.meter.storeIfNil(meter) === meter }
}
#endif
