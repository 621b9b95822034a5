import Synchronization

/// Least recently used, as usually written: a dictionary of nodes that are objects, under one mutex.
final class NodeLRU<Key: Hashable & Sendable, Value: Weighable & Sendable>: KeyedStore {
    private let state: Mutex<State>

    init(capacity: Int) { state = Mutex(State(capacity: capacity)) }

    func value(forKey key: Key) -> Value? { state.withLock { $0.value(forKey: key) } }
    func insert(_ value: Value, forKey key: Key) { state.withLock { $0.insert(value, forKey: key) } }

    private final class Node {
        let key: Key
        var value: Value
        // The dictionary keeps the nodes alive.
        unowned(unsafe) var next: Node?
        unowned(unsafe) var previous: Node?

        init(_ key: Key, _ value: Value) {
            self.key = key
            self.value = value
        }
    }

    private struct State {
        private let capacity: Int
        private var nodes: [Key: Node] = [:]
        private var first: Node?
        private var last: Node?

        init(capacity: Int) { self.capacity = capacity }

        mutating func value(forKey key: Key) -> Value? {
            guard let node = nodes[key] else { return nil }
            moveToFront(node)
            return node.value
        }

        mutating func insert(_ value: Value, forKey key: Key) {
            if let node = nodes[key] {
                node.value = value
                return moveToFront(node)
            }
            if nodes.count >= capacity, let oldest = last {
                unlink(oldest)
                nodes.removeValue(forKey: oldest.key)
            }
            let node = Node(key, value)
            nodes[key] = node
            linkFirst(node)
        }

        private mutating func moveToFront(_ node: Node) {
            guard node !== first else { return }
            unlink(node)
            linkFirst(node)
        }

        private mutating func unlink(_ node: Node) {
            if let next = node.next { next.previous = node.previous } else { last = node.previous }
            if let previous = node.previous { previous.next = node.next } else { first = node.next }
        }

        private mutating func linkFirst(_ node: Node) {
            node.previous = nil
            node.next = first
            if let first { first.previous = node } else { last = node }
            first = node
        }
    }
}
