import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Costs and times at the ends of their ranges, and the statistics and notifications about them.
@Suite struct CacheCostTests {
    private func cache(_ limit: Int? = nil, shards: Int = 1) -> PurgeableCache<Int, Int> {
        PurgeableCache("costs", limit: limit.map { .bytes($0) }, shardCount: shards, cost: { _, value in value })
    }

    @Test(arguments: [1, 64]) func `T26 costs with an overflowing sum evict each other`(shards: Int) {
        let cache = cache(shards: shards)
        #expect(cache.insert(10, forKey: 1) && cache.insert(.max, forKey: 2), "the limit is the largest integer")
        #expect(cache.count == 1 && cache.value(forKey: 2) == .max && cache.byteCount == .max)
        #expect(cache.insert(.max - 1, forKey: 3) && cache.byteCount == .max - 1 && cache.count == 1)
        #expect(cache.insert(1, forKey: 4) && cache.byteCount == .max && cache.count == 2)
        #expect(cache.insert(.max / 2, forKey: 5) && cache.insert(.max / 2, forKey: 6) && cache.insert(.max / 2, forKey: 7))
        #expect(cache.byteCount <= .max && cache.byteCount >= .max / 2)
        for key in 10..<40 { #expect(cache.insert(.max - key, forKey: key) && cache.byteCount == .max - key && cache.count == 1) }
        #expect(cache.insert(.max, forKey: 39) && cache.byteCount == .max, "replaced")
        #expect(cache.release(.max) == .max && cache.count == 0 && cache.byteCount == .zero)
    }

    @Test(arguments: [1, 64]) func `T26 entries of zero cost and of full cost leave room for each other`(shards: Int) {
        let cache = cache(shards: shards)
        for key in 0..<100 { #expect(cache.insert(0, forKey: key)) }
        for round in 0..<20 {
            #expect(cache.insert(.max, forKey: 1000 + round) && cache.insert(0, forKey: 2000 + round))
            #expect(cache.byteCount == .max && cache.value(forKey: 1000 + round) == .max)
        }
    }

    @Test(arguments: [1, 64]) func `T26 a negative cost or one above the limit is refused, and nothing else changes`(shards: Int) {
        let cache = cache(100, shards: shards), left = Counter()
        cache.onRemoval { _, _, _ in left.add(1) }
        for key in 0..<100 { cache.insert(1, forKey: key) }
        for cost in [-1, -100, .min, .min + 1, 101, .max, .max - 1] {
            #expect(!cache.insert(cost, forKey: 1000) && !cache.insert(cost, forKey: 5) && !cache.insert(7, forKey: 5, cost: cost))
        }
        #expect(cache.count == 100 && cache.byteCount == 100 && left.value == 0 && cache.value(forKey: 5) == 1)
    }

    /// A key whose hash calls a closure. An insert computes the hash after the first comparison of cost and limit.
    struct CallingKey: Hashable, Sendable {
        let number: Int
        var call: (@Sendable () -> Void)?

        static func == (left: CallingKey, right: CallingKey) -> Bool { left.number == right.number }
        func hash(into hasher: inout Hasher) {
            call?()
            hasher.combine(number)
        }
    }

    @Test func `T26 an insert that exceeds a limit lowered meanwhile is refused, and nothing else changes`() {
        let cache = PurgeableCache<CallingKey, Int>("lowered", limit: .bytes(100), cost: { _, value in value })
        for number in 0..<7 { cache.insert(10, forKey: CallingKey(number: number)) }
        let key = CallingKey(number: 7, call: { cache.limit = .bytes(80) })
        #expect(!cache.insert(90, forKey: key) && cache.limit == 80)
        #expect(cache.count == 7 && cache.byteCount == 70 && cache.statistics.rejected == 1)
    }

    /// The evicted cost is less than the entry's cost, because some room was free.
    @Test(arguments: [1, 64]) func `a large entry evicts only the cost that does not fit`(shards: Int) {
        let cache = cache(1000, shards: shards)
        for key in 0..<50 { cache.insert(10, forKey: key) }
        #expect(cache.insert(600, forKey: 100) && cache.byteCount == 1000 && cache.count == 41)
        #expect(cache.insert(900, forKey: 100) && cache.byteCount == 1000 && cache.count == 11, "in its own place")
        #expect(cache.value(forKey: 100) == 900)
    }

    @Test(arguments: [1, 64]) func `pinned entries are not evicted, and a refused insert evicts no other entry`(shards: Int) {
        // The larger cache has split its shards.
        for count in [100, 2000] {
            let cache = cache(10 * count, shards: shards)
            for key in 0..<count { cache.insert(10, forKey: key) }
            for key in 0..<count / 2 { #expect(cache.pin(key)) }
            #expect(!cache.insert(5 * count + 1, forKey: -1) && cache.count == count)
            #expect(cache.insert(5 * count, forKey: -1) && cache.byteCount == 10 * count && cache.count == count / 2 + 1)
            #expect((0..<count / 2).allSatisfy { cache.value(forKey: $0) == 10 } && cache.pinnedCount == count / 2)
            #expect(cache.insert(5 * count + 10, forKey: 0) && cache.byteCount == 10 * count && cache.count == count / 2, "pinned itself")
        }
    }

    @Test func `statistics distinguish evictions and purges, and match the listeners' counts`() {
        let cache = cache(100), reasons = Mutex<[RemovalReason: Int]>([:])
        cache.onRemoval { _, _, reason in reasons.withLock { $0[reason, default: 0] += 1 } }
        for key in 0..<50 { cache.insert(1, forKey: key, tags: key % 2 == 0 ? ["even"] : []) }
        cache.purge(tag: "even")
        #expect(cache.statistics.purged == 25 && cache.statistics.evictions == 0)
        for key in 100..<220 { cache.insert(1, forKey: key) }
        _ = cache.release(10)
        cache.limit = .bytes(50)
        cache.evict(count: 5)
        cache.removeValue(forKey: 219)
        cache.insert(30, forKey: 218)
        let counts = reasons.withLock { $0 }, statistics = cache.statistics
        #expect(statistics.evictions == counts[.evicted] && statistics.purged == counts[.purged] && statistics.purged == 35)
        #expect(170 == counts.values.reduce(0, +) - (counts[.replaced] ?? 0) + cache.count)
    }

    // MARK: Time

    private func timed(_ clock: ManualClock, _ toLive: Duration?, _ toIdle: Duration?) -> PurgeableCache<Int, String> {
        PurgeableCache("timed", lifetime: CacheLifetime(toLive, toIdle, nil), shardCount: 1, time: clock.timekeeper, cost: { _, _ in 1 })
    }

    @Test func `a time to live of centuries never expires`() {
        let clock = ManualClock(), cache = timed(clock, .seconds(Int64.max), .seconds(Int64.max))
        clock.freeze(for: .seconds(3600))
        cache.insert("a", forKey: 1)
        cache.insert("b", forKey: 2, timeToLive: .seconds(Int64.max))
        cache.insert("c", forKey: 3, timeToLive: .seconds(-5))
        clock.freeze(for: .seconds(3600 * 24 * 365 * 50))
        #expect(cache.value(forKey: 1) == "a" && cache.value(forKey: 2) == "b" && cache.value(forKey: 3) == nil)
        #expect(cache.value(forKey: 1) == "a")
    }

    @Test func `an expired entry cannot be pinned`() {
        let clock = ManualClock(), cache = timed(clock, .seconds(10), nil)
        cache.insert("a", forKey: 1)
        #expect(cache.pin(1) && cache.unpin(1))
        clock.freeze(for: .seconds(10))
        #expect(!cache.pin(1) && cache.pinnedCount == 0)
        #expect(cache.release(.max) == 1 && cache.count == 0, "no pin keeps what no look-up finds")
    }

    @Test func `a removal after the expiry finds no value, and is reported as expired`() {
        let clock = ManualClock(), cache = timed(clock, .seconds(10), nil), reasons = Mutex<[RemovalReason]>([])
        cache.onRemoval { _, _, reason in reasons.withLock { $0.append(reason) } }
        cache.insert("a", forKey: 1)
        cache.insert("b", forKey: 2)
        #expect(cache.removeValue(forKey: 2) == "b")
        clock.freeze(for: .seconds(10))
        #expect(cache.removeValue(forKey: 1) == nil && cache.count == 0 && reasons.withLock { $0 } == [.removed, .expired])
    }

    @Test func `a value without a time does not take over the replaced value's time`() {
        let clock = ManualClock(), cache = timed(clock, nil, nil)
        cache.insert("short", forKey: 1, timeToLive: .seconds(1))
        #expect(cache.insert("long", forKey: 1, cost: 1, tags: [], times: nil, of: nil), "begun before anything had a time")
        cache.insert("long", forKey: 2)
        cache.insert("short", forKey: 2, timeToLive: .seconds(1))
        clock.freeze(for: .seconds(100))
        #expect(cache.value(forKey: 1) == "long" && cache.value(forKey: 2) == nil)
    }

    @Test(arguments: [(share: 40, isLocal: true), (share: 20, isLocal: false)])
    func `a shard with more than half of an even share evicts its own entries, and a smaller one from others`(share: Int, isLocal: Bool) {
        for costs in [[1], [1, 2]] {
            let cache = PurgeableCache<Int, Int>(
                "uneven", lifetime: CacheLifetime(nil, nil, nil), shardCount: 2, time: .running, hashSeed: 5, cost: { _, value in value })
            for key in 0..<2000 { cache.insert(costs[key % costs.count], forKey: key) }
            #expect(cache.directory.shards == 2)
            let shard = { (key: Int) in cache.directory.shard(of: cache.hasher.of(key)).base }
            let uneven = shard(0), cost = { cache.directory.shard(of: cache.hasher.of(0)).lock.pointee.withLock { $0.cost } }
            for key in 0..<2000 where shard(key) == uneven && cost() * 100 > cache.byteCount * share { cache.removeValue(forKey: key) }
            cache.limit = .bytes(cache.byteCount)
            let before = (total: cache.byteCount, uneven: cost())
            // Only a few inserts: a shard that evicts from other shards grows with each.
            var inserted = 0
            for key in 10_000..<20_000 where shard(key) == uneven && inserted < 20 {
                #expect(cache.insert(1, forKey: key))
                inserted += 1
            }
            let others = cache.byteCount - cost()
            #expect(inserted == 20 && cache.byteCount <= before.total)
            if isLocal {
                #expect(others == before.total - before.uneven, "\(share) %, costs \(costs)")
            } else {
                #expect(others <= before.total - before.uneven - 10, "\(share) %, costs \(costs)")
            }
        }
    }

    @Test func `the wheel finds each entry at the set time, across any wait and after a freeze`() {
        for seed in seeds(0..<6) {
            var random = SeededGenerator(seed: seed)
            let clock = ManualClock(), cache = timed(clock, nil, nil)
            var expires: [Int: Duration] = [:]
            for key in 0..<600 {
                // Waits from a tenth of a second to some days, evenly distributed by magnitude.
                let wait =
                    Duration.milliseconds(100 << Int.random(in: 0..<22, using: &random)) + .milliseconds(Int.random(in: 0..<1000, using: &random))
                cache.insert("\(key)", forKey: key, timeToLive: wait)
                expires[key] = clock.timekeeper.elapsed() + wait
                clock.freeze(for: .milliseconds(Int.random(in: 0..<200, using: &random)))
            }
            for _ in 0..<60 {
                clock.freeze(for: .seconds(1 << Int.random(in: 0..<14, using: &random)))
                // Each insert expires a few more entries.
                for step in 0..<60 { cache.insert("new", forKey: 10_000 + step % 2) }
                let now = clock.timekeeper.elapsed()
                let expected = expires.values.count { $0 > now }
                let slack = expires.values.count { $0 > now - .milliseconds(300) && $0 <= now }
                #expect(expected...expected + slack ~= cache.count - 2, "seed \(seed): \(cache.count - 2), not \(expected)")
            }
        }
    }
}
