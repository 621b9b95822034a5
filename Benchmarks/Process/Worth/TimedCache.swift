import Plimsoll

/// A real cache whose load time is given, because loads are counted and not slept.
protocol TimedPurgeable: SharedPurgeable {
    associatedtype Cache: SharedPurgeable

    var cache: Cache { get }

    /// Nanoseconds.
    var loadTime: Double { get }
}

extension TimedPurgeable {
    var name: String { cache.name }
    var rebuildCost: RebuildCost { .cheap }
    var heldBytes: Int { cache.heldBytes }
    var holdsAtMost: ByteCount? { nil }
    var statistics: CacheStatistics { cache.statistics }
    func release(_ target: Int) -> Int { cache.release(target) }
    func attach(_ meter: ChargeMeter) -> Bool { cache.attach(meter) }
    func learn(onRound: (@Sendable () -> Void)?) { cache.learn(onRound: onRound) }
    func setShare(_ bytes: Int?) { cache.setShare(bytes) }
    func evictAboveShare(_ count: Int) -> Int { cache.evictAboveShare(count) }
    func endRound(upTo bytes: Int, at now: Duration) -> Learnt? {
        guard var learnt = cache.endRound(upTo: bytes, at: now) else { return nil }
        learnt.loadTime = loadTime
        return learnt
    }
}

/// A cache that a stream of keys and sizes can be run on.
protocol TimedMember: TimedPurgeable {
    /// Returns true if the cache has the key, which thereby counts as used.
    func has(_ key: UInt64) -> Bool

    /// Keeps an entry of so many bytes.
    func keep(_ key: UInt64, bytes: Int)
}

/// A cache on the heap.
final class TimedCache<Value: Sendable>: TimedPurgeable {
    let cache: PurgeableCache<UInt64, Value>
    let loadTime: Double

    /// - Parameters:
    ///   - loadTime: nanoseconds.
    ///   - cost: bytes of an entry.
    init(_ name: String, loadTime: Double, cost: @escaping @Sendable (UInt64, Value) -> Int) {
        cache = PurgeableCache(name, shardCount: 8, cost: cost)
        self.loadTime = loadTime
    }
}

extension TimedCache: TimedMember where Value == UInt64 {
    func has(_ key: UInt64) -> Bool { cache.value(forKey: key) != nil }
    func keep(_ key: UInt64, bytes: Int) { cache.insert(UInt64(bytes), forKey: key) }
}

/// A cache in volatile memory, whose entries have real bytes.
final class TimedVolatileCache: TimedMember, VolatilePurgeable {
    let cache: VolatileCache<UInt64, [UInt8]>
    let loadTime: Double

    /// - Parameter loadTime: nanoseconds.
    init(_ name: String, loadTime: Double) {
        cache = VolatileCache(name)
        self.loadTime = loadTime
    }

    var volatileBytes: Int { cache.volatileBytes }
    func attach(volatile meter: ChargeMeter) { cache.attach(volatile: meter) }
    func noticeDrops() -> Int { cache.noticeDrops() }
    func giveBackIdle() { cache.giveBackIdle() }

    func has(_ key: UInt64) -> Bool { cache.withBytes(forKey: key) { _ in true } ?? false }
    func keep(_ key: UInt64, bytes: Int) { cache.insert([UInt8](repeating: 1, count: bytes), forKey: key) }
}
