import Plimsoll

/// What tables call the cache under test.
let ourName = "PurgeableCache"

/// The cache under test, every entry at a cost of 1.
struct PlimsollStore<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    let cache: PurgeableCache<Key, Value>

    init(capacity: Int) { cache = PurgeableCache("bench", limit: ByteCount(capacity), cost: { _, _ in 1 }) }

    @inline(__always)
    func value(forKey key: Key) -> Value? { cache.value(forKey: key) }

    @inline(__always)
    func insert(_ value: Value, forKey key: Key) { cache.insert(value, forKey: key) }
}
