import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

@Suite struct PurgeableCacheTests {
    func cache(_ limit: Int = 1000, shards: Int = 1) -> PurgeableCache<Int, String> {
        PurgeableCache("test", limit: .bytes(limit), shardCount: shards, cost: { _, value in value.utf8.count })
    }

    @Test func `values are returned, replaced and removed`() {
        let cache = cache()
        #expect(cache.insert("one", forKey: 1) && cache.insert("two", forKey: 2))
        #expect(cache.value(forKey: 1) == "one" && cache.value(forKey: 3) == nil)
        cache.insert("three", forKey: 1)
        #expect(cache.value(forKey: 1) == "three" && cache.byteCount == 8 && cache.count == 2)
        #expect(cache.removeValue(forKey: 1) == "three" && cache.removeValue(forKey: 1) == nil)
        cache.removeAll()
        #expect(cache.count == 0 && cache.byteCount == .zero)
        let statistics = cache.statistics
        #expect(statistics.hits == 2 && statistics.misses == 1 && statistics.evictions == 0 && statistics.hitRatio > 0.66)
    }

    @Test func `T26 a refused value changes nothing`() {
        let cache = cache(10)
        cache.insert("123456789", forKey: 1)
        #expect(!cache.insert("12345678901", forKey: 2), "larger than the whole cache")
        #expect(!cache.insert("x", forKey: 2, cost: -1) && !cache.insert("x", forKey: 2, cost: Int.min))
        #expect(!cache.insert("x", forKey: 2, cost: Int.max))
        #expect(cache.value(forKey: 1) == "123456789" && cache.byteCount == 9)
        #expect(cache.insert("", forKey: 3), "a cost of nothing is a cost")
    }

    @Test(arguments: [(1, 32), (128, 4096), (129, 4096), (4096, 4096)] as [(Int, Int)])
    func `a cache splits into 32 shards for each core, and on a large machine into as many as a cache may have`(
        processors: Int, shards: Int
    ) {
        #expect(PurgeableCache<Int, Int>.usualShards(processors: processors) == shards)
    }

    @Test func `a limit of zero admits only entries of zero cost`() {
        let cache = cache(0)
        #expect(!cache.insert("x", forKey: 1) && cache.insert("", forKey: 2))
    }

    @Test func `the bound holds after every random operation`() {
        for seed in seeds(0..<50) {
            var random = SeededGenerator(seed: seed)
            let cache = cache(500, shards: 4)
            var model: [Int: String] = [:]
            for _ in 0..<2000 {
                let key = Int.random(in: 0..<100, using: &random)
                switch Int.random(in: 0..<20, using: &random) {
                case 0..<12:
                    let value = String(repeating: "v", count: Int.random(in: 0...60, using: &random))
                    if cache.insert(value, forKey: key) { model[key] = value }
                case 12..<17:
                    if let value = cache.value(forKey: key) { #expect(value == model[key], "seed \(seed)") }
                case 17: cache.removeValue(forKey: key)
                case 18: _ = cache.release((Int.random(in: 0...100, using: &random)))
                default: cache.limit = .bytes(Int.random(in: 100...500, using: &random))
                }
                #expect(cache.byteCount <= cache.limit.bytes, "seed \(seed)")
            }
            let left = (0..<100).compactMap { cache.value(forKey: $0) }
            #expect(left.count == cache.count && left.reduce(0) { $0 + $1.utf8.count } == cache.byteCount, "seed \(seed)")
        }
    }

    @Test func `entries requested again outlive a scan`() {
        let cache = cache(1000)
        for key in 0..<50 { cache.insert("0123456789", forKey: key) }
        for key in 0..<20 { _ = cache.value(forKey: key) }
        for key in 1000..<3000 { cache.insert("0123456789", forKey: key) }
        let survivors = (0..<20).filter { cache.value(forKey: $0) != nil }
        #expect(survivors.count == 20)
    }

    @Test func `release frees at least the requested bytes, coldest first`() {
        let cache = cache(10_000, shards: 4)
        for key in 0..<500 { cache.insert("0123456789", forKey: key) }
        for key in 0..<100 { _ = cache.value(forKey: key) }
        let released = cache.release(2000)
        #expect(released >= 2000 && released < 2100)
        #expect((0..<100).allSatisfy { cache.value(forKey: $0) != nil })
        #expect(cache.statistics.purged == released / 10 && cache.statistics.evictions == 0)
        #expect(cache.release(.max) == 5000 - released && cache.count == 0)
        #expect(cache.release(.max) == .zero && cache.release(.zero) == .zero && cache.release((-5)) == .zero)
    }

    @Test func `lowering the limit evicts at once`() {
        let cache = cache(1000)
        for key in 0..<100 { cache.insert("0123456789", forKey: key) }
        cache.limit = .bytes(100)
        #expect(cache.byteCount <= 100)
        cache.limit = .bytes(-1)
        #expect(cache.count == 0 && cache.limit == .zero)
    }

    @Test func `tags are purged together`() {
        let cache = cache()
        cache.insert("a", forKey: 1, tags: ["tenant-42", "hot"])
        cache.insert("b", forKey: 2, tags: ["tenant-42"])
        cache.insert("c", forKey: 3)
        cache.purge(tag: "tenant-42")
        #expect(cache.count == 1 && cache.value(forKey: 3) == "c" && cache.statistics.purged == 2)
    }

    @Test func `an invalidation is announced before entries leave, and their removal listeners can tell`() {
        let cache = cache(), calls = Log<String>()
        cache.onInvalidation { calls.add($0 ? "invalidation" : "end") }
        cache.onRemovalNotice { key, _, notice in calls.add(notice.isInvalid ? "\(key) invalid" : "\(key)") }
        cache.insert("a", forKey: 1, tags: ["t"])
        cache.insert("b", forKey: 2)
        cache.insert("c", forKey: 3)
        cache.purge(tag: "t")
        cache.removeValue(forKey: 2)
        cache.removeAll()
        #expect(calls.all == ["invalidation", "1 invalid", "end", "2", "invalidation", "3 invalid", "end"])
    }

    @Test func `an entry that a removal listener removes during an invalidation, or in a new task, is not invalid`() async {
        let cache = cache(), other = self.cache(), calls = Log<String>(), tasks = Log<Task<Void, Never>>()
        other.onRemovalNotice { key, _, notice in calls.add(notice.isInvalid ? "\(key) invalid" : "\(key)") }
        other.insert("a", forKey: 1)
        other.insert("b", forKey: 2)
        cache.onInvalidation { _ in }
        cache.onRemoval { _, _, _ in
            other.removeValue(forKey: 1)
            tasks.add(Task { _ = other.removeValue(forKey: 2) })
        }
        cache.insert("c", forKey: 3, tags: ["t"])
        cache.purge(tag: "t")
        for task in tasks.all { await task.value }
        #expect(calls.all == ["1", "2"])
    }

    @Test func `listeners receive every reason once`() {
        let cache = cache(10)
        let received = Mutex<[String]>([])
        cache.onRemoval { key, value, reason in received.withLock { $0.append("\(key) \(value) \(reason.rawValue)") } }
        cache.insert("12345", forKey: 1)
        cache.insert("54321", forKey: 1)
        cache.insert("1234567", forKey: 2)
        cache.removeValue(forKey: 2)
        cache.insert("x", forKey: 3, tags: ["t"])
        cache.purge(tag: "t")
        #expect(received.withLock { $0 } == ["1 12345 replaced", "1 54321 evicted", "2 1234567 removed", "3 x purged"])
    }

    @Test func `T2 a value's deinit and a listener may use the cache`() {
        final class Reentrant: Sendable {
            let cache: PurgeableCache<Int, Reentrant>
            init(_ cache: PurgeableCache<Int, Reentrant>) { self.cache = cache }
            deinit { _ = cache.value(forKey: 0) }
        }
        let cache = PurgeableCache<Int, Reentrant>("re-entrant", limit: .bytes(10), shardCount: 1, cost: { _, _ in 1 })
        cache.onRemoval { [weak cache] _, _, _ in _ = cache?.value(forKey: 0) }
        for key in 0..<100 { cache.insert(Reentrant(cache), forKey: key) }
        #expect(cache.release(5) == 5)
        cache.removeAll()
        #expect(cache.count == 0)
    }

    @Test func `every value is released exactly once`() {
        let alive = Counter()
        final class Tracked: Sendable {
            let alive: Counter
            init(_ alive: Counter) {
                self.alive = alive
                alive.add(1)
            }
            deinit { alive.add(-1) }
        }
        do {
            let cache = PurgeableCache<Int, Tracked>("tracked", limit: .bytes(50), shardCount: 4, cost: { _, _ in 1 })
            for key in 0..<1000 { cache.insert(Tracked(alive), forKey: key % 170) }
            #expect(alive.value == cache.count && cache.count <= 50)
            _ = cache.release(20)
            #expect(alive.value == cache.count)
        }
        #expect(alive.value == 0)
    }

    @Test func `many threads keep the bound and lose nothing`() async {
        let seed = newSeed()
        let cache = cache(2000, shards: 8)
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<4 {
                group.addTask {
                    var random = SeededGenerator(seed: seed &+ UInt64(worker))
                    for _ in 0..<20_000 {
                        let key = Int.random(in: 0..<500, using: &random)
                        switch Int.random(in: 0..<10, using: &random) {
                        case 0..<4: cache.insert("value-\(key)", forKey: key)
                        case 4..<8: if let value = cache.value(forKey: key), value != "value-\(key)" { Issue.record("\(value) under \(key)") }
                        case 8: _ = cache.release(100)
                        default: cache.removeValue(forKey: key)
                        }
                        if cache.byteCount > 2000 { Issue.record("\(cache.byteCount) above the bound") }
                    }
                }
            }
        }
        #expect((0..<500).compactMap { cache.value(forKey: $0) }.reduce(0) { $0 + $1.utf8.count } == cache.byteCount)
    }

    // MARK: Loading

    @Test func `T24 a key is loaded once, for any number of callers`() async throws {
        let cache = cache()
        let loads = Counter(), waiting = Counter()
        let (gate, open) = AsyncStream.makeStream(of: Never.self)
        try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<50 {
                group.addTask {
                    waiting.add(1)
                    return try await cache.value(forKey: 7) {
                        loads.add(1)
                        for await _ in gate {}
                        return "seven"
                    }
                }
            }
            group.addTask {
                await until { waiting.value >= 50 }
                open.finish()
                return "seven"
            }
            for try await value in group { #expect(value == "seven") }
        }
        #expect(loads.value == 1 && cache.value(forKey: 7) == "seven")
    }

    @Test func `a throwing load fails the caller and caches nothing`() async throws {
        struct Broken: Error {}
        let cache = cache()
        await #expect(throws: Broken.self) { try await cache.value(forKey: 1) { throw Broken() } }
        #expect(cache.count == 0)
        #expect(try await cache.value(forKey: 1) { "again" } == "again")
    }

    @Test func `a cancelled load is handed to the next in line`() async throws {
        let cache = cache()
        let (started, start) = AsyncStream.makeStream(of: Void.self)
        let leader = Task {
            try await cache.value(forKey: 1) {
                start.yield()
                try await untilCancelled()
                return "never"
            }
        }
        for await _ in started { break }
        let follower = Task { try await cache.value(forKey: 1) { "mine" } }
        leader.cancel()
        await #expect(throws: CancellationError.self) { try await leader.value }
        #expect(try await follower.value == "mine")
    }

    @Test func `an entry with a time to live of zero expires at once`() {
        let cache = PurgeableCache<Int, Int>("short", limit: .bytes(1000), timeToLive: .zero)
        let expired = Counter()
        cache.onRemoval { _, _, reason in if reason == .expired { expired.add(1) } }
        cache.insert(1, forKey: 1)
        #expect(cache.value(forKey: 1) == nil && cache.count == 0 && expired.value == 1)
    }

    // MARK: Room

    @Test func `a cache without room to grow replaces entries`() {
        let rung = Counter()
        let meter = ChargeMeter { rung.add(1) }
        let cache = cache(10_000)
        #expect(cache.attach(meter) && !cache.attach(ChargeMeter {}), "one meter only")
        meter.allow(.bytes(100), since: .zero)
        for key in 0..<50 { #expect(cache.insert("0123456789", forKey: key)) }
        #expect(cache.byteCount == 100 && meter.heldBytes == 100)
        #expect(rung.value == 1, "woken once a reading, half-way")
        meter.allow(.bytes(50), since: meter.heldBytes)
        for key in 50..<100 { #expect(cache.insert("0123456789", forKey: key)) }
        #expect(cache.byteCount == 150 && rung.value == 2)
        meter.allow(.zero, since: .zero)
        #expect(cache.insert("0123456789", forKey: 1000) && cache.byteCount == 150, "an entry for an entry, at any ceiling")
        #expect(meter.heldBytes.bytes == cache.byteCount && rung.value == 2, "and no thread is woken")
        #expect(!cache.insert("0123456789", forKey: 1001, cost: 200) && cache.byteCount == 150, "more than there is to replace")
    }
}
