import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// A cache with one shard beside `CacheReference`.
@Suite struct CacheReplayTests {
    /// A stream of requested keys: skewed, with scans and loops.
    struct Stream {
        private var random: SeededGenerator
        private let shares: [Double]
        private let keys: Int
        /// Keys of a scan or loop that are still to come.
        private var run = 0..<0

        /// - Parameter skew: exponent of the Zipf distribution; zero for none.
        init(seed: UInt64, keys: Int, skew: Double) {
            random = SeededGenerator(seed: seed)
            self.keys = keys
            var sum = 0.0
            // Avoids the power function of Foundation: the skew is zero or one.
            shares = (1...keys).map { rank in
                sum += skew == 0 ? 1 : 1 / Double(rank)
                return sum
            }
        }

        mutating func next() -> Int {
            if let key = run.popFirst() { return key }
            switch Int.random(in: 0..<2000, using: &random) {
            case 0:
                let start = Int.random(in: keys..<100 * keys, using: &random)
                run = start..<start + keys / 4
            case 1: run = 0..<keys / 5
            default: break
            }
            let share = Double.random(in: 0..<(shares.last ?? 1), using: &random)
            var low = 0, high = keys - 1
            while low < high {
                let middle = (low + high) / 2
                if shares[middle] > share { high = middle } else { low = middle + 1 }
            }
            return low
        }

        mutating func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }
    }

    /// Returns a cache whose hashes depend on the seed too: the hashes decide which ghosts displace each other.
    private func cache(seed: UInt64, limit: Int) -> PurgeableCache<Int, Int> {
        var random = SeededGenerator(seed: ~seed)
        return PurgeableCache(
            "replay", limit: .bytes(limit), lifetime: CacheLifetime(nil, nil, nil), shardCount: 1, time: .running,
            hashSeed: random.next(), cost: { _, _ in 1 })
    }

    private func replay(seed: UInt64, requests: Int, limit: Int, costs: ClosedRange<Int>, skew: Double) {
        let cache = cache(seed: seed, limit: limit)
        let hasher = cache.hasher
        var reference = CacheReference<GhostTable>(limit: limit, hash: { hasher.of($0) })
        var stream = Stream(seed: seed, keys: 1500, skew: skew)
        let left = Mutex<[Int]>([])
        cache.onRemoval { key, _, _ in left.withLock { $0.append(key) } }
        for request in 0..<requests {
            let key = stream.next()
            let isHit = cache.value(forKey: key) == key, isExpected = reference.hits(key)
            if isHit != isExpected { Issue.record("request \(request) of seed \(seed): \(isHit ? "a hit" : "a miss")") }
            let action = stream.number(0...999)
            if !isExpected || action < 30 {
                let cost = stream.number(costs)
                cache.insert(key, forKey: key, cost: cost)
                reference.insert(key, cost: cost)
            } else if action < 40 {
                cache.removeValue(forKey: key)
                reference.remove(key)
            } else if action < 44 {
                let target = stream.number(0...limit / 10)
                _ = cache.release(target)
                reference.release(target)
            }
            let window = cache.directory.shard(of: 0).lock.pointee.withLock { $0.ghosts.entries }
            if isHit != isExpected || left.withLock({ $0.count }) != reference.left.count || window != reference.ghosts.entries {
                Issue.record("request \(request) of seed \(seed): others left, or are remembered")
                return
            }
        }
        #expect(left.withLock { $0 } == reference.left, "seed \(seed)")
        #expect(cache.count == reference.count && cache.byteCount == reference.cost, "seed \(seed)")
        #expect(reference.left.count > requests / 20, "seed \(seed): hardly anything was evicted")
    }

    @Test func `one shard matches the reference, entry by entry`() {
        for seed in seeds(0..<12) {
            replay(seed: seed, requests: 12_000, limit: [40, 160, 640, 1000][Int(seed % 4)], costs: 1...1, skew: seed % 2 == 0 ? 1 : 0)
        }
    }

    @Test func `one shard matches the reference, at any costs`() {
        for seed in seeds(100..<112) {
            // One entry may cost up to the whole limit, and now and then nothing.
            replay(seed: seed, requests: 8000, limit: 4000, costs: 0...(seed % 3 == 0 ? 4000 : 40), skew: seed % 2 == 0 ? 1 : 0)
        }
    }

    @Test func `approximate ghosts cost less than a point of hits where loops exceed the remembered entries`() {
        for (seed, limit) in [(UInt64(1), 60), (2, 300), (3, 900), (4, 3000)] {
            let cache = cache(seed: seed, limit: limit)
            let hasher = cache.hasher
            var reference = CacheReference<ExactGhosts>(limit: limit, hash: { hasher.of($0) })
            var stream = Stream(seed: seed, keys: 10_000, skew: 1)
            var hits = 0, expected = 0
            let requests = 60_000
            for _ in 0..<requests {
                let key = stream.next()
                if cache.value(forKey: key) != nil { hits += 1 } else { cache.insert(key, forKey: key) }
                if reference.hits(key) { expected += 1 } else { reference.insert(key, cost: 1) }
            }
            let difference = Double(hits - expected) / Double(requests) * 100
            // At limit 900 the approximate ghosts have 0.44 points fewer hits (0.35 to 0.61 with ten other hash seeds),
            // because exact ghosts forget loops of 2000 keys whole. At the other limits the difference is under 0.1
            // (0.3).
            #expect(difference.magnitude < 1, "limit \(limit): \(difference) points")
        }
    }
}
