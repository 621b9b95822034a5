import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Refreshes of values in use, and the observed time of loads.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PurgeableCacheRefreshTests {
    struct Broken: Error {}
    typealias Cache = PurgeableCache<Int, String>

    private let clock = ManualClock()

    private func cache(timeToLive: Duration? = nil) -> Cache {
        Cache(
            "refreshing", lifetime: CacheLifetime(timeToLive, nil, .seconds(10)), shardCount: 4, time: clock.timekeeper,
            cost: { _, value in value.utf8.count })
    }

    /// Waits until `count` loads have ended and their results are in the cache.
    private func hasLoaded(_ cache: Cache, _ count: Int) async {
        await until { cache.statistics.loads + cache.statistics.loadFailures >= count }
    }

    @Test func `an old value is returned and refreshed alongside, once for any number of callers`() async throws {
        let cache = cache(), held = HeldLoad(), loads = Counter()
        cache.insert("old", forKey: 1, tags: ["t", "u"])
        @Sendable func ask() async throws -> String {
            try await cache.value(forKey: 1, tags: ["unused"]) {
                loads.add(1)
                await held.wait()
                return "new"
            }
        }
        clock.advance(by: .milliseconds(9999))
        #expect(try await ask() == "old" && loads.value == 0)
        clock.advance(by: .milliseconds(1))
        for _ in 0..<10 { #expect(try await ask() == "old") }
        await held.isReached()
        // No second refresh begins after another ten seconds, as long as the first one is under way.
        clock.advance(by: .seconds(20))
        #expect(try await ask() == "old" && loads.value == 1)
        held.open()
        await until { cache.value(forKey: 1) == "new" }
        #expect(try await ask() == "new" && loads.value == 1)
        #expect(cache.count(tag: "t") == 1 && cache.count(tag: "u") == 1 && cache.count(tag: "unused") == 0)
        #expect(cache.statistics.replaced == 1 && cache.statistics.misses == 0 && cache.statistics.loads == 1)
    }

    @Test func `trivial values are refreshed as well, and only for awaiting callers`() async throws {
        let cache = PurgeableCache<Int, Int>(
            "trivial", lifetime: CacheLifetime(nil, nil, .seconds(10)), time: clock.timekeeper, cost: { _, _ in 1 })
        cache.insert(1, forKey: 1)
        clock.advance(by: .seconds(10))
        func now() throws -> Int { try cache.valueBlocking(forKey: 1) { 2 } }
        #expect(try now() == 1 && cache.value(forKey: 1) == 1)
        #expect(try await cache.values(forKeys: [1]) { _ in [1: 2] } == [1: 1])
        #expect(try await cache.value(forKey: 1) { 2 } == 1)
        await until { cache.value(forKey: 1) == 2 }
        #expect(cache.statistics.loads == 1)
    }

    @Test func `a failed refresh leaves the value, and is tried again only after the same interval`() async throws {
        let cache = cache(), held = HeldLoad()
        cache.insert("old", forKey: 1)
        clock.advance(by: .seconds(10))
        #expect(try await cache.value(forKey: 1) { throw Broken() } == "old")
        await hasLoaded(cache, 1)
        // The next refresh is put off from the time of the failure. Until the cache has noted the failure, no caller
        // refreshes the value either.
        clock.advance(by: .seconds(9))
        for _ in 0..<5 { #expect(try await cache.value(forKey: 1) { "too early" } == "old") }
        clock.advance(by: .seconds(11))
        // The refresh is held, so that no look-up of this loop finds the new value.
        try await until("the second attempt") {
            guard held.begun.value == 0 else { return true }
            let value = try await cache.value(forKey: 1) {
                await held.wait()
                return "new"
            }
            #expect(value == "old")
            clock.advance(by: .seconds(10))
            return false
        }
        held.open()
        await until { cache.value(forKey: 1) == "new" }
        #expect(cache.statistics.loadFailures == 1 && cache.statistics.loads == 1)
    }

    @Test(arguments: ["removed", "purged", "replaced", "removed and put back", "evicted", "expired"])
    func `C67 a refreshed value is not kept if the entry is gone`(how: String) async throws {
        let cache = cache(timeToLive: .seconds(15)), held = HeldLoad()
        cache.insert("old", forKey: 1, tags: ["t"])
        clock.advance(by: .seconds(10))
        let asked = try await cache.value(forKey: 1) {
            await held.wait()
            return "refreshed"
        }
        #expect(asked == "old")
        await held.isReached()
        switch how {
        case "removed": cache.removeValue(forKey: 1)
        case "purged": cache.purge(tag: "t")
        case "replaced": cache.insert("newer", forKey: 1)
        case "removed and put back":
            cache.removeValue(forKey: 1)
            cache.insert("newer", forKey: 1, tags: ["t"])
        case "evicted": _ = cache.release(.max)
        default:
            clock.advance(by: .seconds(5))
            #expect(cache.value(forKey: 1) == nil)
        }
        held.open()
        await hasLoaded(cache, 1)
        // The refresh has ended, so the result cannot follow this look-up.
        let left = cache.value(forKey: 1)
        #expect(left == (how.hasPrefix("re") && how != "removed" ? "newer" : nil))
        #expect(cache.statistics.rejected == 0)
    }

    @Test func `a miss during the refresh of a removed entry loads anew, and gets nothing older`() async throws {
        let cache = cache(), held = HeldLoad()
        cache.insert("old", forKey: 1)
        clock.advance(by: .seconds(10))
        _ = try await cache.value(forKey: 1) {
            await held.wait()
            return "before the change"
        }
        await held.isReached()
        cache.removeValue(forKey: 1)
        #expect(try await cache.value(forKey: 1) { "after the change" } == "after the change")
        held.open()
        await hasLoaded(cache, 2)
        #expect(cache.value(forKey: 1) == "after the change")
    }

    @Test func `a refresh begun within a load is no part of that load`() async throws {
        let cache = cache(), held = HeldLoad(), refreshed = Log<String>()
        cache.insert("old", forKey: 1)
        clock.advance(by: .seconds(10))
        let outer = Task {
            try await cache.value(forKey: 2) {
                let one = try await cache.value(forKey: 1) {
                    let two = try await cache.value(forKey: 2) { "never" }
                    refreshed.add(two)
                    return "new from " + two
                }
                await held.wait()
                return "two beside " + one
            }
        }
        await held.isReached()
        // The refresh waits for the load of key 2 like any other caller.
        await cache.hasLine(1, for: 2)
        held.open()
        #expect(try await outer.value == "two beside old")
        await until { cache.value(forKey: 1) == "new from two beside old" }
        #expect(refreshed.all == ["two beside old"])
    }

    // MARK: Time

    @Test func `load times are summed up, and given per byte`() async throws {
        let cache = cache()
        #expect(cache.rebuildTimePerByte == nil && cache.statistics.loadTime == .zero)
        _ = try await cache.value(forKey: 1) { [clock] in
            clock.advance(by: .milliseconds(10))
            return "0123456789"
        }
        #expect(cache.rebuildTimePerByte == 1_000_000)
        func now(_ key: Int, _ load: () throws -> String) throws -> String { try cache.valueBlocking(forKey: key, orLoad: load) }
        _ = try now(2) {
            clock.advance(by: .milliseconds(30))
            return "0123456789"
        }
        _ = try? now(3) {
            clock.advance(by: .seconds(1))
            throw Broken()
        }
        _ = try await cache.values(forKeys: [4, 5]) { [clock] keys in
            clock.advance(by: .milliseconds(20))
            return Dictionary(uniqueKeysWithValues: keys.map { ($0, "0123456789") })
        }
        let statistics = cache.statistics
        #expect(statistics.loads == 3 && statistics.loadFailures == 1 && statistics.loadTime == .milliseconds(60))
        let rate = try #require(cache.rebuildTimePerByte)
        #expect(rate > 1_400_000 && rate < 1_600_000)
        _ = try now(6) { "" }
        #expect(cache.rebuildTimePerByte == rate && cache.statistics.loads == 4, "nothing says nothing about a byte")
    }

    @Test func `the observed rate follows changes, weighted by bytes`() throws {
        var rate = RebuildRate()
        #expect(rate.nanosecondsPerByte == nil && RebuildRate(bits: rate.bits) == rate && rate.bits == 0)
        for _ in 0..<1000 { rate.add(.microseconds(1), bytes: 1000) }
        var known = try #require(rate.nanosecondsPerByte)
        #expect(abs(known - 1) < 0.001 && RebuildRate(bits: rate.bits) == rate)
        rate.add(.milliseconds(1), bytes: 1)
        known = try #require(rate.nanosecondsPerByte)
        #expect(known > 1 && known < 40, "one small value that was slow is not what memory consists of")
        for _ in 0..<200 { rate.add(.microseconds(10), bytes: 1000) }
        known = try #require(rate.nanosecondsPerByte)
        #expect(abs(known - 10) < 0.2)
        let before = rate
        rate.add(.seconds(1), bytes: 0)
        rate.add(.seconds(1), bytes: -5)
        rate.add(.seconds(-1), bytes: 5)
        #expect(rate == before)
        rate.add(.seconds(1_000_000), bytes: .max)
        #expect(rate.nanosecondsPerByte?.isFinite == true)
    }

    // MARK: Counts

    @Test func `every insertion and removal of an entry is counted once, by its reason`() {
        let cache = Cache(
            "counted", limit: .bytes(100), lifetime: CacheLifetime(nil, nil, nil), shardCount: 1, time: clock.timekeeper, cost: { $1.utf8.count })
        let ten = "0123456789"
        for key in 0..<10 { cache.insert(ten, forKey: key, tags: key < 3 ? ["t"] : []) }
        cache.insert(ten, forKey: 9)
        #expect(cache.statistics.replaced == 1 && cache.statistics.evictions == 0)
        cache.purge(tag: "t")
        #expect(cache.statistics.purged == 3 && cache.statistics.evictions == 0)
        _ = cache.release(15)
        #expect(cache.statistics.purged == 5 && cache.statistics.evictions == 0)
        for key in 100..<110 { cache.insert(ten, forKey: key) }
        #expect(cache.statistics.evictions == 5 && cache.count == 10)
        #expect(!cache.insert(ten, forKey: 1, cost: 101) && !cache.insert(ten, forKey: 1, cost: -1))
        #expect(cache.statistics.rejected == 2)
        cache.insert(ten, forKey: 500, timeToLive: .seconds(1))
        clock.advance(by: .seconds(2))
        #expect(cache.value(forKey: 500) == nil && cache.statistics.expired == 1 && cache.statistics.evictions == 6)
        cache.removeAll()
        cache.limit = .bytes(10)
        cache.insert("12345", forKey: 1)
        // An entry that is evicted for its own successor counts as replaced.
        cache.insert(ten, forKey: 1)
        #expect(cache.statistics.replaced == 2 && cache.statistics.evictions == 6)
        let statistics = cache.statistics
        #expect(statistics.hits == 0 && statistics.misses == 1 && statistics.count == 1 && statistics.purged == 5)
    }
}
