import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The division of memory in a manager.
@Suite(.timeLimit(.minutes(5))) struct DividerTests {
    /// A policy without a reserve for bursts, so that the room for caches is known.
    private let policy = PressurePolicy(thresholds: PressureThresholds(burstReserve: 0), division: .byWorth)

    /// Requests a few popular keys more often than other keys.
    private func request(_ cache: PurgeableCache<Int, Int>, _ count: Int, keys: Int, _ random: inout SeededGenerator) {
        for _ in 0..<count {
            let draws = (0..<4).map { _ in Double.random(in: 0..<1, using: &random) }
            let key = Int(Double(keys) * draws.reduce(1, *))
            if cache.value(forKey: key) == nil { cache.insert(1000, forKey: key) }
        }
    }

    private func shares(_ manager: ResourceManager) -> [String: Int] {
        Dictionary(uniqueKeysWithValues: manager.parts.purgeables.snapshot.map { ($0.name, $0.currentShare) })
    }

    @Test func `caches that share memory are deallocated with their manager`() {
        weak var kept: PurgeableCache<Int, Int>?
        do {
            let manager = ResourceManager(source: ScriptedPressureSource(), policy: policy)
            let cache = PurgeableCache<Int, Int>("one") { _, value in value }
            manager.register(cache)
            manager.parts.meter.share(from: [cache], lacking: 1)
            kept = cache
        }
        #expect(kept == nil)
    }

    @Test func `a cache that outlives its manager learns no more and has no share`() {
        let cache = PurgeableCache<Int, Int>("one") { _, value in value }
        do {
            let manager = ResourceManager(source: ScriptedPressureSource(), policy: policy)
            manager.register(cache)
            cache.learn {}
            cache.insert(1, forKey: 1)
            _ = cache.endRound(upTo: 1000, at: .zero)
            cache.setShare(100)
            #expect(cache.counters.sampled.pointee.load(ordering: .relaxed) > 0)
        }
        #expect(cache.counters.sampled.pointee.load(ordering: .relaxed) == 0)
        #expect(cache.counters.share.pointee.load(ordering: .relaxed) == 0)
    }

    /// A value whose deinit uses the meter, like a deinit that inserts into another cache.
    private final class Lender: Sendable {
        let meter: ChargeMeter
        let count: Counter
        init(_ meter: ChargeMeter, _ count: Counter) { (self.meter, self.count) = (meter, count) }
        deinit { count.add(meter.makeRoom(1) + 1) }
    }

    @Test func `the last reference to a cache that shared is not dropped under the meter's lock`() {
        let meter = ChargeMeter {}, count = Counter()
        do {
            let cache = PurgeableCache<Int, Lender>("one") { _, _ in 1 }
            cache.insert(Lender(meter, count), forKey: 1)
            meter.share(from: [cache], lacking: 1)
        }
        meter.share(from: [], lacking: 0)
        #expect(count.value == 1)
    }

    /// A cache that is only numbers, and that learns the curve that a test sets.
    private final class FakeCache: SharedPurgeable {
        private struct State {
            var held: Int
            var curve: MissCurve?
            var asked: [Int] = []
        }

        let name: String, rebuildCost = RebuildCost.cheap, calls = Log<String>()
        private let state: Mutex<State>
        private let onStop: @Sendable () -> Void

        init(_ name: String, held: Int, onStop: @escaping @Sendable () -> Void = {}) {
            (self.name, self.onStop) = (name, onStop)
            state = Mutex(State(held: held))
        }

        /// The bytes that the cache was asked to evict, call by call.
        var asked: [Int] { state.withLock { $0.asked } }
        var statistics: CacheStatistics { CacheStatistics() }
        var holdsAtMost: ByteCount? { nil }
        var heldBytes: Int {
            get { state.withLock { $0.held } }
            set { state.withLock { $0.held = newValue } }
        }

        /// Sets the misses of a thousand requests in 4 MiB. Without memory each request misses.
        func miss(_ misses: Double) {
            let curve = MissCurve(requests: 1000, points: [.init(bytes: 4 << 20, misses: misses)])
            state.withLock { $0.curve = curve }
        }

        func attach(_ meter: ChargeMeter) -> Bool { true }
        func release(_ target: Int) -> Int { 0 }
        func learn(onRound: (@Sendable () -> Void)?) {
            calls.add(onRound == nil ? "stop" : "learn")
            if onRound == nil { onStop() }
        }
        func endRound(upTo bytes: Int, at now: Duration) -> Learnt? {
            state.withLock { $0.curve }.map { Learnt(curve: $0, loadTime: 1e6, rate: nil) }
        }
        func setShare(_ bytes: Int?) {}
        func evictAboveShare(_ count: Int) -> Int {
            state.withLock { $0.asked.append(count) }
            return count
        }
    }

    private static func divider(
        of caches: [FakeCache], _ meter: ChargeMeter, _ clock: ManualClock = ManualClock()
    ) -> Divider {
        let registry = PurgeableRegistry()
        for cache in caches { registry.add(PurgeableRegistry.Entry(cache, meter: meter, volatileMeter: meter)) }
        return Divider(registry: registry, meter: meter, time: clock.timekeeper) {}
    }

    private static func round(_ divider: Divider) {
        divider.round { _, body in
            body()
            return true
        }
    }

    @Test func `the last sixteen moves are kept, and rounds eleven seconds apart are a move each`() {
        let clock = ManualClock(), caches = ["one", "two"].map { FakeCache($0, held: 1 << 20) }
        let divider = Self.divider(of: caches, ChargeMeter {}, clock)
        for number in 1...20 {
            // Memory saves loads of one cache alone, and in the next round of the other cache alone.
            for (index, cache) in caches.enumerated() { cache.miss((number + index).isMultiple(of: 2) ? 0 : 1000) }
            clock.advance(by: .seconds(11))
            Self.round(divider)
        }
        #expect(divider.moves.map(\.at) == (5...20).map { Duration.seconds(11 * $0) })
    }

    @Test func `caches may take the share of the process less the bytes that they hold`() {
        let meter = ChargeMeter {}, divider = Self.divider(of: [FakeCache("one", held: 2 << 20)], meter)
        #expect(divider.allowance(held: .zero, room: nil) == nil, "no share")
        // One of the three MiB on the meter belongs to a cache that takes no part.
        meter.takeAnyway(3 << 20)
        divider.share(ProcessShare(bytes: 4 << 20, total: 64 << 20))
        Self.round(divider)
        #expect(divider.allowance(held: .mebibytes(3), room: nil) == .mebibytes(2))
        #expect(divider.allowance(held: .mebibytes(6), room: nil) == .zero)
    }

    @Test func `only a cache above its share is asked to make room`() {
        let meter = ChargeMeter {}, caches = ["one", "two"].map { FakeCache($0, held: 1 << 20) }
        let divider = Self.divider(of: caches, meter)
        // The two shares are what the two caches hold.
        divider.share(ProcessShare(bytes: 2 << 20, total: 64 << 20))
        Self.round(divider)
        #expect(meter.makeRoom(100) == 0 && caches.allSatisfy(\.asked.isEmpty))
        caches[0].heldBytes = 2 << 20
        divider.share(ProcessShare(bytes: 3 << 20, total: 64 << 20))
        Self.round(divider)
        #expect(meter.makeRoom(100) == 100 && caches[0].asked == [100] && caches[1].asked.isEmpty)
    }

    @Test func `a cache whose registration ends during a round gets no share, and makes no room for others`() {
        let manager = ResourceManager(source: ScriptedPressureSource(), policy: policy)
        let caches = ["one", "two"].map { name in PurgeableCache<Int, Int>(name) { _, value in value } }
        let registrations = caches.map { manager.register($0) }
        for key in 0..<3000 { caches[0].insert(1000, forKey: key) }
        manager.parts.divider.share(ProcessShare(bytes: 2 << 20, total: 64 << 20))
        var isRegistered = true
        manager.parts.divider.round { entry, body in
            body()
            // Once: both caches have learnt, and have no share yet.
            if entry.name == "two", isRegistered {
                registrations[0].cancel()
                isRegistered = false
            }
            return true
        }
        let shares = caches.map { $0.counters.share.pointee.load(ordering: .relaxed) }
        #expect(!isRegistered && shares[0] == 0 && shares[1] > 0)
        #expect(caches[0].counters.sampled.pointee.load(ordering: .relaxed) == 0)
        #expect(manager.parts.meter.makeRoom(100) == 0 && caches[0].count == 3000)
    }

    @Test func `a round that is under way does not make a cache learn again whose registration is ending`() {
        let manager = ResourceManager(source: ScriptedPressureSource(), policy: policy)
        let blockade = Blockade(), cancelled = Counter()
        let leaving = FakeCache("leaving", held: 0, onStop: { blockade.wait() })
        let staying = FakeCache("staying", held: 0)
        let registration = manager.register(leaving)
        manager.register(staying)
        manager.parts.divider.round { entry, body in
            if entry.name == "leaving" {
                _ = Thread.start("cancel") {
                    registration.cancel()
                    cancelled.add(1)
                }
                blockUntil("the end of learning") { blockade.count == 1 }
            }
            body()
            return true
        }
        blockade.open()
        blockUntil("the end of the registration") { cancelled.value == 1 }
        #expect(leaving.calls.all == ["stop"] && staying.calls.all == ["learn"])
        withExtendedLifetime(manager) {}
    }

    @Test func `one cache without a limit learns nothing`() async throws {
        try await RunningManager.run(policy: policy) { running in
            let cache = PurgeableCache<Int, Int>("one") { _, value in value }
            let limited = PurgeableCache<Int, Int>("limited", limit: .mebibytes(1)) { _, value in value }
            let registrations = [running.manager.register(cache), running.manager.register(limited)]
            await running.available(.mebibytes(500), after: .seconds(11))
            await running.available(.mebibytes(500), after: .seconds(11))
            #expect(cache.counters.sampled.pointee.load(ordering: .relaxed) == 0)
            #expect(limited.counters.sampled.pointee.load(ordering: .relaxed) == 0)
            withExtendedLifetime(registrations) {}
        }
    }

    @Test func `caches whose loads differ get shares, and give them up when they leave`() async throws {
        try await RunningManager.run(policy: policy) { running in
            let cheap = PurgeableCache<Int, Int>("cheap", rebuildCost: .trivial) { _, value in value }
            let dear = PurgeableCache<Int, Int>("dear", rebuildCost: .expensive) { _, value in value }
            let first = running.manager.register(cheap), second = running.manager.register(dear)
            var random = SeededGenerator(seed: usualSeed(3))
            // Little more memory is available than caches leave free, so that one cache gains only what another lacks.
            await running.available(.mebibytes(290), after: .seconds(11))
            // The round that makes the caches learn must not count below.
            await running.until { running.manager.parts.divider.rounds > 0 }
            #expect(dear.counters.sampled.pointee.load(ordering: .relaxed) > 0)
            for _ in 0..<20 {
                request(cheap, 30_000, keys: 500_000, &random)
                request(dear, 30_000, keys: 500_000, &random)
                let rounds = running.manager.parts.divider.rounds
                await running.available(.mebibytes(290), after: .seconds(11))
                await running.until { running.manager.parts.divider.rounds > rounds }
                let now = shares(running.manager), hasMoved = running.manager.status.moves?.isEmpty == false
                if hasMoved, now["dear", default: 0] > now["cheap", default: 0], now["cheap", default: 0] > 0 { break }
            }
            let last = shares(running.manager)
            #expect(last["dear", default: 0] > last["cheap", default: 0] && last["cheap", default: 0] > 0, "\(last)")
            let status = running.manager.status, moves = try #require(status.moves)
            for holder in status.holders {
                let worth = try #require(holder.worth)
                #expect(worth.shareBytes == last[holder.name] && worth.requestsPerSecond > 1000)
                // Besides the sizes, the curve has an end, the cache's own misses, and the two sides of a cliff.
                let sizes = CurveMeter.sizes.count
                #expect((sizes...sizes + 4).contains(worth.curve.count) && worth.less.savedLoadSecondsPerMinute <= 0)
            }
            // Rounds are eleven seconds apart, so that each round is a move of its own.
            #expect(moves.count > 0 && moves.count <= Divider.mostMoves && zip(moves, moves.dropFirst()).allSatisfy { $0.atSeconds < $1.atSeconds })
            #expect(moves.allSatisfy { $0.changes.first?.name == "dear" && $0.savedShare >= Division.leastGain }, "\(moves)")
            second.cancel()
            #expect(dear.counters.share.pointee.load(ordering: .relaxed) == 0)
            #expect(dear.counters.sampled.pointee.load(ordering: .relaxed) == 0)
            let rounds = running.manager.parts.divider.rounds
            await running.available(.mebibytes(290), after: .seconds(11))
            await running.until { running.manager.parts.divider.rounds > rounds }
            #expect(running.manager.status.holders.allSatisfy { $0.worth == nil })
            first.cancel()
        }
    }

    @Test func `a share of the process bounds its caches, and a single cache learns the worth of memory`() async throws {
        try await RunningManager.run(policy: policy) { running in
            let cache = PurgeableCache<Int, Int>("one") { _, value in value }
            let limited = PurgeableCache<Int, Int>("limited", limit: .mebibytes(8)) { _, value in value }
            let manager = running.manager, registrations = [manager.register(cache), manager.register(limited)]
            for key in 0..<4000 { limited.insert(1000, forKey: key) }
            var random = SeededGenerator(seed: usualSeed(5))
            func round() async {
                let rounds = manager.parts.divider.rounds
                await running.available(.mebibytes(500), after: .seconds(11))
                await running.until { manager.parts.divider.rounds > rounds }
            }
            await round()
            #expect(manager.worthOffer == nil && cache.counters.sampled.pointee.load(ordering: .relaxed) == 0)
            manager.setProcessShare(ProcessShare(bytes: nil, total: 64 << 20))
            for _ in 0..<20 where manager.worthOffer?.curve.isReliable != true {
                request(cache, 30_000, keys: 60_000, &random)
                await round()
            }
            let offer = try #require(manager.worthOffer)
            #expect(offer.held == cache.heldBytes && offer.room > 100 << 20 && offer.room < 500 << 20, "\(offer)")
            // The load time of a cheap cache is a millisecond.
            let curve = offer.curve
            #expect(curve.misses(at: 64 << 20) < curve.misses(at: 1 << 20) && curve.misses(at: 0) > 1000 * 1e6, "\(curve)")
            manager.setProcessShare(ProcessShare(bytes: 4 << 20, total: 64 << 20))
            await round()
            #expect(cache.heldBytes <= 4 << 20 && cache.heldBytes > 3 << 20, "\(cache.heldBytes)")
            request(cache, 100_000, keys: 60_000, &random)
            await round()
            #expect(cache.heldBytes <= 4 << 20 && cache.heldBytes > 3 << 20, "\(cache.heldBytes)")
            #expect(limited.heldBytes == 4_000_000, "a cache with a limit takes no part")
            manager.setProcessShare(ProcessShare(bytes: 0, total: 64 << 20))
            await round()
            #expect(cache.heldBytes < 2000, "nothing is a share, too: \(cache.heldBytes)")
            manager.setProcessShare(nil)
            await round()
            #expect(manager.worthOffer == nil && cache.counters.sampled.pointee.load(ordering: .relaxed) == 0)
            request(cache, 100_000, keys: 60_000, &random)
            #expect(cache.heldBytes > 8 << 20, "\(cache.heldBytes)")
            withExtendedLifetime(registrations) {}
        }
    }

    @Test func `a share changes nothing where memory is divided in proportion`() async throws {
        var policy = policy
        policy.division = .proportional
        try await RunningManager.run(policy: policy) { running in
            let cache = PurgeableCache<Int, Int>("one") { _, value in value }, registration = running.manager.register(cache)
            running.manager.setProcessShare(ProcessShare(bytes: 1 << 20, total: 1 << 30))
            await running.available(.mebibytes(500), after: .seconds(11))
            for key in 0..<4000 { cache.insert(1000, forKey: key) }
            await running.available(.mebibytes(500), after: .seconds(11))
            #expect(cache.heldBytes == 4_000_000 && running.manager.worthOffer == nil)
            withExtendedLifetime(registration) {}
        }
    }

    @Test func `a limit set by hand, or the end of the registration, ends a cache's part`() async throws {
        try await RunningManager.run(policy: policy) { running in
            let caches = ["one", "two", "three"].map { name in PurgeableCache<Int, Int>(name) { _, value in value } }
            let registrations = caches.map { running.manager.register($0) }
            func sampled(_ cache: PurgeableCache<Int, Int>) -> Bool {
                cache.counters.sampled.pointee.load(ordering: .relaxed) > 0
            }
            await running.available(.mebibytes(500), after: .seconds(11))
            await running.until { caches.allSatisfy(sampled) }
            caches[0].limit = .mebibytes(1)
            await running.available(.mebibytes(500), after: .seconds(11))
            await running.until { !sampled(caches[0]) }
            #expect(sampled(caches[1]) && sampled(caches[2]))
            registrations[1].cancel()
            #expect(!sampled(caches[1]))
            // The last cache has no other cache to share with.
            await running.available(.mebibytes(500), after: .seconds(11))
            await running.until { !sampled(caches[2]) }
            withExtendedLifetime(registrations) {}
        }
    }
}
