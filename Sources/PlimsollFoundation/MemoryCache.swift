public import Plimsoll
import Synchronization

/// `NSCache` for Linux: the same calls, correct, and giving way under memory pressure.
///
/// ```swift
/// let thumbnails = MemoryCache<NSString, NSData>()
/// thumbnails.totalCostLimit = 64 << 20
/// manager.register(thumbnails)
/// thumbnails.setObject(data, forKey: "7", cost: data.length)
/// ```
///
/// Keys are objects, compared by `isEqual(_:)` if they are `NSObject`, by `==` if they are `Hashable`, else by identity; or anything `Hashable`, such as `String`
/// and `UUID`. They are not copied: one that changes meanwhile is not found. Values are objects or anything else.
///
/// What has not been asked for lately leaves first (S3-FIFO, as in `PurgeableCache`), an object just set stays, and no limit is exceeded when a call returns.
///
/// *Threads*: any may call anything. That an object can be used on the thread that gets it is up to whoever set it, as with `NSCache`. Objects are released,
/// and the delegate is called, after every lock. Only the keys' `isEqual(_:)` or `==` run under one: they must not use the cache.
public final class MemoryCache<Key, Value>: CountingPurgeable, PromptPurgeable {
    public let rebuildCost: RebuildCost

    @usableFromInline let entries: PurgeableCache<CacheKey<Key>, CachedObject<Value>>
    @usableFromInline let rules: any KeyRules<Key>.Type
    @usableFromInline let byteCount: @Sendable (Value) -> Int

    // What is mutable and what guards it: limits and sums the mutex in `books`, name and delegate `settings`; the relaxed atomics publish nothing else.
    @usableFromInline let books = CacheBooks()
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
        entries = PurgeableCache("MemoryCache", rebuildCost: rebuildCost)
        entries.onRemoval { [books, weak self] _, object, reason in
            books.strike(object.cost)
            if reason == .evicted || reason == .purged { self?.letGo(object) }
        }
    }

    // MARK: Objects

    /// The object under `key`, which thereby counts as used; `nil` if there is none.
    ///
    /// - Complexity: O(1), and one look at an object that is `DiscardableContent`.
    @inlinable
    public func object(forKey key: Key) -> Value? {
        let key = CacheKey(key, rules)
        guard let object = entries.value(forKey: key) else { return nil }
        return object.isDiscardable ? look(at: object, key) : object.value
    }

    /// Keeps `object` under `key` at no cost, in place of what was there.
    ///
    /// - Returns: whether it is kept; see `setObject(_:forKey:cost:)`.
    @discardableResult @inlinable
    public func setObject(_ object: Value, forKey key: Key) -> Bool { setObject(object, forKey: key, cost: 0) }

    /// Keeps `object` under `key`, in place of what was there, and evicts what is least worth keeping until all fits.
    ///
    /// - Parameters:
    ///   - object: what is kept.
    ///   - key: what it is looked up by.
    ///   - cost: what counts toward `totalCostLimit`, and as bytes under memory pressure; negative is zero. At zero the object's bytes are guessed for
    ///     pressure, and count toward no limit.
    /// - Returns: whether it is kept. One that costs more than `totalCostLimit`, or for which memory has no room even in place of all the others, is not;
    ///   what was under `key` has gone nonetheless, as it is out of date.
    /// - Complexity: O(1) and what is evicted, whatever the costs.
    @discardableResult @inlinable
    public func setObject(_ object: Value, forKey key: Key, cost: Int) -> Bool {
        let key = CacheKey(key, rules)
        let object = CachedObject(object, cost: cost)
        if makeRoom(for: key, cost: cost) {
            let bytes = object.cost > 0 ? object.cost : byteCount(object.value)
            if entries.insert(object, forKey: key, cost: bytes) {
                // A limit may have been lowered meanwhile.
                trim()
                return true
            }
            books.strike(object.cost)
        }
        entries.removeValue(forKey: key)
        return false
    }

    /// Takes out what is under `key`, if anything.
    @inlinable
    public func removeObject(forKey key: Key) { entries.removeValue(forKey: CacheKey(key, rules)) }

    /// Takes out everything, in slices, so that nobody waits long.
    public func removeAllObjects() { entries.removeAll() }

    // MARK: Settings and limits

    /// How reports name it from its registration on.
    public var name: String {
        get { settings.withLock { $0.name } }
        set { settings.withLock { $0.name = newValue } }
    }

    /// Hears of what the cache lets go of by itself. Not kept alive.
    public var delegate: (any MemoryCacheDelegate<Key, Value>)? {
        get { settings.withLock { $0.delegate } }
        set { settings.withLock { $0.delegate = newValue } }
    }

    /// Greatest number of objects; zero, or less, for no limit. Lowering it evicts at once.
    public var countLimit: Int {
        get { books.countLimit }
        set {
            books.countLimit = newValue
            trim()
        }
    }

    /// Bound of the sum of costs; zero, or less, for no limit. Lowering it evicts at once.
    public var totalCostLimit: Int {
        get { books.costLimit }
        set {
            books.costLimit = newValue
            trim()
        }
    }

    /// Whether an object whose content has been discarded is evicted, and reported missing, when it is asked for.
    public var evictsObjectsWithDiscardedContent: Bool {
        get { evictsDiscarded.load(ordering: .relaxed) }
        set { evictsDiscarded.store(newValue, ordering: .relaxed) }
    }

    /// Number of objects.
    public var count: Int { entries.count }

    /// Sum of the costs that were stated.
    public var totalCost: Int { books.cost }

    /// What the cache has done and holds; `byteCount` as in `heldBytes`.
    public var statistics: CacheStatistics {
        // To the engine what is found discarded is a hit. Asked later, it has at least as many.
        let discovered = discoveries.load(ordering: .relaxed)
        var sum = entries.statistics
        sum.evictions += discovered
        sum.hits -= discovered
        sum.misses += discovered
        return sum
    }

    // MARK: Purgeable

    public var holdsAtMost: ByteCount? { totalCostLimit > 0 ? ByteCount(totalCostLimit) : nil }

    /// Sum of the costs, and of guesses where none was stated.
    public var heldBytes: Int { entries.heldBytes }

    /// Lets go of at least `target` bytes, coldest first.
    public func release(_ target: Int) -> Int { entries.release(target) }

    public func attach(_ meter: ChargeMeter) -> Bool { entries.attach(meter) }
}
