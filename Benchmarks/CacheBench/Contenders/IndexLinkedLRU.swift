import Synchronization

/// Least recently used, as written for speed: a dictionary of indices into arrays, linked by index, under one mutex.
final class IndexLinkedLRU<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    private let state: Mutex<State>

    init(capacity: Int) { state = Mutex(State(capacity: capacity)) }

    func value(forKey key: Key) -> Value? { state.withLock { $0.value(forKey: key) } }
    func insert(_ value: Value, forKey key: Key) { state.withLock { $0.insert(value, forKey: key) } }

    private struct State {
        private let capacity: Int
        private var places: [Key: Int32] = [:]
        // Place 0 is the ring's head: the next place has the entry used last, the previous place the entry to be
        // evicted first.
        private var keys: [Key?] = [nil]
        private var values: [Value?] = [nil]
        private var next: [Int32] = [0]
        private var previous: [Int32] = [0]

        init(capacity: Int) { self.capacity = capacity }

        mutating func value(forKey key: Key) -> Value? {
            guard let place = places[key] else { return nil }
            unlink(place)
            linkFirst(place)
            return values[Int(place)]
        }

        mutating func insert(_ value: Value, forKey key: Key) {
            if let place = places[key] {
                values[Int(place)] = value
                unlink(place)
                return linkFirst(place)
            }
            var place = Int32(keys.count)
            if places.count < capacity {
                keys.append(key)
                values.append(value)
                next.append(0)
                previous.append(0)
            } else {
                place = previous[0]
                unlink(place)
                if let oldest = keys[Int(place)] { places.removeValue(forKey: oldest) }
                keys[Int(place)] = key
                values[Int(place)] = value
            }
            places[key] = place
            linkFirst(place)
        }

        private mutating func unlink(_ place: Int32) {
            let (before, after) = (previous[Int(place)], next[Int(place)])
            next[Int(before)] = after
            previous[Int(after)] = before
        }

        private mutating func linkFirst(_ place: Int32) {
            let first = next[0]
            next[Int(place)] = first
            previous[Int(place)] = 0
            previous[Int(first)] = place
            next[0] = place
        }
    }
}
