import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Two caches under one meter, and shares as a manager sets them.
@Suite final class SharedCachesTests {
    private let meter = ChargeMeter {}
    private let first = PurgeableCache<Int, Int>("first") { _, value in value }
    private let second = PurgeableCache<Int, Int>("second") { _, value in value }

    init() {
        _ = (first.attach(meter), second.attach(meter))
        meter.allow(1000, since: .zero)
    }

    // Breaks the reference cycle of caches and meter, like a manager.
    deinit { meter.share(from: [], lacking: 0) }

    private func share(_ one: Int, _ other: Int) {
        first.setShare(one)
        second.setShare(other)
        let excess = [first.byteCount - one, second.byteCount - other]
        meter.share(
            from: [first, second].enumerated().filter { excess[$0.offset] > 0 }.map(\.element),
            lacking: excess.reduce(0) { $0 + max(0, -$1) })
    }

    @Test func `a cache evicts down to its share, and at once no more than requested`() {
        for key in 0..<90 { first.insert(10, forKey: key) }
        first.setShare(300)
        #expect(first.evictAboveShare(50) == 50 && first.byteCount == 850)
        #expect(first.evictAboveShare(.max) == 550 && first.evictAboveShare(.max) == 0)
        first.setShare(nil)
        #expect(first.evictAboveShare(.max) == 0 && first.byteCount == 300)
    }

    @Test func `without shares each cache evicts for its own new entries`() {
        for key in 0..<90 { first.insert(10, forKey: key) }
        for key in 0..<50 { second.insert(10, forKey: key) }
        #expect(first.byteCount == 900 && second.byteCount == 100)
    }

    @Test func `a cache above its share makes room for one below, down to the share`() {
        for key in 0..<90 { first.insert(10, forKey: key) }
        share(600, 400)
        for key in 0..<200 { second.insert(10, forKey: key) }
        #expect(first.byteCount == 600 && second.byteCount == 400)
        #expect(second.statistics.rejected == 0 && first.statistics.evictions == 30)
    }

    @Test func `a cache at its share leaves the other caches their room`() {
        for key in 0..<40 { first.insert(10, forKey: key) }
        share(300, 700)
        for key in 100..<200 { first.insert(10, forKey: key) }
        #expect(first.byteCount <= 400, "not a byte of the room that the other lacks")
        for key in 0..<200 { second.insert(10, forKey: key) }
        #expect(second.byteCount == 700 && first.byteCount == 300)
    }

    @Test func `room that no cache lacks is free for all caches`() {
        for key in 0..<100 { second.insert(1, forKey: key) }
        share(300, 100)
        for key in 0..<90 { first.insert(10, forKey: key) }
        #expect(first.byteCount == 600, "the 300 of its share that it lacked itself are not reserved for others")
    }

    @Test func `an insert larger than the room of other caches evicts the cache's own entries`() {
        for key in 0..<95 { first.insert(10, forKey: key) }
        second.insert(50, forKey: 0)
        share(900, 100)
        #expect(second.insert(150, forKey: 1) == false, "950 of 1000 are the first's, of which 50 are above its share")
        #expect(second.insert(90, forKey: 2))
        #expect(first.byteCount + second.byteCount <= 1000)
    }

    @Test func `a large insert into a cache above its share evicts the cache's own entries`() {
        let wide = PurgeableCache<Int, Int>("wide", shardCount: 8) { _, value in value }
        _ = wide.attach(meter)
        for key in 0..<90 { wide.insert(10, forKey: key) }
        wide.setShare(300)
        meter.share(from: [wide], lacking: 700)
        // Each insert ends, although 100 bytes of room are reserved for other caches.
        for key in 100..<120 { wide.insert(150, forKey: key) }
        #expect(wide.byteCount <= 900 && wide.contains(119))
    }

    @Test func `listeners of an evicting cache are called, and may use the cache that gets the room`() {
        let left = Counter()
        first.onRemoval { [second] key, _, reason in
            #expect(reason == .evicted && second.count > 0)
            second.insert(1, forKey: 1000 + key)
            left.add(1)
        }
        second.insert(10, forKey: -1)
        for key in 0..<99 { first.insert(10, forKey: key) }
        share(500, 500)
        for key in 0..<40 { second.insert(10, forKey: key) }
        #expect(left.value > 0 && first.byteCount + second.byteCount <= 1000)
    }

    @Test func `an insert reserves nothing while other caches make room, so their listeners may set its limit`() {
        let clock = ManualClock(), seen = Log<Int>()
        let timed = PurgeableCache<Int, Int>(
            "timed", lifetime: CacheLifetime(.seconds(10), nil, nil), time: clock.timekeeper,
            cost: { _, value in value })
        _ = timed.attach(meter)
        timed.insert(100, forKey: 0)
        for key in 0..<90 { first.insert(10, forKey: key) }
        first.onRemoval { _, _, _ in
            seen.add(timed.byteCount)
            // Would wait for ever for bytes that the insert of this thread has reserved.
            if timed.byteCount == 0 { timed.limit = .zero }
        }
        first.setShare(600)
        timed.setShare(400)
        meter.share(from: [first], lacking: 300)
        clock.freeze(for: .seconds(20))
        // The insert takes out the expired entry, and lacks 50 bytes more.
        #expect(!timed.insert(150, forKey: 1) && timed.limit == .zero && timed.count == 0 && timed.byteCount == 0)
        #expect(seen.all == [0, 0, 0, 0, 0] && first.byteCount == 850 && meter.heldBytes == 850)
    }

    @Test func `the end of sharing removes the shares`() {
        for key in 0..<90 { first.insert(10, forKey: key) }
        share(100, 900)
        first.setShare(nil)
        second.setShare(nil)
        meter.share(from: [], lacking: 0)
        for key in 0..<50 { second.insert(10, forKey: key) }
        #expect(first.byteCount == 900 && second.byteCount == 100)
    }
}

/// The sample of a cache's requests.
@Suite struct CacheLearningTests {
    /// Returns a cache whose sample of the keys does not depend on chance.
    private func cache<Value>(
        limit: ByteCount? = nil, cost: @escaping @Sendable (Int, Value) -> Int
    ) -> PurgeableCache<Int, Value> {
        PurgeableCache(
            "learning", limit: limit, lifetime: CacheLifetime(nil, nil, nil), time: .running, hashSeed: usualSeed(7), cost: cost)
    }

    private func cache() -> PurgeableCache<Int, Int> { cache(limit: .mebibytes(1)) { _, value in value } }

    @Test func `a cache that does not learn samples nothing`() {
        let cache = cache()
        #expect(cache.endRound(upTo: 1000, at: .zero) == nil)
        for key in 0..<10_000 { _ = cache.value(forKey: key) }
        #expect(cache.counters.sampled.pointee.load(ordering: .relaxed) == 0)
    }

    @Test func `hits, misses, inserts and removals of sampled keys are learnt`() {
        let cache = cache(), rounds = Counter()
        cache.learn { rounds.add(1) }
        // The first round finds no entry, and the second the cost of entries.
        _ = cache.endRound(upTo: 250_000, at: .zero)
        cache.insert(10, forKey: -1)
        _ = cache.endRound(upTo: 250_000, at: .zero)
        for _ in 0..<5 {
            for key in 0..<20_000 where cache.value(forKey: key) == nil { cache.insert(10, forKey: key) }
        }
        let learnt = cache.endRound(upTo: 250_000, at: .zero)?.curve
        #expect(learnt?.requests == 100_000 && learnt?.isReliable == true)
        // All keys fit into the whole memory, and each missed once. Less than an eighth of the keys fit into an eighth
        // of the memory.
        #expect(learnt.map { abs($0.misses(at: 250_000) / 20_000 - 1) < 0.3 } == true, "\(learnt as Any)")
        #expect(learnt.map { $0.misses(at: 31_250) > 60_000 } == true, "\(learnt as Any)")
        #expect(rounds.value >= 5, "a ring each 10,000 requests, about")
        for key in 0..<20_000 { cache.removeValue(forKey: key) }
        for key in 0..<20_000 { _ = cache.value(forKey: key) }
        let later = cache.endRound(upTo: 250_000, at: .zero)?.curve
        // All of the 20,000 look-ups missed, in addition to the 20,000 misses of the 100,000 look-ups before.
        #expect(later.map { $0.misses(at: 250_000) > 30_000 } == true, "\(learnt as Any), then \(later as Any)")
    }

    @Test func `borrowed values and objects are sampled as well`() {
        let cache: PurgeableCache<Int, String> = cache { _, _ in 100 }
        cache.learn {}
        cache.insert("", forKey: -1)
        _ = cache.endRound(upTo: 10_000_000, at: .zero)
        for key in 0..<50_000 {
            cache.insert("value \(key)", forKey: key)
            _ = cache.withValue(forKey: key) { $0.count }
            _ = cache.value(forKey: key)
        }
        let learnt = cache.endRound(upTo: 10_000_000, at: .zero)?.curve
        #expect(learnt?.requests == 100_000 && learnt.map { $0.misses(at: 10_000_000) < 5000 } == true, "\(learnt as Any)")
    }

    @Test func `hits of a cache that refreshes its values are learnt as well`() async throws {
        func curve(refreshAfter: Duration?) async throws -> MissCurve? {
            let cache = PurgeableCache<Int, Int>(
                "learning", lifetime: CacheLifetime(nil, nil, refreshAfter), time: .running, hashSeed: 3,
                cost: { _, value in value })
            cache.learn {}
            cache.insert(10, forKey: -1)
            _ = cache.endRound(upTo: 250_000, at: .zero)
            var random = SeededGenerator(seed: 7)
            for _ in 0..<30_000 {
                // Low numbers are requested the most.
                let highest = Int.random(in: 0..<20_000, using: &random)
                _ = try await cache.value(forKey: Int.random(in: 0...highest, using: &random)) { 10 }
            }
            return cache.endRound(upTo: 250_000, at: .zero)?.curve
        }
        let plain = try await curve(refreshAfter: nil), refreshing = try await curve(refreshAfter: .seconds(1 << 20))
        #expect(refreshing == plain, "\(refreshing as Any), not \(plain as Any)")
        #expect(plain.map { $0.misses(at: 250_000 / 64) > $0.misses(at: 250_000) } == true, "\(plain as Any)")
    }

    @Test func `requests before learning began are no part of the first round`() {
        let cache = cache()
        for key in 0..<10_000 { _ = cache.value(forKey: key) }
        cache.learn {}
        #expect(cache.endRound(upTo: 1000, at: .zero)?.curve.requests == 0)
        for key in 0..<100 { _ = cache.value(forKey: key) }
        #expect(cache.endRound(upTo: 1000, at: .zero)?.curve.requests == 100)
    }

    @Test func `a repeated request for one key is noted once, unless the key is removed in between`() {
        let learning = CurveLearning()
        #expect(learning.isOther(7) && !learning.isOther(7) && learning.isOther(8) && learning.isOther(7))
        learning.remove(7)
        #expect(learning.isOther(7))
    }

    @Test func `a cache that stops learning forgets its sample`() {
        let cache = cache()
        cache.learn {}
        _ = cache.endRound(upTo: 1000, at: .zero)
        #expect(cache.counters.sampled.pointee.load(ordering: .relaxed) > 0)
        cache.learn(onRound: nil)
        #expect(cache.counters.sampled.pointee.load(ordering: .relaxed) == 0 && cache.endRound(upTo: 1000, at: .zero) == nil)
    }

    @Test func `the load time is the mean of the loads`() throws {
        let cache = cache()
        cache.learn {}
        #expect(cache.endRound(upTo: 1000, at: .zero).map { $0.loadTime == nil } == true)
        for key in 0..<10 { _ = try cache.valueBlocking(forKey: key) { 1 } }
        #expect(cache.endRound(upTo: 1000, at: .zero)?.loadTime.map { $0 >= 0 && $0 < 1e9 } == true)
    }

    @Test func `a load time that jumps by a thousand is noticed within some rounds`() throws {
        let learning = CurveLearning()
        _ = learning.set {}
        var statistics = CacheStatistics()
        func round(_ milliseconds: Int) -> Double? {
            statistics.loads += 100
            statistics.loadTime += .milliseconds(milliseconds * 100)
            return learning.endRound(statistics, upTo: 1000, meanCost: 10, at: .zero)?.learnt.loadTime
        }
        _ = round(1)
        for _ in 0..<50 { #expect(round(1).map { abs($0 - 1e6) < 1 } == true) }
        for _ in 0..<20 { _ = round(1000) }
        #expect(round(1000).map { $0 > 5e8 } == true)
        for _ in 0..<100 { _ = round(1) }
        #expect(round(1).map { $0 < 1e7 } == true)
    }
}
