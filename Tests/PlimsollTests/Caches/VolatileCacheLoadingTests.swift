import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The calls that both caches offer, for values in volatile memory.
@Suite(.serialized, .timeLimit(.minutes(5))) struct VolatileCacheLoadingTests {
    private struct Refused: Error {}

    private func cache(timeToLive: Duration? = nil, _ clock: ManualClock = ManualClock()) -> VolatileCache<Int, String> {
        VolatileCache("values", timeToLive: timeToLive, isVolatile: false, time: clock.timekeeper)
    }

    @Test func `a value has the cache's time to live, or a time of the value's own`() {
        let clock = ManualClock(), cache = cache(timeToLive: .seconds(10), clock)
        cache.insert("usual", forKey: 1)
        cache.insert("short", forKey: 2, timeToLive: .seconds(5))
        cache.insert("long", forKey: 3, timeToLive: .seconds(60))
        #expect(cache.timeToLive == .seconds(10))
        clock.advance(by: .seconds(6))
        #expect(cache.values(forKeys: [1, 2, 3]) == [1: "usual", 3: "long"] && !cache.contains(2))
        clock.advance(by: .seconds(5))
        #expect(cache.values(forKeys: [1, 2, 3]) == [3: "long"])
        clock.advance(by: .seconds(50))
        #expect(!cache.contains(3) && cache.count == 0)
    }

    @Test func `a test for a key's presence does not count as a look-up`() {
        let cache = cache()
        cache.insert("one", forKey: 1)
        #expect(cache.contains(1) && !cache.contains(2))
        #expect(cache.statistics.hits == 0 && cache.statistics.misses == 0)
        cache.removeValue(forKey: 1)
        #expect(!cache.contains(1))
    }

    @Test func `missing values are loaded by one call, in the order of the keys, and kept with their tags`() async throws {
        let cache = cache(), asked = Mutex<[[Int]]>([])
        cache.insert("one", forKey: 1)
        let load: @Sendable ([Int]) async throws -> [Int: String] = { keys in
            asked.withLock { $0.append(keys) }
            return [2: "two", 3: "three", 99: "nobody asked"]
        }
        let values = try await cache.values(forKeys: [3, 1, 2, 3, 4], tags: ["t"], orLoad: load)
        #expect(values == [1: "one", 2: "two", 3: "three"] && asked.withLock { $0 } == [[3, 2, 4]])
        #expect(cache.values(forKeys: [1, 2, 3, 4, 99]) == values)
        #expect(try await cache.values(forKeys: [1, 3], orLoad: load) == [1: "one", 3: "three"] && asked.withLock { $0.count } == 1)
        #expect(cache.purge(tag: "t") == 2 && cache.values(forKeys: [1, 2, 3]) == [1: "one"])
        await #expect(throws: Refused.self) { try await cache.values(forKeys: [7]) { _ in throw Refused() } }
        #expect(cache.statistics.loads == 1 && cache.statistics.loadFailures == 1)
    }

    @Test func `T24 a blocking thread waits for a task's load, and a task for a thread's load`() async throws {
        let cache = cache(), held = HeldLoad(), loads = Counter()
        let task = Task {
            try await cache.value(forKey: 1) {
                loads.add(1)
                await held.wait()
                return "task's"
            }
        }
        await held.isReached()
        let thread = onThread { try cache.valueBlocking(forKey: 1) { "never" } }
        await until { cache.loads.lineLength(of: 1) == 1 }
        held.open()
        #expect(try await [task.value, thread.value] == ["task's", "task's"] && loads.value == 1)

        let blockade = Blockade()
        let blocking = onThread {
            try cache.valueBlocking(forKey: 2) {
                loads.add(1)
                blockade.wait()
                return "thread's"
            }
        }
        await until { loads.value == 2 }
        let waiting = Task { try await cache.value(forKey: 2) { "never" } }
        await until { cache.loads.lineLength(of: 2) == 1 }
        blockade.open()
        #expect(try await [blocking.value, waiting.value] == ["thread's", "thread's"])
        #expect(cache.value(forKey: 2) == "thread's")
        #expect(throws: Refused.self) { try cache.valueBlocking(forKey: 3) { throw Refused() } }
        #expect(cache.statistics.loadFailures == 1)
    }

    @Test(arguments: [false, true]) func `C67 a load that began before a removal is not kept, and later callers load anew`(isAll: Bool) async throws {
        let cache = cache(), begun = Counter(), removals = Counter()
        let old = onThread {
            try cache.valueBlocking(forKey: 1) {
                begun.add(1)
                blockUntil("the key is removed") { removals.value == 1 }
                return "old"
            }
        }
        await until { begun.value == 1 }
        if isAll { cache.removeAll() } else { cache.removeValue(forKey: 1) }
        let new = onThread { try cache.valueBlocking(forKey: 1) { "new" } }
        #expect(try await new.value == "new")
        removals.add(1)
        #expect(try await old.value == "old" && cache.value(forKey: 1) == "new")
    }

    @Test func `a value inserted during a load stays, and one removed during a load of many is not kept`() async throws {
        let cache = cache()
        let loaded = try cache.valueBlocking(forKey: 1) {
            cache.insert("inserted", forKey: 1)
            return "loaded"
        }
        #expect(loaded == "loaded" && cache.value(forKey: 1) == "inserted")
        let both = try await cache.values(forKeys: [2, 3]) { _ in
            cache.removeValue(forKey: 2)
            return [2: "loaded", 3: "loaded"]
        }
        #expect(both == [2: "loaded", 3: "loaded"] && cache.values(forKeys: [2, 3]) == [3: "loaded"])
    }

    @Test func `a load is not kept after an insert during the load, whose value has been evicted`() async throws {
        let cache = cache()
        let first = try cache.valueBlocking(forKey: 1) {
            cache.insert("new", forKey: 1)
            _ = cache.release(.max)
            return "old"
        }
        #expect(first == "old" && !cache.contains(1))
        let many = try await cache.values(forKeys: [2, 3]) { _ in
            cache.insert("new", forKey: 2)
            _ = cache.release(.max)
            return [2: "old", 3: "kept"]
        }
        #expect(many == [2: "old", 3: "kept"] && cache.values(forKeys: [1, 2, 3]) == [3: "kept"])
    }
}
