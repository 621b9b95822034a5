import Foundation

/// Caches with the same entries, before requests for the same keys.
struct Field<Key: Hashable & Sendable, Value: Weighable & Sendable> {
    let entries: [(key: Key, value: Value)]
    let capacity: Int
    let streams: [[Key]]

    /// Returns the bare dictionary, which has no bound and is only read.
    func dictionary() -> any Contender {
        let store = DictionaryStore(table)
        return LocalContender("Dictionary", streams) { store.look($0) }
    }

    /// Returns the same, handing its values out.
    func handingDictionary() -> any Contender {
        let store = HandingDictionary(table)
        return LocalContender("Dictionary, handing out", streams) { store.look($0) }
    }

    private var table: [Key: Value] { Dictionary(entries.map { ($0.key, $0.value) }, uniquingKeysWith: { $1 }) }

    /// Returns the contenders that only look up.
    func lookers() -> [any Contender] {
        [
            looker(ourName, PlimsollStore(capacity: capacity)), dictionary(),
            looker("LRU, linked by index", IndexLinkedLRU(capacity: capacity)),
            looker("LRU, class nodes", NodeLRU(capacity: capacity)),
        ]
    }

    /// Returns the cache under test, lending values instead of copying them.
    func borrower() -> any Contender {
        let store = PlimsollStore<Key, Value>(capacity: capacity)
        fill(store)
        return LocalContender(ourLendingName, streams) { store.borrow($0) }
    }

    func looker<Store: KeyedStore>(_ name: String, _ store: Store) -> any Contender
    where Store.Key == Key, Store.Value == Value {
        fill(store)
        return LocalContender(name, streams) { store.look($0) }
    }

    func fill<Store: KeyedStore>(_ store: Store) where Store.Key == Key, Store.Value == Value {
        for entry in entries { store.insert(entry.value, forKey: entry.key) }
    }
}

extension Field where Key == Value {
    /// Returns the contenders that insert missing keys.
    func inserters() -> [any Contender] {
        [
            inserter(ourName, PlimsollStore(capacity: capacity)),
            inserter("LRU, linked by index", IndexLinkedLRU(capacity: capacity)),
            inserter("LRU, class nodes", NodeLRU(capacity: capacity)),
        ]
    }

    func inserter<Store: KeyedStore>(_ name: String, _ store: Store) -> any Contender
    where Store.Key == Key, Store.Value == Value {
        fill(store)
        return LocalContender(name, streams) { store.lookOrInsert($0) }
    }

    /// Returns the contenders that also overwrite existing keys.
    func writers() -> [any Contender] {
        [
            writer(ourName, PlimsollStore(capacity: capacity)),
            writer("LRU, linked by index", IndexLinkedLRU(capacity: capacity)),
            writer("LRU, class nodes", NodeLRU(capacity: capacity)),
        ]
    }

    func writer<Store: KeyedStore>(_ name: String, _ store: Store) -> any Contender
    where Store.Key == Key, Store.Value == Value {
        fill(store)
        return LocalContender(name, streams) { store.lookAndWrite($0) }
    }
}
