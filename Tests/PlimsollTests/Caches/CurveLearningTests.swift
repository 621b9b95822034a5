import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Rounds of learning, with statistics and times that a test sets.
@Suite struct CurveLearningTests {
    private let learning = CurveLearning(), rings = Counter()

    private func start() { _ = learning.set { [rings] in rings.add(1) } }

    private func statistics(
        hits: Int = 0, misses: Int = 0, evictions: Int = 0, bytes: Int = 0, loads: Int = 0, loadTime: Duration = .zero
    ) -> CacheStatistics {
        var statistics = CacheStatistics()
        (statistics.hits, statistics.misses, statistics.evictions) = (hits, misses, evictions)
        (statistics.byteCount, statistics.loads, statistics.loadTime) = (bytes, loads, loadTime)
        return statistics
    }

    private func round(
        _ statistics: CacheStatistics, at seconds: Double, upTo bytes: Int = 1000
    ) -> (learnt: Learnt, threshold: UInt32)? {
        learning.endRound(statistics, upTo: bytes, meanCost: 10, at: .seconds(seconds))
    }

    private func lookUp(_ times: Int) {
        for _ in 0..<times { learning.note(isLookUp: true) { _ in } }
    }

    @Test(arguments: [1, 7, .max] as [UInt32])
    func `the first look-up of a hash differs from the last one, and so does the first after a removal`(hash: UInt32) {
        #expect(learning.isOther(hash) && !learning.isOther(hash))
        learning.remove(hash)
        #expect(learning.isOther(1))
    }

    @Test func `the rate of requests is known from the second round on`() {
        start()
        let first = round(statistics(hits: 50), at: 5)
        #expect(first?.learnt.curve.requests == 0 && first?.learnt.rate == nil)
        let second = round(statistics(hits: 850, misses: 200), at: 5.5)
        #expect(second?.learnt.rate == 2000)
        let third = round(statistics(hits: 1850, misses: 200), at: 6)?.learnt.rate ?? 0
        #expect(abs(third - 2000) < 1e-6)
        // While the clock stands still, the requests count without a time.
        let fourth = round(statistics(hits: 2350, misses: 200), at: 6)?.learnt.rate ?? 0
        #expect(abs(fourth - (1950 * 0.95 + 500) / 0.975) < 1e-6)
    }

    @Test(arguments: [(20_000, 0.5, 0.5), (1000, 2, 1), (0, 0.5, 0.02), (1000, 0, 0.02)] as [(Int, Double, Double)])
    func `a busier cache samples fewer keys`(lookUps: Int, seconds: Double, part: Double) {
        start()
        _ = round(statistics(), at: 1)
        let threshold = round(statistics(hits: lookUps), at: 1 + seconds)?.threshold ?? 0
        #expect(abs(Double(threshold) / Double(UInt32.max) - part) < 1e-6)
    }

    @Test func `ten thousand look-ups end a round, and other notes do not count`() {
        start()
        _ = round(statistics(), at: 1)
        // At this rate all keys are sampled, and each look-up counts as one.
        _ = round(statistics(hits: 1000), at: 3)
        lookUp(9999)
        for _ in 0..<100 { learning.note { _ in } }
        #expect(rings.value == 0)
        lookUp(1)
        #expect(rings.value == 1)
        lookUp(9999)
        #expect(rings.value == 1)
        lookUp(1)
        #expect(rings.value == 2)
    }

    @Test func `nothing of the rounds before a stop counts after the next start`() {
        start()
        _ = round(statistics(), at: 1)
        _ = round(statistics(hits: 1000, loads: 4, loadTime: .milliseconds(4)), at: 3)
        lookUp(5000)
        _ = learning.set(nil)
        start()
        let first = round(statistics(hits: 9000, loads: 4, loadTime: .milliseconds(4)), at: 7)
        #expect(first?.learnt.curve.requests == 0 && first?.learnt.rate == nil && first?.learnt.loadTime == nil)
        let second = round(statistics(hits: 9600, loads: 5, loadTime: .nanoseconds(4_000_100)), at: 9)
        #expect(second?.learnt.loadTime == 100 && second?.learnt.rate == 300)
        lookUp(9999)
        #expect(rings.value == 0)
        lookUp(1)
        #expect(rings.value == 1)
    }

    @Test(
        arguments: [
            // The bytes change by less than a tenth.
            (901, 6, true), (900, 6, false), (1099, 6, true), (1100, 6, false),
            // At least three of four misses lead to an eviction.
            (1000, 6, true), (1000, 5, false), (901, 5, false),
        ])
    func `a cache's own misses count where the cache neither grows nor shrinks`(before: Int, evictions: Int, counts: Bool) {
        start()
        _ = round(statistics(bytes: before), at: 1, upTo: 1 << 20)
        let now = statistics(hits: 992, misses: 8, evictions: evictions, bytes: 1000)
        let curve = round(now, at: 1, upTo: 1 << 20)?.learnt.curve
        // No look-up was sampled, which stands for misses alone. The few misses of the cache itself halve that at most.
        #expect(curve?.requests == 1000 && curve?.points.last?.misses == (counts ? 500 : 1000))
    }

    @Test(arguments: [([], 0.01), ([2048], 0.02), ([1024, 1024], 0.01)] as [([Int], Double)])
    func `the sampled part of the keys follows the mean cost of the entries`(costs: [Int], part: Double) {
        let cache = PurgeableCache<Int, Int>("mean") { _, value in value }
        for (key, cost) in costs.enumerated() { cache.insert(cost, forKey: key) }
        cache.learn {}
        _ = cache.endRound(upTo: 51_200 * 1024, at: .zero)
        let sampled = cache.counters.sampled.pointee.load(ordering: .relaxed)
        #expect(abs(Double(sampled) / Double(UInt32.max) - part) < 1e-6)
    }
}
