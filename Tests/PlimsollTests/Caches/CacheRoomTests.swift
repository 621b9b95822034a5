import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Limits, and room that an insert needs from other entries, other threads and other caches.
@Suite(.timeLimit(.minutes(5))) struct CacheRoomTests {
    private func cache(_ limit: Int = .max, shards: Int = 1) -> PurgeableCache<Int, Int> {
        PurgeableCache(
            "room", limit: .bytes(limit), lifetime: CacheLifetime(nil, nil, nil), shardCount: shards, time: .running,
            hashSeed: 3, cost: { _, value in value })
    }

    // MARK: Limits

    /// A key whose comparison waits for a gate.
    struct GatedKey: Hashable, Sendable {
        let number: Int
        var gate: Blockade?

        static func == (left: GatedKey, right: GatedKey) -> Bool {
            left.gate?.wait()
            right.gate?.wait()
            return left.number == right.number
        }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    @Test(.needsLinux) func `a call that sets the limit waits for inserts in progress`() async {
        let cache = PurgeableCache<GatedKey, Int>("gated", limit: .bytes(100), shardCount: 1, cost: { _, _ in 1 })
        let gate = Blockade(), inserted = Counter(), threads = Log<Int32>(), limited = Counter()
        cache.insert(1, forKey: GatedKey(number: 1))
        #expect(
            Thread.start("insert") {
                cache.insert(2, forKey: GatedKey(number: 1, gate: gate))
                inserted.add(1)
            })
        await until("the comparison") { gate.count == 1 }
        #expect(
            Thread.start("limit") {
                threads.add(threadNumber)
                cache.limit = .bytes(200)
                limited.add(1)
            })
        await until("the wait for the insert") {
            limited.value > 0 || threads.all.first.map { isBlocked($0) } ?? false
        }
        #expect(limited.value == 0 && inserted.value == 0)
        gate.open()
        await until("the limit") { limited.value == 1 && inserted.value == 1 }
        #expect(cache.limit == 200 && cache.count == 1)
    }

    @Test func `a lowered limit holds only after other threads have given up what they reserved`() async {
        let cache = cache(100), seen = Log<Int>()
        // As by an insert that has reserved room, and that has linked no entry yet.
        cache.counters.total.pointee.wrappingAdd(10, ordering: .relaxed)
        #expect(
            Thread.start("limit") {
                cache.limit = .bytes(5)
                seen.add(cache.byteCount)
            })
        await until("the new bound") { cache.counters.bound.pointee.load(ordering: .relaxed) == 5 }
        cache.counters.total.pointee.wrappingSubtract(10, ordering: .relaxed)
        await until("the new limit") { seen.all.count == 1 }
        #expect(seen.all == [0] && cache.limit == 5)
    }

    @Test(.needsLinux) func `a limit lowered beside pinned entries waits for what other threads have reserved as well`() async {
        let cache = cache(100), seen = Log<Int>(), threads = Log<Int32>()
        cache.insert(10, forKey: 1)
        #expect(cache.pin(1))
        cache.counters.total.pointee.wrappingAdd(60, ordering: .relaxed)
        #expect(
            Thread.start("limit") {
                threads.add(threadNumber)
                cache.limit = .bytes(50)
                seen.add(cache.byteCount)
            })
        await until("the wait for the reservation") {
            guard cache.counters.bound.pointee.load(ordering: .relaxed) == 50 else { return false }
            return !seen.all.isEmpty || threads.all.first.map { isBlocked($0) } ?? false
        }
        cache.counters.total.pointee.wrappingSubtract(60, ordering: .relaxed)
        await until("the new limit") { seen.all.count == 1 }
        #expect(seen.all == [10] && cache.limit == 50 && cache.pinnedCount == 1)
    }

    @Test func `an entry above a lowered limit leaves once no longer pinned`() {
        let cache = cache(1000)
        for key in 0..<10 { cache.insert(10, forKey: key) }
        #expect(cache.pin(3) && cache.pin(3) && cache.pin(4))
        cache.limit = .bytes(15)
        #expect(cache.unpin(3) && cache.byteCount == 20)
        #expect(cache.unpin(3) && cache.byteCount == 10 && cache.contains(4))
        #expect(cache.unpin(4) && cache.contains(4) && cache.statistics.evictions == 9)
    }

    @Test func `a limit below the pinned bytes evicts the other entries`() {
        let cache = cache(1000)
        for key in 0..<10 { cache.insert(10, forKey: key) }
        #expect(cache.pin(3))
        cache.limit = .bytes(5)
        #expect(cache.limit == 5 && cache.count == 1 && cache.contains(3) && !cache.insert(1, forKey: 20))
    }

    @Test func `listeners find the former limit until a lower one holds`() {
        let cache = cache(50), limits = Log<Int>()
        for key in 0..<5 { cache.insert(10, forKey: key) }
        cache.onRemoval { [unowned cache] _, _, _ in limits.add(cache.limit.bytes) }
        cache.limit = .bytes(20)
        #expect(limits.all == [50, 50, 50] && cache.limit == 20 && cache.byteCount == 20)
        cache.limit = .bytes(70)
        #expect(cache.limit == 70)
    }

    @Test func `an insert into room that others never give up is refused`() {
        let cache = cache(10)
        cache.counters.total.pointee.wrappingAdd(10, ordering: .relaxed)
        #expect(!cache.insert(5, forKey: 1) && cache.count == 0 && cache.byteCount == 10)
        #expect(cache.statistics.rejected == 1)
    }

    @Test func `a larger value under a key evicts only what the limit lacks, from several shards`() {
        let cache = cache(shards: 8)
        for key in 0..<2000 { cache.insert(1, forKey: key) }
        cache.insert(100, forKey: -1)
        cache.limit = .bytes(2100)
        #expect(cache.directory.shards > 2)
        #expect(cache.insert(500, forKey: -1) && cache.value(forKey: -1) == 500)
        #expect(cache.byteCount == 2100 && cache.count == 1601)
        #expect(cache.statistics.evictions == 400 && cache.statistics.replaced == 1)
    }

    // MARK: Pins

    @Test func `an insert that pinned entries leave no room for changes nothing, not even the key's own entry`() {
        let cache = cache(100)
        cache.insert(60, forKey: 0)
        cache.insert(20, forKey: 1)
        #expect(cache.pin(0))
        #expect(!cache.insert(45, forKey: 1) && cache.value(forKey: 1) == 20 && cache.byteCount == 80)
        cache.insert(10, forKey: 2)
        #expect(!cache.insert(45, forKey: 1) && cache.count == 3 && cache.byteCount == 90)
        #expect(cache.insert(40, forKey: 1) && cache.value(forKey: 1) == 40 && cache.byteCount == 100)
    }

    @Test func `an insert beside pinned entries of several shards waits for what others have reserved`() {
        let cache = cache(1000, shards: 4)
        for key in 0..<600 {
            cache.insert(1, forKey: key)
            #expect(cache.pin(key))
        }
        #expect(cache.directory.shards == 2)
        // As by inserts that have reserved room, and that have linked no entry yet.
        cache.counters.total.pointee.wrappingAdd(200, ordering: .relaxed)
        // Each attempt begins with another shard.
        for _ in 0..<16 {
            var room = CostReservation(wanted: 300)
            var leaving = PurgeableCache<Int, Int>.Leaving()
            let mayTryAgain = cache.evictElsewhere(&room, &leaving)
            #expect(mayTryAgain && room.held == 0)
        }
        cache.counters.total.pointee.wrappingSubtract(200, ordering: .relaxed)
        #expect(cache.byteCount == 600 && cache.pinnedCount == 600)
    }

    @Test func `an insert that pinned entries leave no room for in memory evicts no other entry`() {
        let meter = ChargeMeter {}, cache = cache()
        _ = cache.attach(meter)
        cache.insert(90, forKey: 0)
        cache.insert(10, forKey: 1)
        #expect(cache.pin(0))
        meter.allow(5, since: meter.heldBytes)
        #expect(!cache.insert(16, forKey: 2) && cache.count == 2 && meter.heldBytes == 100)
        #expect(cache.insert(15, forKey: 2) && cache.byteCount == 105 && meter.heldBytes == 105)
        #expect(!cache.insert(106, forKey: 0) && cache.count == 2)
        #expect(cache.insert(105, forKey: 0) && cache.count == 1 && cache.pinnedCount == 1)
    }

    // MARK: Memory

    @Test func `an insert may take the room in memory and all of the cache's own bytes`() {
        let meter = ChargeMeter {}
        do {
            let cache = cache()
            for key in 0..<10 { cache.insert(10, forKey: key) }
            #expect(cache.attach(meter) && meter.heldBytes == 100)
            meter.allow(50, since: meter.heldBytes)
            #expect(!cache.insert(151, forKey: 20) && cache.count == 10)
            #expect(cache.insert(150, forKey: 21) && cache.count == 1 && cache.byteCount == 150)
            #expect(meter.heldBytes == 150)
        }
        #expect(meter.heldBytes == .zero, "the cache has ended")
    }

    @Test func `an insert evicts only what memory lacks, from several shards`() {
        let meter = ChargeMeter {}, cache = cache(shards: 8)
        _ = cache.attach(meter)
        for key in 0..<2000 { cache.insert(1, forKey: key) }
        meter.allow(50, since: meter.heldBytes)
        #expect(cache.directory.shards > 2)
        #expect(cache.insert(350, forKey: -1) && cache.byteCount == 2050 && cache.count == 1701)
    }

    // MARK: Shares

    @Test func `an insert beyond the share evicts down to the share, from several shards`() {
        let meter = ChargeMeter {}, cache = cache(shards: 8)
        _ = cache.attach(meter)
        for key in 0..<2000 { cache.insert(1, forKey: key) }
        meter.allow(100, since: meter.heldBytes)
        cache.setShare(2010)
        meter.share(from: [], lacking: 100)
        #expect(cache.insert(300, forKey: -1) && cache.byteCount == 2010 && cache.count == 1711)
    }

    @Test func `a cache fills its share to the last byte from the reserved room, and no more`() {
        let meter = ChargeMeter {}, first = cache(), second = cache()
        _ = (first.attach(meter), second.attach(meter))
        meter.allow(1000, since: .zero)
        for key in 0..<90 { first.insert(10, forKey: key) }
        first.setShare(900)
        second.setShare(100)
        meter.share(from: [], lacking: 100)
        for key in 0..<20 { #expect(second.insert(10, forKey: key)) }
        #expect(first.byteCount == 900 && second.byteCount == 100)
    }

    @Test func `a cache without a share may take the reserved room`() {
        let meter = ChargeMeter {}, cache = cache()
        _ = cache.attach(meter)
        meter.allow(1000, since: .zero)
        meter.share(from: [], lacking: 500)
        for key in 0..<120 { cache.insert(10, forKey: key) }
        #expect(cache.byteCount == 1000)
    }

    @Test func `other caches make room only for what an insert lacks, and not for a limit`() {
        let meter = ChargeMeter {}, first = cache(), second = cache(150)
        _ = (first.attach(meter), second.attach(meter))
        meter.allow(1000, since: .zero)
        for key in 0..<90 { first.insert(10, forKey: key) }
        second.insert(100, forKey: 0)
        first.setShare(600)
        second.setShare(400)
        meter.share(from: [first], lacking: 300)
        // The limit has just enough room for the larger value.
        #expect(second.insert(150, forKey: 0) && second.byteCount == 150 && first.byteCount == 850)
        // The limit is reached, although memory has no room either.
        #expect(second.insert(10, forKey: 1) && second.byteCount == 10 && first.byteCount == 850)
        meter.share(from: [], lacking: 0)
    }

    @Test func `a byte above the share is evicted`() {
        let cache = cache()
        for key in 0..<301 { cache.insert(1, forKey: key) }
        cache.setShare(300)
        #expect(cache.evictAboveShare(.max) == 1 && cache.evictAboveShare(.max) == 0 && cache.byteCount == 300)
    }
}
