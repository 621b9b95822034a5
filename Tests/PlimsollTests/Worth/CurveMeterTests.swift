import Foundation
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

@Suite struct CurveMeterTests {
    /// Requests `requests` of a cache of `bytes`, and returns the share of misses.
    private func misses(_ requests: [UInt32], bytes: Int, cost: (UInt32) -> Int) -> Double {
        let cache = PurgeableCache<UInt64, UInt64>(
            "curve", limit: ByteCount(bytes), lifetime: CacheLifetime(nil, nil, nil), shardCount: 1, time: .running, hashSeed: 1
        ) { _, value in Int(value) }
        var misses = 0
        for request in requests where cache.value(forKey: UInt64(request)) == nil {
            misses += 1
            cache.insert(UInt64(cost(request)), forKey: UInt64(request))
        }
        return Double(misses) / Double(requests.count)
    }

    /// Feeds the requests to a meter, and returns the curve.
    private func curve(_ requests: [UInt32], upTo bytes: Int, meanCost: Double, cost: (UInt32) -> Int) -> MissCurve {
        var meter = CurveMeter()
        meter.start()
        meter.measure(upTo: bytes, meanCost: meanCost)
        let hash = CacheHash(seed: 9)
        for request in requests {
            let hash = hash.of(UInt64(request))
            guard CurveMeter.position(of: hash) <= meter.threshold else { continue }
            if meter.lookUp(hash) { meter.insert(hash, cost: cost(request)) }
        }
        let real = misses(requests, bytes: bytes, cost: cost) * Double(requests.count)
        return meter.endRound(requests: requests.count, misses: Int(real), held: bytes)
    }

    @Test(arguments: [0.6, 0.9, 1.1], seeds(0..<1))
    func `a skewed stream's curve is near the misses of caches of those sizes`(skew: Double, seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let weights = (1...40_000).map { 1 / pow(Double($0), skew) }
        var sums: [Double] = [], sum = 0.0
        for weight in weights {
            sum += weight
            sums.append(sum)
        }
        let requests = (0..<200_000).map { _ in
            let draw = Double.random(in: 0..<sum, using: &random)
            var low = 0, high = sums.count - 1
            while low < high {
                let middle = (low + high) / 2
                if sums[middle] <= draw { low = middle + 1 } else { high = middle }
            }
            return UInt32(low)
        }
        let bytes = 20_000 * 100, curve = curve(requests, upTo: bytes, meanCost: 100) { _ in 100 }
        // The curve ends where all that was requested fits, by an estimate.
        let most = min(bytes, Set(requests).count * 100)
        #expect(curve.isReliable && Double(curve.points.last?.bytes ?? 0) > 0.7 * Double(most))
        var errors: [Double] = []
        // Checks every other size, because each check fills a cache of that size.
        for point in curve.points.enumerated().filter({ $0.offset % 2 == 0 }).map(\.element) {
            let real = misses(requests, bytes: point.bytes) { _ in 100 }
            errors.append(abs(point.misses / curve.requests - real) * 100)
        }
        let mean = errors.reduce(0, +) / Double(errors.count)
        // The flatter the stream, the more the error depends on the number of keys in the sample, which is a matter of
        // chance.
        #expect(mean < (skew < 0.8 ? 9 : 6) && (errors.max() ?? 0) < 20, "points: \(errors)")
    }

    @Test func `a loop saves nothing until all of the loop fits`() {
        let requests = (0..<20).flatMap { _ in 0..<UInt32(14_000) }
        let curve = curve(requests, upTo: 20_000 * 100, meanCost: 100) { _ in 100 }
        // A quarter of the memory holds a third of the loop; all of the memory holds the loop.
        #expect(curve.misses(at: 5000 * 100) > 0.85 * curve.requests)
        #expect(curve.misses(at: 20_000 * 100) < 0.15 * curve.requests)
    }

    @Test func `a curve ends at the bytes of all keys, where all keys fit`() throws {
        let requests = (0..<20).flatMap { _ in 0..<UInt32(17_000) }
        let curve = curve(requests, upTo: 20_000 * 100, meanCost: 100) { _ in 100 }
        let ends = curve.points.filter { $0.bytes > 15_000 * 100 && $0.bytes < 20_000 * 100 }
        let end = try #require(ends.first)
        // The end follows from a sample of some 170 keys.
        #expect(ends.count == 1 && abs(end.bytes - 17_000 * 100) < 2500 * 100, "\(end)")
        #expect(end.misses < 0.15 * curve.requests)
    }

    @Test func `a curve has no end while new keys are requested`() {
        // One request in ten is for a key that was never requested.
        let requests = (0..<UInt32(100_000)).map { number -> UInt32 in number % 10 == 0 ? 10_000 + number : number % 7000 }
        let curve = curve(requests, upTo: 40_000 * 100, meanCost: 100) { _ in 100 }
        #expect(curve.points.count == CurveMeter.sizes.count)
    }

    @Test func `a curve from few keys or few requests is not reliable`() {
        let few = curve((0..<100_000).map { UInt32($0 % 50) }, upTo: 100_000, meanCost: 100) { _ in 100 }
        #expect(!few.isReliable)
        let young = curve((0..<500).map { UInt32($0) }, upTo: 100_000, meanCost: 100) { _ in 100 }
        #expect(!young.isReliable)
        var meter = CurveMeter()
        let stopped = meter.endRound(requests: 5, misses: 0, held: nil)
        #expect(!stopped.isReliable && stopped.points.isEmpty)
    }

    @Test func `new sizes that hardly differ keep the learnt misses`() {
        var meter = CurveMeter()
        meter.start()
        meter.measure(upTo: 1 << 20, meanCost: 100)
        let threshold = meter.threshold
        for hash in 1...UInt32(100_000) {
            let hash = hash &* 0x9E37_79B9
            if CurveMeter.position(of: hash) <= threshold { _ = meter.lookUp(hash) }
        }
        meter.measure(upTo: 5 << 18, meanCost: 100)
        let kept = meter.endRound(requests: 100_000, misses: 0, held: nil)
        #expect(kept.points.last?.misses ?? 0 > 90_000 && kept.points.last?.bytes == 5 << 18)
        meter.measure(upTo: 1 << 30, meanCost: 100)
        // Each request counts as a miss as long as a size has seen no request.
        #expect(meter.endRound(requests: 1000, misses: 0, held: nil).points.last.map { $0.misses > 0 } == true)
    }

    @Test func `the state of a cache takes at most 24 KiB`() {
        #expect(CurveMeter.byteCount > 16 << 10 && CurveMeter.byteCount <= 24 << 10)
    }

    @Test(
        arguments: [
            // The smallest size has 112 entries, for which a miniature has room, so that all keys may be sampled.
            (nil, 0.02), (1e9, 0.02), (20_000, 0.8), (200_000, 0.1), (1000, 0.8), (0, 0.02), (.infinity, 0.02), (.nan, 0.02), (-1, 0.02),
        ] as [(Double?, Double)])
    func `the less busy a cache, the more keys are sampled`(rate: Double?, most: Double) {
        var meter = CurveMeter()
        meter.start()
        meter.measure(upTo: 112 * 64 * 100, meanCost: 100, perSecond: rate)
        #expect(abs(Double(meter.threshold) / Double(UInt32.max) - most) < 1e-6)
    }

    @Test(arguments: [(1_000_000, 0.005, 8), (51_200, 0.01, 8), (6000, 0.02, 6), (250, 0.02, 1)])
    func `a busy cache samples some entries of the smallest size, and leaves out sizes with fewer samples`(
        entries: Int, part: Double, points: Int
    ) {
        var meter = CurveMeter()
        meter.start()
        meter.measure(upTo: entries * 100, meanCost: 100)
        #expect(abs(Double(meter.threshold) / Double(UInt32.max) - part) < 1e-6)
        #expect(meter.endRound(requests: 1000, misses: 0, held: nil).points.count == points)
    }

    @Test func `a cache that becomes busy samples fewer keys, and keeps the curve`() {
        var meter = CurveMeter()
        meter.start()
        let bytes = 112 * 64 * 100
        meter.measure(upTo: bytes, meanCost: 100, perSecond: 1000)
        for _ in 0..<2 {
            for key in 1...UInt32(3000) {
                let hash = key &* 0x85EB_CA6B
                if meter.lookUp(hash) { meter.insert(hash, cost: 100) }
                _ = meter.lookUp(hash)
            }
        }
        let before = meter.endRound(requests: 12_000, misses: 0, held: nil), threshold = meter.threshold
        #expect(abs(before.misses(at: bytes) - 3000) < 600)
        meter.measure(upTo: bytes, meanCost: 100, perSecond: 100_000)
        #expect(meter.threshold < threshold / 2)
        let after = meter.endRound(requests: 0, misses: 0, held: nil)
        #expect(after.isReliable)
        for size in [bytes / 64, bytes / 2, bytes] {
            #expect(abs(after.misses(at: size) / after.requests - before.misses(at: size) / before.requests) < 0.01)
        }
        // At the former rate the sample stays small: a sample that changes to and fro would learn nothing.
        let small = meter.threshold
        for _ in 0..<5 { meter.measure(upTo: bytes, meanCost: 100, perSecond: 1000) }
        #expect(meter.threshold == small)
        for _ in 0..<50 { meter.measure(upTo: bytes, meanCost: 100, perSecond: 1000) }
        #expect(meter.threshold > small)
    }

    /// Feeds keys to a meter as hashes, with 100 bytes for each key.
    private func request(_ meter: inout CurveMeter, _ keys: some Sequence<UInt32>) {
        for key in keys {
            let hash = key &* 0x85EB_CA6B
            if meter.lookUp(hash) { meter.insert(hash, cost: 100) }
        }
    }

    @Test(arguments: seeds(0..<2))
    func `a size that grows in small steps is represented by as many entries as the size has`(seed: UInt64) {
        var meter = CurveMeter(), random = SeededGenerator(seed: seed)
        meter.start()
        // Each step alone is too small to require a new sample, if all entries fitted.
        for entries in [10_000, 11_500, 13_000, 14_500] { meter.measure(upTo: entries * 100, meanCost: 100, perSecond: 1000) }
        let keys: UInt32 = 20_000
        for count in [100_000, 100_000] {
            request(&meter, (0..<count).map { _ in UInt32.random(in: 0..<keys, using: &random) })
            let curve = meter.endRound(requests: count, misses: 0, held: nil)
            guard count == 100_000, curve.requests > 150_000 else { continue }
            // All keys are equally popular, so that the hit ratio is the number of entries divided by the number of
            // keys.
            for point in curve.points.suffix(3) {
                let expected = 1 - Double(point.bytes) / 100 / Double(keys)
                #expect(abs(point.misses / curve.requests - expected) < 0.08, "\(point.bytes): \(point.misses / curve.requests), \(expected)")
            }
        }
    }

    @Test func `another stream of requests is learnt within some rounds`() {
        var meter = CurveMeter()
        meter.start()
        meter.measure(upTo: 2000 * 100, meanCost: 100, perSecond: 1000)
        var next: UInt32 = 0
        var counted = 0.0
        func round(_ keys: [UInt32]) -> Double {
            request(&meter, keys)
            let curve = meter.endRound(requests: keys.count, misses: 0, held: nil)
            // The number of requests is the same for any stream.
            counted = counted * CurveMeter.memory + Double(keys.count)
            #expect(abs(curve.requests - counted) < 1e-6)
            return curve.misses(at: 2000 * 100) / curve.requests
        }
        // A scan always misses. Then only a few keys are requested.
        for _ in 0..<30 {
            #expect(round(Array(next..<next + 5000)) > 0.95)
            next += 5000
        }
        let ratios = (0..<8).map { _ in round((0..<5000).map { next + UInt32($0 % 500) }) }
        #expect(ratios[0] > 0.7 && ratios[7] < 0.1, "a single round may be chance: \(ratios)")
    }

    @Test func `rounds that alternate between hits and misses are no change of the stream`() {
        var meter = CurveMeter(), kept = [Double]()
        meter.start()
        meter.measure(upTo: 2000 * 100, meanCost: 100, perSecond: 1000)
        // One round is all hits, the next all misses.
        var next: UInt32 = 1 << 20
        for round in 0..<40 {
            if round % 2 == 0 {
                request(&meter, (0..<5000).map { UInt32($0 % 500) })
            } else {
                request(&meter, next..<next + 5000)
                next += 5000
            }
            let curve = meter.endRound(requests: 5000, misses: 0, held: nil)
            kept.append(curve.misses(at: 2000 * 100) / curve.requests)
        }
        #expect(kept.suffix(10).allSatisfy { $0 > 0.4 && $0 < 0.6 }, "\(kept)")
    }

    @Test func `extreme costs and sizes do not trap`() {
        var meter = CurveMeter()
        meter.start()
        for (bytes, cost) in [(0, Double.nan), (.max, 1e300), (-5, -1), (1, .infinity), (.max, 0)] {
            meter.measure(upTo: bytes, meanCost: cost)
            for hash in [UInt32.min, 1, .max] {
                _ = meter.lookUp(hash)
                meter.insert(hash, cost: .max)
                _ = meter.lookUp(hash)
                meter.insert(hash, cost: .min)
                meter.remove(hash)
            }
            #expect(meter.endRound(requests: .max, misses: .max, held: .max).requests.isFinite)
        }
    }
}
