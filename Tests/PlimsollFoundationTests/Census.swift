import Foundation
import PlimsollFoundation
import Synchronization

/// A count of the living objects of one test.
final class Census: Sendable {
    private let count = Atomic<Int>(0)
    var alive: Int { count.load(ordering: .relaxed) }
    fileprivate func add(_ change: Int) { count.wrappingAdd(change, ordering: .relaxed) }
}

/// An object counted while alive.
final class Citizen: NSObject, Sendable {
    let number: Int
    private let census: Census
    private let onDeath: @Sendable () -> Void

    init(_ number: Int = 0, _ census: Census = Census(), onDeath: @escaping @Sendable () -> Void = {}) {
        self.number = number
        self.census = census
        self.onDeath = onDeath
        super.init()
        census.add(1)
    }

    deinit {
        census.add(-1)
        onDeath()
    }
}

/// A delegate that records each evicted object, and then runs a closure.
final class Witness<Key, Value>: MemoryCacheDelegate {
    private let numbers = Mutex<[Int]>([])
    private let number: @Sendable (Value) -> Int
    private let act: @Sendable (MemoryCache<Key, Value>, Value) -> Void

    init(_ number: @escaping @Sendable (Value) -> Int, act: @escaping @Sendable (MemoryCache<Key, Value>, Value) -> Void = { _, _ in }) {
        self.number = number
        self.act = act
    }

    var evicted: [Int] { numbers.withLock { $0 } }

    func cache(_ cache: MemoryCache<Key, Value>, willEvictObject object: Value) {
        let number = number(object)
        numbers.withLock { $0.append(number) }
        act(cache, object)
    }
}
