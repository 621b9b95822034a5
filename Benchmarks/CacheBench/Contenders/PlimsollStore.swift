import Plimsoll

/// The name of the cache under test in tables.
let ourName = "PurgeableCache"
/// The name in races where the cache lends values instead of handing out references.
let ourLendingName = "PurgeableCache, lent"

/// The cache under test, every entry at a cost of 1.
struct PlimsollStore<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    let cache: PurgeableCache<Key, Value>

    init(capacity: Int) { cache = PurgeableCache("bench", limit: ByteCount(capacity), cost: { _, _ in 1 }) }

    @inline(__always)
    func value(forKey key: Key) -> Value? { cache.value(forKey: key) }

    @inline(__always)
    func insert(_ value: Value, forKey key: Key) { cache.insert(value, forKey: key) }

    /// Requests each key and borrows the value.
    @inline(__always)
    func borrow(_ keys: UnsafeBufferPointer<Key>) -> (hits: Int, weight: Int) {
        var hits = 0, weight = 0
        for key in keys {
            guard let borrowed = cache.withValue(forKey: key, { $0.weight }) else { continue }
            hits += 1
            weight &+= borrowed
        }
        return (hits, weight)
    }
}
