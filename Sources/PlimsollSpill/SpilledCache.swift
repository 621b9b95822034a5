#if Spill
import Crypto
public import Plimsoll
import Synchronization

/// A `PurgeableCache` of which what is purged or evicted goes to a server, to be found there before it is loaded again.
///
/// A purge never waits for the server: what leaves is put into a small queue, which counts as memory, is the first to be released, and takes nothing while memory is
/// critical. A look-up waits for the server no longer than `SpillLimits.readTimeout`, and not at all while it is known to be down. Whatever the server does, the worst
/// that comes of it is a load: records carry a message authentication code (HMAC-SHA-256) over key, value, version and generation, and are refused without the right
/// one. Who can write to the server can have values forgotten, but none of their own found. Values are not encrypted there.
///
/// Insert, remove and load through this object; what changes a value behind its back (`cache.insert` of a key that the cache had let go of) leaves the old one in the
/// store. Look-ups without a load, limits and purges by tag are the cache's own.
///
/// ```swift
/// let thumbnails = SpilledCache(cache, to: MemcachedStore(host: "127.0.0.1"), manager: manager)
/// let image = try await thumbnails.value(forKey: id) { try await render(id) }
/// ```
public final class SpilledCache<Key: Hashable & VolatileStorable, Value: Sendable>: Sendable {
    /// The cache in front.
    public let cache: PurgeableCache<Key, Value>

    private let engine: SpillEngine<Key, Value>
    private let registration: Registration
    private let watch: Registration

    /// Spills what leaves `cache`.
    ///
    /// - Parameters:
    ///   - store: where to.
    ///   - codec: how values are written down; `.storable` for what is `VolatileStorable`.
    ///   - manager: the cache's manager. What waits for the store is registered with it.
    ///   - limits: bounds of what waits, and of the waiting.
    ///   - version: of what `codec` writes: change it when that changes.
    ///   - generation: by default a random one, so that each process finds only what it has spilled itself. A fixed one, together with a `secret`, shares the store with
    ///     earlier runs and other processes; then values must never change under their key, since a removal is heard of by nobody else in time, and who can write to
    ///     the server can bring back an older value of a key.
    ///   - secret: what records are authenticated with, the same bytes in all processes that share a generation: 16 bytes or more that cannot be guessed, best 32 random
    ///     ones. By default a random one of this process, whose records no other process accepts.
    /// - Precondition: the limits make sense, and so does the length of the secret; the cache has a name of at most 32 letters, digits, `-` and `_` or what is left of it without others is unique.
    public init(
        _ cache: PurgeableCache<Key, Value>, to store: any SpillStore, codec: SpillCodec<Value>, manager: ResourceManager,
        limits: SpillLimits = SpillLimits(),
        version: UInt32 = 1, generation: UInt64 = .random(in: .min ... .max), secret: [UInt8]? = nil
    ) {
        if let secret, secret.count < 16 {
            preconditionFailure("SpilledCache \(cache.name): the secret has \(secret.count) bytes, allowed are 16 or more")
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
            secret: secret.map { SymmetricKey(data: $0) } ?? processSecret, generation: generation,
            level: { [weak manager] in manager?.level ?? .normal })
        self.engine = engine
        registration = manager.register(SpillQueuePurgeable(name: "\(cache.name), waiting for \(store.name)", engine))
        watch = manager.observe(from: .critical, "spill of \(cache.name)") { [weak engine] _ in _ = engine?.shed(.max) }
        // Weakly: the cache outlives its spilling.
        cache.onRemoval { [weak engine] key, value, reason in
            guard let engine, !CacheInvalidation.isRunning else { return }
            switch reason {
            case .evicted, .purged: engine.put(key, value)
            case .replaced, .removed: engine.remove(key)
            case .expired, .droppedByKernel: break
            }
        }
        cache.onInvalidation { [weak engine] in engine?.forgetAll() }
    }

    deinit {
        registration.cancel()
        watch.cancel()
        engine.stop()
    }

    /// The value under `key`: the cache's, or else the store's, or else the one that `load` makes; kept in the cache in each case.
    ///
    /// One look-up or load a key at a time, as by the cache's own form. A refresh (`refreshAfter`) loads and doesn't ask the store.
    ///
    /// - Throws: what `load` throws, and what the cache's own form does; never anything of the store's.
    public func value(forKey key: Key, tags: [String] = [], orLoad load: @escaping @Sendable () async throws -> Value) async throws -> Value {
        try await cache.value(forKey: key, tags: tags) { [engine, cache] in
            // It is there: this is its refresh.
            let found: SpillEngine<Key, Value>.Found = cache.contains(key) ? .unknown : await engine.find(key)
            switch found {
            case .value(let value): return value
            case .absent: return try await load()
            case .unknown:
                let value = try await load()
                engine.remove(key)
                return value
            }
        }
    }

    /// Keeps `value` under `key` in the cache, and has the store forget what it has there.
    ///
    /// - Returns: as the cache's `insert`.
    @discardableResult
    public func insert(_ value: Value, forKey key: Key, tags: [String] = [], timeToLive: Duration? = nil) -> Bool {
        engine.remove(key)
        return cache.insert(value, forKey: key, tags: tags, timeToLive: timeToLive)
    }

    /// Removes the value under `key` from the cache and from the store.
    ///
    /// - Returns: the cache's.
    @discardableResult
    public func removeValue(forKey key: Key) -> Value? {
        let value = cache.removeValue(forKey: key)
        engine.remove(key)
        return value
    }

    /// What came of it.
    public var statistics: SpillStatistics { engine.statistics }
}

extension SpilledCache where Value: VolatileStorable {
    /// Spills what leaves `cache`, written down as in volatile memory.
    public convenience init(
        _ cache: PurgeableCache<Key, Value>, to store: any SpillStore, manager: ResourceManager, limits: SpillLimits = SpillLimits(),
        version: UInt32 = 1,
        generation: UInt64 = .random(in: .min ... .max), secret: [UInt8]? = nil
    ) {
        self.init(cache, to: store, codec: .storable, manager: manager, limits: limits, version: version, generation: generation, secret: secret)
    }
}

/// What waits for a store: the first that is let go of.
private final class SpillQueuePurgeable<Key: Hashable & Sendable, Value: Sendable>: Purgeable {
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
