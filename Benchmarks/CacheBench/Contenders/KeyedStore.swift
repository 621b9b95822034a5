/// The operations of all contenders in this process. Loops over a store are specialized for each store.
protocol KeyedStore: Sendable {
    associatedtype Key: Sendable
    associatedtype Value: Weighable

    func value(forKey key: Key) -> Value?
    func insert(_ value: Value, forKey key: Key)
}

/// A value that a benchmark reads.
protocol Weighable {
    var weight: Int { get }
}

extension UInt64: Weighable { var weight: Int { Int(truncatingIfNeeded: self) } }
extension String: Weighable { var weight: Int { utf8.count } }

/// A value that is an object.
final class Item: Weighable, Sendable {
    let weight: Int
    init(_ weight: Int) { self.weight = weight }
}

extension KeyedStore {
    /// Requests each key.
    @inline(__always)
    func look(_ keys: UnsafeBufferPointer<Key>) -> (hits: Int, weight: Int) {
        var hits = 0, weight = 0
        for key in keys {
            guard let value = value(forKey: key) else { continue }
            hits += 1
            weight &+= value.weight
        }
        return (hits, weight)
    }

    /// Requests each key and inserts missing keys.
    @inline(__always)
    func lookOrInsert(_ keys: UnsafeBufferPointer<Key>) -> (hits: Int, weight: Int) where Key == Value {
        var hits = 0, weight = 0
        for key in keys {
            if let value = value(forKey: key) {
                hits += 1
                weight &+= value.weight
            } else {
                insert(key, forKey: key)
            }
        }
        return (hits, weight)
    }

    /// Requests three keys and writes the fourth.
    @inline(__always)
    func lookAndWrite(_ keys: UnsafeBufferPointer<Key>) -> (hits: Int, weight: Int) where Key == Value {
        var hits = 0, weight = 0
        for (number, key) in keys.enumerated() {
            if number % 4 == 3 {
                insert(key, forKey: key)
            } else if let value = value(forKey: key) {
                hits += 1
                weight &+= value.weight
            }
        }
        return (hits, weight)
    }
}
