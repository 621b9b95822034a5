public import Plimsoll
import Synchronization

/// `NSCache` for Linux: the same calls, a correct implementation, and release under memory pressure.
///
/// ```swift
/// let thumbnails = MemoryCache<NSString, NSData>()
/// thumbnails.totalCostLimit = 64 << 20
/// manager.register(thumbnails)
/// thumbnails.setObject(data, forKey: "7", cost: data.length)
/// ```
///
/// Keys are objects or `Hashable` values such as `String` and `UUID`. Objects are compared by `isEqual(_:)` if they
/// are `NSObject`, by `==` if they are `Hashable`, otherwise by identity. Keys are not copied: a key that changes
/// later is not found. Values are objects or any other type.
///
/// Objects that have not been used lately are evicted first (S3-FIFO, as in `PurgeableCache`). A newly set object
/// stays. No limit is exceeded when a call returns.
///
/// *Threads*: all calls are safe on any thread. The code that sets an object ensures that other threads may use the
/// object, as with `NSCache`. Objects are released, and the delegate is called, outside every lock. Only the keys'
/// `isEqual(_:)` or `==` run under a lock: they must not use the cache.
public final class MemoryCache<Key, Value>: Purgeable, MeteredPurgeable, CountingPurgeable, PromptPurgeable {
    public let rebuildCost: RebuildCost

    @usableFromInline let entries: PurgeableCache<CacheKey<Key>, CachedObject<Value>>
    @usableFromInline let rules: any KeyRules<Key>.Type
    @usableFromInline let byteCount: @Sendable (Value) -> Int

    // Mutable state and protection: limits and sums by the mutex in `accounting`, name and delegate by `settings`. The
    // relaxed atomics publish no other memory.
    @usableFromInline let accounting = CacheAccounting()
    private let settings = Mutex(Settings())
    private let evictsDiscarded = Atomic<Bool>(true)
    let discoveries = Atomic<Int>(0)

    private struct Settings {
        var name = "MemoryCache"
        weak var delegate: (any MemoryCacheDelegate<Key, Value>)?
    }

    init(_ rules: any KeyRules<Key>.Type, _ rebuildCost: RebuildCost, _ byteCount: @escaping @Sendable (Value) -> Int) {
        self.rules = rules
        self.rebuildCost = rebuildCost
        self.byteCount = byteCount
        entries = PurgeableCache("MemoryCache", rebuildCost: rebuildCost) { _, object in object.cost }
        entries.onRemoval { [accounting, weak self] _, object, reason in
            accounting.strike(object.cost)
            if reason == .evicted || reason == .purged { self?.letGo(object) }
        }
    }

    // MARK: Objects

    /// Returns the object under `key`, which counts as a use; `nil` if there is none.
    ///
    /// - Complexity: O(1), plus one check of an object that is `DiscardableContent`.
    @inlinable
    public func object(forKey key: Key) -> Value? {
        let key = CacheKey(key, rules)
        guard let object = entries.value(forKey: key) else { return nil }
        return object.isDiscardable ? access(object, key) : object.value
    }

    /// Stores `object` under `key` at no cost, replacing the present object.
    ///
    /// - Returns: true if the object is kept; see `setObject(_:forKey:cost:)`.
    @discardableResult @inlinable
    public func setObject(_ object: Value, forKey key: Key) -> Bool { setObject(object, forKey: key, cost: 0) }

    /// Stores `object` under `key`, replacing the present object, and evicts the least valuable objects until all
    /// fit.
    ///
    /// - Parameters:
    ///   - object: the object to store.
    ///   - key: the key for look-ups.
    ///   - cost: contribution to `totalCostLimit`, and bytes under memory pressure; negative is zero. At zero, the
    ///     object's bytes are estimated for pressure, and count toward no limit.
    /// - Returns: true if the object is kept. An object is not kept if it costs more than `totalCostLimit`, or if
    ///   memory has no room even without all others. The outdated object under `key` is removed in either case.
    /// - Complexity: O(1) plus the evicted objects, regardless of costs.
    @discardableResult @inlinable
    public func setObject(_ object: Value, forKey key: Key, cost: Int) -> Bool {
        let key = CacheKey(key, rules)
        let object = CachedObject(object, cost: cost)
        if makeRoom(for: key, cost: cost) {
            let bytes = object.cost > 0 ? object.cost : byteCount(object.value)
            if entries.insert(object, forKey: key, cost: bytes) {
                // A limit may have been lowered in the meantime.
                trim()
                return true
            }
            accounting.strike(object.cost)
        }
        entries.removeValue(forKey: key)
        return false
    }

    /// Removes the object under `key`, if there is one.
    @inlinable
    public func removeObject(forKey key: Key) { entries.removeValue(forKey: CacheKey(key, rules)) }

    /// Removes all objects, in slices, so that no thread waits long.
    public func removeAllObjects() { entries.removeAll() }

    // MARK: Settings and limits

    /// The cache's name in reports, read at registration.
    public var name: String {
        get { settings.withLock { $0.name } }
        set { settings.withLock { $0.name = newValue } }
    }

    /// The delegate, notified of objects that the cache itself removes. Held weakly.
    public var delegate: (any MemoryCacheDelegate<Key, Value>)? {
        get { settings.withLock { $0.delegate } }
        set { settings.withLock { $0.delegate = newValue } }
    }

    /// Greatest number of objects; zero or less for no limit. Lowering the limit evicts at once.
    public var countLimit: Int {
        get { accounting.countLimit }
        set {
            accounting.countLimit = newValue
            trim()
        }
    }

    /// Greatest sum of costs; zero or less for no limit. Lowering the limit evicts at once.
    public var totalCostLimit: Int {
        get { accounting.costLimit }
        set {
            accounting.costLimit = newValue
            trim()
        }
    }

    /// True if a look-up evicts an object with discarded content and reports a miss.
    public var evictsObjectsWithDiscardedContent: Bool {
        get { evictsDiscarded.load(ordering: .relaxed) }
        set { evictsDiscarded.store(newValue, ordering: .relaxed) }
    }

    /// Number of objects.
    public var count: Int { entries.count }

    /// Sum of the stated costs.
    public var totalCost: Int { accounting.cost }

    /// Counters and sizes of the cache; `byteCount` is as in `heldBytes`.
    public var statistics: CacheStatistics {
        // The engine counts an object found discarded as a hit. The engine's counters are read later, so they include
        // at least these hits.
        let discovered = discoveries.load(ordering: .relaxed)
        var sum = entries.statistics
        sum.evictions += discovered
        sum.hits -= discovered
        sum.misses += discovered
        return sum
    }

    // MARK: Purgeable

    public var holdsAtMost: ByteCount? { totalCostLimit > 0 ? ByteCount(totalCostLimit) : nil }

    /// Sum of the stated costs, and of estimates where no cost was stated.
    public var heldBytes: Int { entries.heldBytes }

    /// Releases at least `target` bytes, coldest objects first.
    public func release(_ target: Int) -> Int { entries.release(target) }

    package func attach(_ meter: ChargeMeter) -> Bool { entries.attach(meter) }
}

// Three initialisers for one cache: `NSString` is both an object and `Hashable`, and the last initialiser resolves
// the ambiguity.

extension MemoryCache where Key: Hashable {
    /// Creates an empty cache without limits.
    ///
    /// - Parameters:
    ///   - rebuildCost: cost of making an object again.
    ///   - byteCount: bytes of an object set without a cost, used under memory pressure. By default the length of
    ///     data and text, plus 64.
    public convenience init(
        rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }
    ) {
        self.init(HashableKeys<Key>.self, rebuildCost, byteCount)
    }
}

extension MemoryCache where Key: AnyObject {
    /// Creates an empty cache without limits. Keys are compared by their dynamic type: `isEqual(_:)`, `==`, or
    /// identity.
    public convenience init(
        rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }
    ) {
        self.init(ObjectKeys<Key>.self, rebuildCost, byteCount)
    }
}

extension MemoryCache where Key: AnyObject & Hashable {
    /// Creates an empty cache without limits.
    public convenience init(
        rebuildCost: RebuildCost = .cheap, byteCount: @escaping @Sendable (Value) -> Int = { guessedByteCount($0) }
    ) {
        self.init(HashableKeys<Key>.self, rebuildCost, byteCount)
    }
}

// Makes room for new objects, and handles evicted ones.
extension MemoryCache {
    /// Admits a new object, evicting at most as many objects as were present. Without that bound, a delegate that
    /// puts evicted objects back would prolong the loop for ever.
    ///
    /// - Parameter cost: the stated cost, counted as `CacheAccounting` does.
    @usableFromInline
    func makeRoom(for key: CacheKey<Key>, cost: Int) -> Bool {
        guard accounting.couldAdmit(cost) else { return false }
        if accounting.enter(cost) { return true }
        // The cache is full. Remove the object to be replaced first; otherwise another object would be evicted
        // instead.
        entries.removeValue(forKey: key)
        for _ in 0...accounting.count {
            if accounting.enter(cost) { return true }
            guard entries.evict(count: 1) == 1 else { return false }
        }
        return false
    }

    /// Evicts until the limits hold.
    @usableFromInline
    func trim() {
        guard accounting.isOver else { return }
        for _ in 0..<accounting.count { guard accounting.isOver, entries.evict(count: 1) == 1 else { return } }
    }

    /// Returns the object. If the content was discarded, removes the object and returns `nil`.
    @usableFromInline
    func access(_ object: CachedObject<Value>, _ key: CacheKey<Key>) -> Value? {
        guard evictsObjectsWithDiscardedContent, object.discardable?.isContentDiscarded() == true else {
            return object.value
        }
        discoveries.wrappingAdd(1, ordering: .relaxed)
        // An object set under the key in the meantime is removed too: a miss like any other.
        if let removed = entries.removeValue(forKey: key) { letGo(removed) }
        return nil
    }

    func letGo(_ object: CachedObject<Value>) {
        delegate?.cache(self, willEvictObject: object.value)
        // Other code may still hold the object, so dropping the reference alone would release nothing. Discard the
        // content too.
        if evictsObjectsWithDiscardedContent { object.discardable?.discardContentIfPossible() }
    }
}

/// A delegate notified of objects that a `MemoryCache` itself removes: `NSCacheDelegate`.
public protocol MemoryCacheDelegate<Key, Value>: AnyObject, Sendable {
    associatedtype Key
    associatedtype Value

    /// Called with each object removed for a limit, under memory pressure, or because the content was discarded. Not
    /// called for objects that the program removes or replaces, nor when the cache is deallocated.
    ///
    /// Called outside every lock, on the thread that caused the removal, which may be the manager's. The delegate may
    /// use the cache in any way. The object is no longer in the cache.
    func cache(_ cache: MemoryCache<Key, Value>, willEvictObject object: Value)
}
