/// A bare `Dictionary` without lock or bound, filled once: the baseline of a look-up.
struct DictionaryStore<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    private let values: [Key: Value]

    init(_ values: [Key: Value]) { self.values = values }

    @inline(__always)
    func value(forKey key: Key) -> Value? { values[key] }

    func insert(_ value: Value, forKey key: Key) { preconditionFailure("the bare dictionary is only read") }
}

/// The same, but each value is handed out with a separate reference for the caller, as in any store that may drop the
/// value meanwhile: the lower bound for caches of objects. With inlining, the optimizer sees that the dictionary keeps
/// the values, and never touches their reference counts.
struct HandingDictionary<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    private let store: DictionaryStore<Key, Value>

    init(_ values: [Key: Value]) { store = DictionaryStore(values) }

    @inline(never)
    func value(forKey key: Key) -> Value? { store.value(forKey: key) }

    func insert(_ value: Value, forKey key: Key) { store.insert(value, forKey: key) }
}
