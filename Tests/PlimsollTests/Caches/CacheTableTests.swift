import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Slots, queues and optional data of a shard, through splits, compaction and reuse.
@Suite struct CacheTableTests {
    typealias Object = CacheVisitTests.Object

    private func cache<Value: Sendable>(
        _ type: Value.Type, limit: Int = .max, shards: Int = 1, seed: UInt64 = 7, _ clock: ManualClock = ManualClock()
    ) -> PurgeableCache<Int, Value> {
        PurgeableCache(
            "table", limit: .bytes(limit), lifetime: CacheLifetime(nil, nil, nil), shardCount: shards,
            time: clock.timekeeper, hashSeed: seed, cost: { _, _ in 1 })
    }

    /// Makes the only shard compact, in at most so many moves. Returns true if the shard is compact.
    private func compact<Value: Sendable>(_ cache: PurgeableCache<Int, Value>, atMost moves: Int) -> Bool {
        typealias Layout = SlotLayout<Int, Value>
        let shard = cache.directory.shard(at: 0)
        return shard.lock.pointee.withLock { table in
            Layout.writing(shard) {
                table.compact(atMost: moves) { from, to in
                    Layout.move(shard.place(from, Layout.pairSize).pair, shard.place(to, Layout.pairSize).pair)
                }
            }
        }
    }

    /// Returns the keys of the shard at a place of the directory, next to be evicted first.
    private func order(_ cache: PurgeableCache<Int, Int>, at place: Int) -> [Int] {
        let shard = cache.directory.shard(at: place)
        return shard.lock.pointee.withLock { table in
            table.order().map { shard.place($0, SlotLayout<Int, Int>.pairSize).pair.load(as: Int.self) }
        }
    }

    // MARK: Compaction

    @Test(
        arguments: [
            // More than 1024 slots are free.
            (1500, 475, true), (1500, 476, false), (2048, 1023, true), (2048, 1024, false),
            // Less than half of the slots are in use.
            (4000, 1999, true), (4000, 2000, false),
        ])
    func `a shard becomes compact after a release if most of many slots are free`(slots: Int, left: Int, isCompact: Bool) {
        let cache = cache(Int.self)
        for key in 0..<slots { cache.insert(key, forKey: key) }
        for key in left + 1..<slots { cache.removeValue(forKey: key) }
        // The release takes the oldest entry.
        #expect(cache.release(1) == 1 && cache.count == left)
        #expect(cache.sum { $0.top } == (isCompact ? left : slots))
        #expect((1...left).allSatisfy { cache.value(forKey: $0) == $0 })
    }

    @Test func `costs, tags, times, pins, uses and the order come along when a shard becomes compact`() {
        let clock = ManualClock(), cache = cache(Object.self, clock), alive = Counter()
        for key in 0..<3000 {
            let tags = key % 3 == 0 ? ["third"] : [], timeToLive = key % 5 == 0 ? Duration.seconds(10) : nil
            cache.insert(Object(key, alive: alive), forKey: key, cost: key % 7, tags: tags, timeToLive: timeToLive)
        }
        let kept = (0..<3000).filter { $0 % 4 == 3 }
        for key in 0..<3000 where key % 4 != 3 { cache.removeValue(forKey: key) }
        // Entries whose pins have ended are in the other queue.
        for key in [1003, 2007] { #expect(cache.pin(key) && cache.unpin(key)) }
        for key in [7, 2999, 2999] { #expect(cache.pin(key)) }
        for key in [11, 1007, 2003] { #expect(cache.value(forKey: key)?.number == key) }
        let order = cache.coldest().map(\.key)
        #expect(order.count == 750)

        #expect(!compact(cache, atMost: 10) && cache.sum { $0.top } == 2990)
        #expect(compact(cache, atMost: .max) && cache.sum { $0.top } == 750)
        #expect(cache.coldest().map(\.key) == order && cache.coldest().allSatisfy { $0.value.number == $0.key })
        #expect(cache.count(tag: "third") == kept.count { $0 % 3 == 0 } && cache.pinnedCount == 2)
        #expect(cache.unpin(2999) && cache.unpin(2999) && !cache.unpin(2999) && cache.unpin(7) && !cache.unpin(7))

        clock.freeze(for: .seconds(11))
        for key in 10_000..<10_040 { cache.insert(Object(key, alive: alive), forKey: key, cost: 0) }
        #expect(cache.statistics.expired == kept.count { $0 % 5 == 0 })
        #expect(cache.coldest().count == cache.count && alive.value == cache.count)
        for key in kept where key % 5 != 0 {
            let before = cache.byteCount
            #expect(cache.removeValue(forKey: key)?.number == key && before - cache.byteCount == key % 7)
        }
        #expect(cache.byteCount == 0 && cache.count == 40 && cache.count(tag: "third") == 0)
        cache.removeAll()
        #expect(alive.value == 0)
    }

    // MARK: Splits

    @Test(arguments: [(511, 1), (512, 2)]) func `a shard splits at 512 entries`(count: Int, shards: Int) {
        let cache = cache(Int.self, shards: 2)
        for key in 0..<count { cache.insert(key, forKey: key) }
        #expect(cache.directory.shards == shards)
    }

    @Test func `queues, uses, pins and remembered evictions come along when a shard splits`() {
        let cache = cache(Int.self, limit: 400, shards: 2)
        for key in 0..<600 { cache.insert(key, forKey: key) }
        cache.limit = 10_000
        // The first 200 keys were evicted. Of the others some are in the main queue, some pinned, and some used.
        for key in 200..<300 { #expect(cache.pin(key) && cache.unpin(key)) }
        for key in 300..<350 { #expect(cache.pin(key)) }
        for key in 350..<400 { #expect(cache.value(forKey: key) == key) }
        for key in 1000..<1111 { cache.insert(key, forKey: key) }
        #expect(cache.directory.shards == 1)
        let before = order(cache, at: 0)
        cache.insert(1111, forKey: 1111)
        #expect(cache.directory.shards == 2 && before.count == 511 && cache.count == 512)
        for place in 0..<2 {
            let expected = before.filter { Int(cache.hasher.of($0) >> 31) == place }
            #expect(expected.count > 150 && order(cache, at: place).filter { $0 != 1111 } == expected)
        }
        let remembered = (0..<200).count { key in
            let hash = cache.hasher.of(key)
            return cache.directory.shard(of: hash).lock.pointee.withLock { $0.ghosts.remove(hash) }
        }
        #expect(remembered > 150, "\(remembered)")
        #expect(cache.pinnedCount == 50 && (300..<350).allSatisfy { cache.unpin($0) && !cache.unpin($0) })
        #expect(cache.evict(count: 1000) == 512 && cache.byteCount == 0)
    }

    @Test(arguments: [0, 1], [true, false])
    func `a shard with half of an even share takes room from a larger one`(place: Int, isPlain: Bool) {
        let cache = cache(Int.self, shards: 2)
        var keys: [[Int]] = [[], []], next = 0
        while keys[0].count < 600 || keys[1].count < 600 {
            keys[Int(cache.hasher.of(next) >> 31)].append(next)
            next += 1
        }
        let few = keys[place], many = keys[1 - place]
        for key in few[..<200] { cache.insert(key, forKey: key, tags: isPlain || key != few[0] ? [] : ["t"]) }
        for key in many[..<600] { cache.insert(key, forKey: key) }
        cache.limit = .bytes(800)
        func cost(_ place: Int) -> Int { cache.directory.shard(at: place).lock.pointee.withLock { $0.cost } }
        #expect(cache.directory.shards == 2 && cost(place) == 200 && cost(1 - place) == 600)
        #expect(cache.insert(few[200], forKey: few[200]))
        #expect(cost(place) == 201 && cost(1 - place) == 599 && cache.byteCount == 800)
        // The shard of the new entry has made room to remember evictions.
        #expect(cache.directory.shard(at: place).lock.pointee.withLock { $0.ghosts.entries } == 201)
    }

    // MARK: Reuse

    @Test func `a value without times lives for ever, in the slot of an entry with a time and in a new one`() {
        let clock = ManualClock(), cache = cache(String.self, clock)
        for key in 0..<20 { cache.insert("short", forKey: key, timeToLive: .seconds(1)) }
        cache.removeValue(forKey: 3)
        // As if these inserts had begun before any entry had a time.
        for key in 100..<140 { #expect(cache.insert("long", forKey: key, cost: 1, tags: [], times: nil, of: nil)) }
        clock.freeze(for: .seconds(100))
        #expect((100..<140).allSatisfy { cache.value(forKey: $0) == "long" })
        #expect((0..<20).allSatisfy { cache.value(forKey: $0) == nil })
    }

    @Test func `an entry without tags in the slot of a tagged one leaves the tags of others`() {
        let cache = cache(String.self)
        cache.insert("a", forKey: 1, tags: ["t"])
        cache.removeValue(forKey: 1)
        cache.insert("b", forKey: 2)
        cache.insert("c", forKey: 3, tags: ["t"])
        #expect(cache.removeValue(forKey: 2) == "b" && cache.count(tag: "t") == 1)
        #expect(cache.purge(tag: "t") == 1 && cache.count == 0)
    }

    @Test func `no pin is left after all entries were removed`() {
        let cache = cache(Int.self)
        for key in 0..<10 { cache.insert(key, forKey: key) }
        #expect(cache.pin(0) && cache.pin(5))
        cache.removeAll()
        #expect(cache.byteCount == 0 && cache.pinnedCount == 0)
        for key in 0..<10 { cache.insert(key, forKey: key) }
        #expect((0..<10).allSatisfy { !cache.unpin($0) } && cache.evict(count: 20) == 10)
    }

    @Test(arguments: [true, false]) func `former times of removed and replaced entries hold up no expiry`(isRemoved: Bool) {
        let clock = ManualClock(), cache = cache(String.self, clock)
        for key in 0..<10 { cache.insert("old", forKey: key, timeToLive: .seconds(1)) }
        if isRemoved { cache.removeAll() }
        for key in 0..<20 { cache.insert("new", forKey: key, timeToLive: .seconds(50)) }
        clock.freeze(for: .seconds(60))
        for key in 100..<110 { cache.insert("later", forKey: key) }
        #expect(cache.statistics.expired == 20 && cache.count == 10)
    }

    @Test func `no entry is found after all were removed, with any hashes`() {
        for seed in 0..<UInt64(64) {
            let cache = cache(Int.self, seed: seed)
            for key in 0..<16 { cache.insert(key, forKey: key) }
            cache.removeAll()
            #expect((0..<16).allSatisfy { cache.value(forKey: $0) == nil && !cache.contains($0) }, "seed \(seed)")
        }
    }

    // MARK: The lock

    @Test func `a look-up of a plain value takes no lock`() {
        let cache = cache(Int.self)
        cache.insert(7, forKey: 1)
        let shard = cache.directory.shard(at: 0)
        let found = shard.lock.pointee.withLock { _ in [cache.value(forKey: 1), cache.value(forKey: 2)] }
        #expect(found == [7, nil] && cache.statistics.hits == 1 && cache.statistics.misses == 1)
    }
}

/// The wheel that finds expired entries, without a cache.
@Suite struct ExpiryWheelTests {
    private let tick = Int64(1) << 27

    @Test func `a wheel begins at the time of the first use`() {
        var wheel = ExpiryWheel()
        #expect(!wheel.isUsed)
        wheel.use(at: 5 * tick + 3)
        #expect(wheel.isUsed && wheel.now == 5 * tick)
        wheel.use(at: 9 * tick)
        #expect(wheel.now == 5 * tick)
    }

    @Test func `an entry that was put off to this very moment is due`() {
        var wheel = ExpiryWheel(), times = SlotColumn<SlotTimes>(usual: SlotTimes())
        wheel.use(at: 0)
        times.use(2, filledWith: SlotTimes())
        times.set(1, SlotTimes(expires: 2 * tick))
        wheel.add(1, &times)
        var own = times[1]
        own.expires = 10 * tick
        times.set(1, own)
        let due = wheel.due(at: 10 * tick, &times)
        #expect(due == 1)
        times.free()
    }
}
