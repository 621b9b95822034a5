import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// A key with the same hash in every process. Swift's hashes differ from process to process, and so do the keys that a
/// cache samples: one process in forty learnt a curve that was too wrong for these tests.
private struct SteadyKey: Hashable, BitwiseCopyable, VolatileStorable {
    var number: UInt64

    /// The last steps of splitmix64, which spread the bits.
    var hashValue: Int {
        var word = (number &+ 1) &* 0x9E37_79B9_7F4A_7C15
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return Int(truncatingIfNeeded: word ^ word >> 31)
    }

    func hash(into hasher: inout Hasher) { hasher.combine(number) }
}

/// Volatile caches that learn their miss curves and share idle memory.
@Suite(.serialized, .timeLimit(.minutes(5))) struct VolatileSharingTests {
    private typealias Cache = VolatileCache<UInt64, [UInt8]>
    private typealias SteadyCache = VolatileCache<SteadyKey, [UInt8]>

    private static func caches(_ names: String..., on meter: ChargeMeter) -> [Cache] {
        names.map { name in
            let cache = Cache(name)
            cache.attach(volatile: meter)
            return cache
        }
    }

    private static func value(_ count: Int) -> [UInt8] { [UInt8](repeating: 7, count: count) }

    private static func fill(_ cache: Cache, _ keys: Range<UInt64>, of size: Int = 100_000) {
        for key in keys { cache.insert(value(size), forKey: key) }
    }

    /// The size of a segment, which is evicted as a whole.
    private static let segment = 2 << 20

    @Test func `a cache below its share takes room from a cache above its share, down to the shares`() {
        let meter = ChargeMeter(wakesWhenRefusing: false) {}, caches = Self.caches("above", "below", on: meter)
        defer { meter.share(from: [], lacking: 0) }
        meter.allow(.mebibytes(32), since: .zero)
        Self.fill(caches[0], 0..<400)
        let (above, below) = (caches[0], caches[1])
        #expect(above.heldBytes > 28 << 20 && !below.insert(Self.value(100_000), forKey: 1), "without shares there is no room")
        for (cache, share) in [(above, 20 << 20), (below, 12 << 20)] { cache.setShare(share) }
        meter.share(from: [above], lacking: 12 << 20)
        Self.fill(below, 0..<1000)
        #expect(below.heldBytes > 9 << 20 && below.heldBytes <= 12 << 20, "\(below.heldBytes)")
        #expect(above.heldBytes > (20 << 20) - Self.segment && above.heldBytes <= 22 << 20, "\(above.heldBytes)")
        #expect(above.statistics.evictions > 50 && above.statistics.purged == 0)
        // A cache at or above its share evicts its own pages.
        let before = (above.heldBytes, below.heldBytes)
        Self.fill(below, 1000..<2000)
        Self.fill(above, 1000..<2000)
        #expect(above.heldBytes <= max(before.0, 20 << 20) && below.heldBytes <= 12 << 20)
        #expect(abs(below.heldBytes - before.1) <= Self.segment && meter.heldBytes <= .mebibytes(32))
    }

    @Test func `a cache gives up no share for a cache without a share, or for an item too large for both`() {
        let meter = ChargeMeter(wakesWhenRefusing: false) {}, caches = Self.caches("above", "below", on: meter)
        defer { meter.share(from: [], lacking: 0) }
        meter.allow(.mebibytes(16), since: .zero)
        Self.fill(caches[0], 0..<200)
        caches[0].setShare(8 << 20)
        meter.share(from: [caches[0]], lacking: 8 << 20)
        let held = caches[0].heldBytes
        #expect(!caches[1].insert(Self.value(100_000), forKey: 1) && caches[0].heldBytes == held)
        caches[1].setShare(8 << 20)
        // The cache above its share is asked once and gives all bytes above the share, which is not enough.
        #expect(!caches[1].insert(Self.value(12 << 20), forKey: 1))
        #expect(caches[0].heldBytes > (8 << 20) - Self.segment && caches[1].heldBytes == 0)
        #expect(caches[1].insert(Self.value(100_000), forKey: 1))
        #expect(caches[0].evictAboveShare(.min) == 0 && caches[1].evictAboveShare(.max) == 0)
    }

    @Test func `caches that make room for each other on several threads do not loop for ever`() async {
        let meter = ChargeMeter(wakesWhenRefusing: false) {}, caches = Self.caches("one", "two", on: meter)
        defer { meter.share(from: [], lacking: 0) }
        meter.allow(.mebibytes(24), since: .zero)
        let done = Counter()
        await withTaskGroup(of: Void.self) { group in
            for (number, cache) in caches.enumerated() {
                group.addTask {
                    for key in 0..<3000 as Range<UInt64> { cache.insert(Self.value(20_000 + number), forKey: key) }
                }
            }
            group.addTask {
                // The two caches take turns at being above their share, so that readings of the shares always differ.
                var turn = 0
                while done.value == 0 {
                    let (high, low) = (caches[turn % 2], caches[(turn + 1) % 2])
                    high.setShare(4 << 20)
                    low.setShare(20 << 20)
                    meter.share(from: [high, low], lacking: 8 << 20)
                    turn += 1
                    await giveWay()
                }
            }
            for _ in caches { await group.next() }
            done.add(1)
        }
        #expect(meter.heldBytes.bytes >= caches.reduce(0) { $0 + $1.heldBytes })
        for cache in caches {
            cache.removeAll()
            #expect(cache.heldBytes == 0)
        }
        #expect(meter.heldBytes == .zero)
    }

    @Test func `the learnt curve predicts the misses of a volatile cache of another size`() {
        var random = SeededGenerator(seed: usualSeed(11))
        let requests = (0..<300_000).map { _ in
            let draws = (0..<4).map { _ in Double.random(in: 0..<1, using: &random) }
            return UInt64(40_000 * draws.reduce(1, *))
        }
        func size(_ key: UInt64) -> Int { 300 + Int(key % 7) * 200 }
        func run(_ cache: SteadyCache, _ requests: ArraySlice<UInt64>) -> Double {
            var misses = 0
            for key in requests where cache.withBytes(forKey: SteadyKey(number: key), { _ in true }) == nil {
                misses += 1
                cache.insert(Self.value(size(key)), forKey: SteadyKey(number: key))
            }
            return Double(misses) / Double(requests.count)
        }
        let cache = SteadyCache("learns", limit: .mebibytes(12)), largest = 24 << 20
        var now = Duration.zero, learnt: Learnt?
        cache.learn {}
        for start in stride(from: 0, to: requests.count, by: 10_000) {
            learnt = cache.endRound(upTo: largest, at: now)
            now += .seconds(1)
            _ = run(cache, requests[start..<start + 10_000])
        }
        let curve = learnt!.curve
        #expect(curve.isReliable && learnt!.rate.map { abs($0 - 10_000) < 500 } == true)
        for mebibytes in [3, 6, 12] {
            let other = SteadyCache("other", limit: .mebibytes(mebibytes))
            _ = run(other, requests[..<150_000])
            let misses = run(other, requests[150_000...])
            let foretold = curve.misses(at: other.heldBytes) / curve.requests
            #expect(abs(misses - foretold) < 0.12, "\(mebibytes) MiB, \(other.heldBytes) held: \(misses), foretold \(foretold)")
        }
        cache.learn(onRound: nil)
        #expect(cache.endRound(upTo: largest, at: now) == nil && cache.store.counters.sampled.pointee.load(ordering: .relaxed) == 0)
    }

    @Test func `items inserted before a cache began to learn are learnt when they are found`() {
        let cache = SteadyCache("learns late", limit: .mebibytes(8)), largest = 4 << 20
        let keys: Range<UInt64> = 0..<10_000
        for key in keys { cache.insert(Self.value(100), forKey: SteadyKey(number: key)) }
        cache.learn {}
        _ = cache.endRound(upTo: largest, at: .zero)
        for _ in 0..<4 {
            for key in keys { _ = cache.withBytes(forKey: SteadyKey(number: key)) { _ in true } }
        }
        let curve = cache.endRound(upTo: largest, at: .zero)?.curve
        // All keys fit, so that at most the first of four requests misses.
        #expect(curve.map { $0.requests == 40_000 && $0.misses(at: largest) < 20_000 } == true, "\(curve as Any)")
    }

    @Test(.needs(VolatileMemory.isSupported, "no memory can be volatile here"))
    func `idle memory goes to the volatile cache with expensive loads, and the other cache releases`() async throws {
        let policy = PressurePolicy(division: .byWorth)
        try await RunningManager.run(policy: policy) { running in
            let manager = running.manager, cheap = SteadyCache("cheap", rebuildCost: .trivial), dear = SteadyCache("dear", rebuildCost: .expensive)
            let heap = PurgeableCache<Int, Int>("heap") { _, value in value }
            let registrations = [manager.register(cheap), manager.register(dear), manager.register(heap)]
            var random = SeededGenerator(seed: usualSeed(13))
            func request(_ cache: SteadyCache) {
                for _ in 0..<20_000 {
                    let draws = (0..<3).map { _ in Double.random(in: 0..<1, using: &random) }
                    let key = SteadyKey(number: UInt64(50_000 * draws.reduce(1, *)))
                    if cache.value(forKey: key) == nil { cache.insert(Self.value(2000), forKey: key) }
                }
            }
            func turn() async {
                let rounds = manager.parts.volatileDivider.rounds, held = (cheap.heldBytes + dear.heldBytes) >> 20
                // So little memory is idle that both caches together cannot hold all their keys.
                await VolatileManagerTests.push(running, others: 150, volatile: held, of: 256, after: .seconds(11))
                await running.until { manager.parts.volatileDivider.rounds > rounds }
            }
            func shares() -> [String: Int] {
                Dictionary(uniqueKeysWithValues: manager.parts.purgeables.snapshot.map { ($0.name, $0.currentShare) })
            }
            await turn()
            for _ in 0..<20 where shares()["dear", default: 0] <= 2 * shares()["cheap", default: 0] {
                request(cheap)
                request(dear)
                await turn()
            }
            let found = shares()
            #expect(found["dear", default: 0] > 2 * found["cheap", default: 0] && found["cheap", default: 0] > 0, "\(found)")
            #expect(found["heap"] == 0, "alone in its memory, a cache on the heap has no share")
            request(dear)
            #expect(dear.heldBytes > cheap.heldBytes, "\(dear.heldBytes), \(cheap.heldBytes)")
            let status = manager.status
            #expect(status.holders.filter { $0.worth != nil }.map(\.name).sorted() == ["cheap", "dear"])
            #expect(status.moves?.last.map { $0.changes.map(\.name).sorted() } == ["cheap", "dear"])
            for registration in registrations { registration.cancel() }
            #expect(cheap.store.counters.sampled.pointee.load(ordering: .relaxed) == 0 && dear.store.log.withLock { $0.share } == 0)
        }
    }

    @Test(.needs(VolatileMemory.isSupported, "no memory can be volatile here"))
    func `releases of volatile caches keep memory divided by their shares`() async throws {
        try await RunningManager.run { running in
            let manager = running.manager, caches = ["one", "two"].map { Cache($0) }
            for cache in caches { Self.fill(cache, 0..<300) }
            let held = caches.map(\.heldBytes), sum = held.reduce(0, +) >> 20
            let registrations = caches.map { manager.register($0) }
            for entry in manager.parts.purgeables.snapshot { entry.setShare(entry.name == "one" ? 30 << 20 : 10 << 20) }
            // Six MiB are free, and 16 MiB should be.
            await VolatileManagerTests.push(running, others: 250 - sum, volatile: sum, of: 256, after: .seconds(1))
            await running.until { caches[1].heldBytes <= held[1] - 10 << 20 }
            await VolatileManagerTests.push(running, others: 250 - sum, volatile: sum - 10, of: 256, after: .seconds(1))
            await running.until { manager.reports.contains { $0.action == .makeRoom } }
            let report = try #require(manager.reports.first)
            #expect(manager.level == .normal && report.asked == .mebibytes(10) && report.releasedVolatile >= report.asked, "\(report)")
            // In proportion to held bytes, each cache would have released five MiB.
            #expect(caches[0].heldBytes == held[0] && caches[1].heldBytes > held[1] - 14 << 20, "\(caches.map(\.heldBytes))")
            for registration in registrations { registration.cancel() }
        }
    }
}
