import Plimsoll

/// A real cache whose load time is given, because loads are counted and not slept.
final class TimedCache<Value: Sendable>: SharedPurgeable {
    let cache: PurgeableCache<UInt64, Value>
    private let loadTime: Double

    /// - Parameters:
    ///   - loadTime: nanoseconds.
    ///   - cost: bytes of an entry.
    init(_ name: String, loadTime: Double, cost: @escaping @Sendable (UInt64, Value) -> Int) {
        cache = PurgeableCache(name, shardCount: 8, cost: cost)
        self.loadTime = loadTime
    }

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
