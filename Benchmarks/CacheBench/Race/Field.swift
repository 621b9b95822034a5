import Foundation

/// Caches with the same entries, about to be asked for the same keys.
struct Field<Key: Hashable & Sendable, Value: Weighable & Sendable> {
    let entries: [(key: Key, value: Value)]
    let capacity: Int
    let streams: [[Key]]

    /// The bare dictionary, which has no bound and is only looked into.
    func dictionary() -> any Contender {
        let store = DictionaryStore(table)
        return LocalContender("Dictionary", streams) { store.look($0) }
    }

    /// The same, which hands its values out.
    func handingDictionary() -> any Contender {
        let store = HandingDictionary(table)
        return LocalContender("Dictionary, handing out", streams) { store.look($0) }
    }

    private var table: [Key: Value] { Dictionary(entries.map { ($0.key, $0.value) }, uniquingKeysWith: { $1 }) }

    /// Everybody who only looks.
    func lookers() -> [any Contender] {
        [
            looker(ourName, PlimsollStore(capacity: capacity)), dictionary(),
            looker("LRU, linked by index", IndexLinkedLRU(capacity: capacity)),
            looker("LRU, class nodes", NodeLRU(capacity: capacity)),
        ]
    }

    /// Ours once more, lending values instead of copying them.
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
    /// Everybody who inserts what was missing.
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

    /// Everybody who writes what is there, too.
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
