import Plimsoll

/// What tables call the cache under test.
let ourName = "PurgeableCache"
/// And where it lends what is looked up, instead of handing out a reference.
let ourLendingName = "PurgeableCache, lent"

/// The cache under test, every entry at a cost of 1.
struct PlimsollStore<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    let cache: PurgeableCache<Key, Value>

    init(capacity: Int) { cache = PurgeableCache("bench", limit: ByteCount(capacity), cost: { _, _ in 1 }) }

    @inline(__always)
    func value(forKey key: Key) -> Value? { cache.value(forKey: key) }

    @inline(__always)
    func insert(_ value: Value, forKey key: Key) { cache.insert(value, forKey: key) }

    /// Asks for each key and borrows its value.
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
