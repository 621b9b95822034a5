/// A bare `Dictionary`, no lock and no bound, filled once: the yardstick of a look-up.
struct DictionaryStore<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    private let values: [Key: Value]

    init(_ values: [Key: Value]) { self.values = values }

    @inline(__always)
    func value(forKey key: Key) -> Value? { values[key] }

    func insert(_ value: Value, forKey key: Key) { preconditionFailure("the bare dictionary is only read") }
}

/// The same, but each value is handed out with a reference of the caller's own, as by anything that may let go of it meanwhile: what no cache of objects can go below.
/// Inlined, the optimizer sees that the dictionary keeps its values, and never touches them.
struct HandingDictionary<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    private let store: DictionaryStore<Key, Value>

    init(_ values: [Key: Value]) { store = DictionaryStore(values) }

    @inline(never)
    func value(forKey key: Key) -> Value? { store.value(forKey: key) }

    func insert(_ value: Value, forKey key: Key) { store.insert(value, forKey: key) }
}
