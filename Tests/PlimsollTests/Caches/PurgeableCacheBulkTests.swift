import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Calls for many keys at once.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PurgeableCacheBulkTests {
    struct Broken: Error {}

    private func cache() -> PurgeableCache<Int, String> { PurgeableCache("bulk", shardCount: 4, cost: { _, value in value.utf8.count }) }

    @Test func `present values are returned, and each key is counted once`() {
        let cache = cache()
        cache.insert("a", forKey: 1)
        cache.insert("b", forKey: 2)
        #expect(cache.values(forKeys: [1, 2, 3, 1, 3]) == [1: "a", 2: "b"])
        #expect(cache.values(forKeys: EmptyCollection()) == [:])
        #expect(cache.statistics.hits == 2 && cache.statistics.misses == 1)
    }

    @Test func `one call loads the missing keys, and a key without a value is absent`() async throws {
        let cache = cache(), asked = Log<[Int]>()
        cache.insert("old", forKey: 2)
        let values = try await cache.values(forKeys: [5, 2, 1, 5, 9], tags: ["t"]) { keys in
            asked.add(keys)
            return [5: "5", 1: "1", 100: "nobody asked"]
        }
        #expect(values == [5: "5", 2: "old", 1: "1"] && asked.all == [[5, 1, 9]])
        #expect(cache.count == 3 && cache.count(tag: "t") == 2 && cache.value(forKey: 9) == nil && cache.value(forKey: 100) == nil)
        #expect(cache.loads.lineLength(of: 9) == nil && cache.statistics.loads == 1)
        let again = try await cache.values(forKeys: [1, 2]) { keys in
            asked.add(keys)
            return [:]
        }
        #expect(again == [1: "1", 2: "old"] && asked.all.count == 1)
    }

    @Test func `T24 a bulk load waits for others' loads, and others wait for the bulk load`() async throws {
        let cache = cache(), single = HeldLoad(), many = HeldLoad(), asked = Log<[Int]>()
        let other = Task {
            try await cache.value(forKey: 1) {
                await single.wait()
                return "one"
            }
        }
        await single.isReached()
        let bulk = Task {
            try await cache.values(forKeys: [1, 2, 3, 4]) { keys in
                asked.add(keys)
                await many.wait()
                return [2: "two", 3: "three"]
            }
        }
        await many.isReached()
        let second = Task {
            try await cache.values(forKeys: [2, 4, 5]) { keys in
                asked.add(keys)
                return [5: "five"]
            }
        }
        let thread = onThread { try cache.valueBlocking(forKey: 3) { "never" } }
        // The bulk load gives no value for key 4, so that a caller of that key alone has to load.
        let alone = Task { try await cache.value(forKey: 4) { "four" } }
        await cache.hasLine(1, for: 3)
        await cache.hasLine(2, for: 4)
        await cache.hasLine(1, for: 2)
        single.open()
        #expect(try await other.value == "one")
        many.open()
        #expect(try await bulk.value == [1: "one", 2: "two", 3: "three"])
        #expect(try await second.value == [2: "two", 5: "five"])
        #expect(try await thread.value == "three")
        #expect(try await alone.value == "four")
        #expect(asked.all.map { $0.sorted() } == [[2, 3, 4], [5]])
    }

    @Test func `an error fails all waiting callers, and loads of other keys go on`() async throws {
        let cache = cache(), held = HeldLoad(), other = HeldLoad()
        let single = Task {
            try await cache.value(forKey: 9) {
                await other.wait()
                try Task.checkCancellation()
                return "never"
            }
        }
        await other.isReached()
        let bulk = Task {
            try await cache.values(forKeys: [1, 2, 9]) { _ in
                await held.wait()
                throw Broken()
            }
        }
        await held.isReached()
        let waiting = onThread { try cache.valueBlocking(forKey: 2) { "never" } }
        await cache.hasLine(1, for: 2)
        held.open()
        await #expect(throws: Broken.self) { try await bulk.value }
        await #expect(throws: Broken.self) { try await waiting.value }
        // The bulk load still waits in the line of key 9, although its load has failed.
        let next = onThread { try cache.valueBlocking(forKey: 9) { "nine" } }
        await cache.hasLine(2, for: 9)
        single.cancel()
        other.open()
        #expect(try await next.value == "nine")
        #expect((1...9).allSatisfy { cache.loads.lineLength(of: $0) == nil } && cache.statistics.loadFailures == 2)
    }

    @Test func `a cancelled bulk load goes to the waiting callers, key by key`() async throws {
        let cache = cache(), held = HeldLoad()
        let bulk = Task {
            try await cache.values(forKeys: [1, 2]) { _ in
                await held.wait()
                try Task.checkCancellation()
                return [:]
            }
        }
        await held.isReached()
        let one = onThread { try cache.valueBlocking(forKey: 1) { "one" } }, two = Task { try await cache.value(forKey: 2) { "two" } }
        let both = Task { try await cache.values(forKeys: [2, 1]) { _ in ["never"].reduce(into: [:]) { $0[0] = $1 } } }
        await cache.hasLine(2, for: 1)
        await cache.hasLine(2, for: 2)
        bulk.cancel()
        held.open()
        await #expect(throws: CancellationError.self) { try await bulk.value }
        #expect(try await one.value == "one")
        #expect(try await two.value == "two")
        let values = try await both.value
        // A bulk load that is passed over asks again: during the other caller's load, or after that load.
        #expect(values == [1: "one", 2: "two"])
    }

    @Test func `bulk loads that wait for each other's keys, with all leaders cancelled, do not wait for ever`() async throws {
        let cache = cache(), held = HeldLoad()
        let leaders = [1, 2].map { key in
            Task {
                try await cache.value(forKey: key) {
                    await held.wait()
                    try Task.checkCancellation()
                    return "never"
                }
            }
        }
        await until { held.begun.value >= 2 }
        let calls = Counter()
        @Sendable func load(_ keys: [Int]) -> [Int: String] {
            calls.add(1)
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, "\($0)") })
        }
        let forth = Task { try await cache.values(forKeys: [1, 2]) { keys in load(keys) } }
        await cache.hasLine(1, for: 2)
        let back = Task { try await cache.values(forKeys: [2, 1]) { keys in load(keys) } }
        await cache.hasLine(2, for: 1)
        for leader in leaders { leader.cancel() }
        held.open()
        #expect(try await forth.value == [1: "1", 2: "2"])
        #expect(try await back.value == [1: "1", 2: "2"])
        #expect(calls.value >= 1 && calls.value <= 4)
        for leader in leaders { await #expect(throws: CancellationError.self) { try await leader.value } }
    }

    @Test func `a caller cancelled in the wait for others stops`() async throws {
        let cache = cache(), held = HeldLoad()
        let other = Task {
            try await cache.value(forKey: 1) {
                await held.wait()
                return "one"
            }
        }
        await held.isReached()
        let bulk = Task { try await cache.values(forKeys: [1, 2]) { _ in [2: "two"] } }
        await cache.hasLine(1, for: 1)
        bulk.cancel()
        await #expect(throws: CancellationError.self) { try await bulk.value }
        held.open()
        #expect(try await other.value == "one")
    }

    @Test func `C67 a bulk load under a tag keeps nothing if the tag is purged meanwhile`() async throws {
        let cache = cache(), held = HeldLoad()
        let bulk = Task {
            try await cache.values(forKeys: [1, 2], tags: ["t"]) { _ in
                await held.wait()
                return [1: "old", 2: "old"]
            }
        }
        await held.isReached()
        cache.purge(tag: "t")
        #expect(try await cache.value(forKey: 1) { "new" } == "new")
        held.open()
        #expect(try await bulk.value == [1: "old", 2: "old"])
        #expect(cache.value(forKey: 1) == "new" && cache.value(forKey: 2) == nil)
    }
}
