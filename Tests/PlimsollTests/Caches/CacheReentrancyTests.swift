import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// T2: client code that the cache calls may call every method of the cache on the same thread.
@Suite struct CacheReentrancyTests {
    /// An object whose deinit calls a closure.
    final class Caller: Hashable, Sendable {
        let number: Int
        let call: @Sendable () -> Void

        init(_ number: Int, _ call: @escaping @Sendable () -> Void = {}) { (self.number, self.call) = (number, call) }
        deinit { call() }
        static func == (left: Caller, right: Caller) -> Bool { left.number == right.number }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    typealias Cache = PurgeableCache<Caller, Caller>

    /// Holds the cache for closures that are created before the cache.
    final class Place: Sendable {
        private let cache = Mutex<Cache?>(nil)
        private let depth = Atomic<Int>(0)
        let calls = Counter()

        func set(_ cache: Cache?) { self.cache.withLock { $0 = cache } }

        /// Calls every method of the cache, unless such a call is under way.
        func callEverything() {
            guard let cache = cache.withLock({ $0 }), depth.exchange(1, ordering: .relaxed) == 0 else { return }
            defer { depth.store(0, ordering: .relaxed) }
            calls.add(1)
            let key = Caller(7 + calls.value % 3), other = Caller(calls.value % 50)
            cache.insert(Caller(1), forKey: key, cost: 1, tags: ["again"])
            cache.insert(Caller(2), forKey: other, cost: 30, timeToLive: calls.value % 4 == 0 ? .zero : nil)
            _ = (cache.value(forKey: key), cache.withValue(forKey: key) { $0.number }, cache.count, cache.byteCount, cache.statistics)
            _ = (cache.pin(key), cache.unpin(key), cache.count(tag: "again"))
            cache.purge(tag: "again")
            cache.removeValue(forKey: other)
            _ = cache.release(3)
            cache.evict(count: 1)
            cache.limit = cache.limit
            if calls.value % 10 == 0 { cache.removeAll() }
        }
    }

    /// Performs every operation that adds or removes entries.
    private func exercise(_ cache: Cache, _ make: @escaping @Sendable (Int) -> Caller) async throws {
        for number in 0..<700 { cache.insert(make(number), forKey: make(number), tags: number % 5 == 0 ? ["fifth"] : []) }
        for number in 0..<300 { cache.insert(make(number), forKey: make(number), cost: number % 7) }
        for number in 0..<50 { _ = (cache.value(forKey: make(number)), cache.removeValue(forKey: make(number + 20))) }
        _ = cache.release(100)
        cache.purge(tag: "fifth")
        cache.limit = .bytes(200)
        cache.limit = .bytes(2000)
        cache.insert(make(1), forKey: make(1), timeToLive: .zero)
        _ = (cache.value(forKey: make(1)), cache.evict(count: 3))
        #expect(!cache.insert(make(2), forKey: make(2), cost: 2001))
        for number in 1000..<1600 { cache.insert(make(number), forKey: make(number)) }
        let value = try await cache.value(forKey: make(5000)) { make(5) }
        #expect(value.number == 5)
        cache.removeAll()
    }

    @Test(arguments: [1, 64]) func `T2 listeners may use the cache`(shards: Int) async throws {
        let place = Place(), cache = Cache("listener", limit: .bytes(2000), shardCount: shards, cost: { _, _ in 1 })
        place.set(cache)
        cache.onRemoval { _, _, _ in place.callEverything() }
        try await exercise(cache) { Caller($0) }
        #expect(place.calls.value > 50)
        place.set(nil)
    }

    @Test(arguments: [1, 64]) func `T2 deinits of keys and values may use the cache`(shards: Int) async throws {
        let place = Place(), cache = Cache("deinit", limit: .bytes(2000), shardCount: shards, cost: { _, _ in 1 })
        place.set(cache)
        try await exercise(cache) { Caller($0) { place.callEverything() } }
        #expect(place.calls.value > 50)
        place.set(nil)
    }

    @Test(arguments: [1, 64]) func `T2 costs and loads may use the cache`(shards: Int) async throws {
        let place = Place()
        let cache = Cache("cost", limit: .bytes(2000), shardCount: shards) { _, _ in
            place.callEverything()
            return 1
        }
        place.set(cache)
        try await exercise(cache) { Caller($0) }
        #expect(place.calls.value > 50)
        let loaded = try await cache.value(forKey: Caller(9000)) {
            place.callEverything()
            return try await cache.value(forKey: Caller(9001)) {
                place.callEverything()
                return Caller(9)
            }
        }
        #expect(loaded.number == 9)
        place.set(nil)
    }

    @Test(arguments: [1, 64]) func `T2 listeners that put back each removed entry do not run for ever`(shards: Int) {
        let cache = PurgeableCache<Int, String>("stubborn", shardCount: shards, cost: { _, _ in 1 })
        for key in 0..<3000 { cache.insert("\(key)", forKey: key, tags: ["all"]) }
        let received = Counter()
        cache.onRemoval { [weak cache] key, value, reason in
            received.add(1)
            // Inserts more entries than were removed, up to a limit that ends a possible loop.
            guard let cache, received.value < 100_000 else { return }
            cache.insert(value, forKey: key, tags: ["all"])
            cache.insert(value, forKey: 100_000 + received.value)
        }
        #expect(cache.release(.max) == 3000 && received.value == 3000)
        #expect(cache.purge(tag: "all") >= 3000)
        let before = received.value
        cache.removeAll()
        #expect(received.value < 100_000 && received.value - before >= 3000)
    }
}
