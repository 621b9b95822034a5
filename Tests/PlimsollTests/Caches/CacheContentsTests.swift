import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The views of a cache: its entries, its sample, its snapshot and its status.
@Suite struct CacheContentsTests {
    private let clock = ManualClock(), store = MemoryStateStore()

    private func cache(_ timeToLive: Duration? = nil, limit: Int? = nil, shards: Int = 1) -> PurgeableCache<Int, String> {
        PurgeableCache(
            "contents", limit: limit.map { .bytes($0) }, lifetime: CacheLifetime(timeToLive, nil, nil),
            shardCount: shards, time: clock.timekeeper, hashSeed: 7, cost: { $1.utf8.count })
    }

    // MARK: Entries

    @Test func `an entry is shown until its deadline, and is counted as expired when it is removed later`() {
        let cache = cache(.seconds(10))
        cache.insert("v", forKey: 1)
        clock.freeze(for: .milliseconds(9999))
        #expect(cache.contains(1) && cache.coldest().count == 1 && cache.hottest().count == 1)
        clock.freeze(for: .milliseconds(1))
        #expect(!cache.contains(1) && cache.coldest().isEmpty && cache.hottest().isEmpty && cache.count == 1)
        #expect(cache.removeValue(forKey: 1) == nil && cache.count == 0 && cache.statistics.expired == 1)
    }

    @Test func `expired entries take no place among the coldest or the hottest`() {
        let cache = cache()
        for key in 0..<9 { cache.insert("v", forKey: key, timeToLive: 3..<6 ~= key ? nil : .seconds(10)) }
        clock.freeze(for: .seconds(10))
        #expect(cache.count == 9 && cache.coldest(2).map(\.key) == [3, 4] && cache.hottest(2).map(\.key) == [5, 4])
    }

    @Test func `the coldest half of all entries is the coldest half of each shard`() {
        let cache = cache(shards: 2)
        var keys: [[Int]] = [[], []], next = 0
        while keys[0].count < 600 || keys[1].count < 600 {
            keys[Int(cache.hasher.of(next) >> 31)].append(next)
            next += 1
        }
        for key in keys[0][..<200] + keys[1][..<600] { cache.insert("v", forKey: key) }
        #expect(cache.directory.shards == 2)
        let coldest = Set(cache.coldest(400).map(\.key)), hottest = Set(cache.hottest(400).map(\.key))
        let few = Set(keys[0][..<100]), many = Set(keys[1][..<300])
        // Entries of the two shards with the same relative position come in any order.
        #expect(coldest.count == 400 && coldest.subtracting(few.union(many)).count <= 1)
        #expect(hottest.count == 400 && hottest.intersection(few.union(many)).count <= 1)
    }

    @Test func `a sample comes from all over the contents, with the words of keys and values`() {
        let cache = PurgeableCache<Int, Int>("sampled", shardCount: 1, cost: { _, _ in 1 })
        for key in 0..<1000 { cache.insert(key, forKey: key) }
        var keys: [UInt64] = []
        for (asked, expected) in [(2, 2), (100, 100), (1000, 1000), (2000, 1000)] {
            cache.withSample(of: asked) { sample in keys = sample.map { $0.words[0] } }
            #expect(keys.count == expected && Set(keys).count == expected)
            #expect(keys.contains { $0 < 500 } && keys.contains { $0 > 500 })
        }
        let texts = self.cache()
        texts.insert("text", forKey: 5)
        texts.withSample(of: 1) { sample in
            #expect(sample.count == 1 && sample.first?.words.count == 3 && sample.first?.words.first == 5)
            #expect(sample.first?.inlineBytes == 24 && sample.first?.cost == 4)
        }
    }

    // MARK: Snapshots

    @Test func `a snapshot has entries until the bytes are reached`() throws {
        let cache = cache()
        for key in 0..<3 { cache.insert("v", forKey: key) }
        #expect(try cache.save(to: store, as: "s", atMost: .zero) == 0)
        #expect(try cache.save(to: store, as: "s", atMost: .bytes(1)) == 1)
        #expect(try cache.save(to: store, as: "s") == 3)
    }

    @Test func `the time left counts from the save on, by the time of day`() throws {
        let first = cache()
        clock.freeze(for: .seconds(100))
        first.insert("short", forKey: 1, timeToLive: .seconds(60))
        first.insert("long", forKey: 2, timeToLive: .seconds(90))
        first.insert("for ever", forKey: 3)
        clock.freeze(for: .seconds(20))
        try first.save(to: store, as: "s")

        clock.freeze(for: .seconds(40))
        let second = cache()
        second.insert("newer", forKey: 3)
        let restoration = try second.restore(from: store, as: "s")
        #expect(restoration == CacheRestoration(restored: 1, skipped: 2))
        #expect(second.value(forKey: 1) == nil && second.value(forKey: 3) == "newer")
        clock.freeze(for: .milliseconds(29_999))
        #expect(second.value(forKey: 2) == "long")
        clock.freeze(for: .milliseconds(1))
        #expect(second.value(forKey: 2) == nil)

        // A clock that was set back takes no time from the entries, and adds none.
        clock.setWallClock(by: .seconds(-1000))
        let third = cache()
        #expect(try third.restore(from: store, as: "s") == CacheRestoration(restored: 3, skipped: 0))
        clock.freeze(for: .seconds(40))
        #expect(third.value(forKey: 1) == nil && third.value(forKey: 2) == "long" && third.value(forKey: 3) == "for ever")
    }

    @Test func `a nanosecond left is time left`() throws {
        let first = cache(), second = cache()
        first.insert("v", forKey: 1, timeToLive: .nanoseconds(1))
        try first.save(to: store, as: "s")
        #expect(try second.restore(from: store, as: "s") == CacheRestoration(restored: 1, skipped: 0))
        #expect(second.value(forKey: 1) == "v")
    }

    @Test(arguments: [[], ["a"], ["a", "b"]] as [[String]])
    func `an entry alone is restored with its tags`(tags: [String]) throws {
        let first = cache(), second = cache()
        first.insert("value", forKey: 1, cost: 7, tags: tags)
        try first.save(to: store, as: "s")
        #expect(try second.restore(from: store, as: "s") == CacheRestoration(restored: 1, skipped: 0))
        #expect(second.byteCount == 7 && ["a", "b"].allSatisfy { second.count(tag: $0) == (tags.contains($0) ? 1 : 0) })
    }

    // MARK: The cache

    @Test(arguments: [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (64, 64), (65, 128), (4096, 4096)])
    func `the number of shards is rounded up to a power of two`(asked: Int, most: Int) {
        #expect(cache(shards: asked).directory.count == most)
    }

    @Test func `a cache shows its limit and its bytes, and can be resized`() {
        let unlimited = cache(), empty = [0, -5].map { cache(limit: $0).limit }, limited = cache(limit: 100)
        #expect(unlimited.holdsAtMost == nil && unlimited.limit == .max && empty == [.zero, .zero])
        for key in 0..<10 { limited.insert("0123456789", forKey: key) }
        #expect(limited.holdsAtMost == 100 && limited.statistics.byteCount == 100 && limited.heldBytes == 100)
        limited.resize(to: 50)
        #expect(limited.holdsAtMost == 50 && limited.statistics.byteCount == 50 && limited.count == 5)
    }

    @Test func `a purge leaves the entries that a listener inserts under the tag meanwhile`() {
        let cache = PurgeableCache<Int, Int>("purged", shardCount: 1, cost: { _, _ in 1 }), inserts = Counter()
        // Twice as many as leave under one hold of the lock.
        let count = 2 * PurgeableCache<Int, Int>.slice
        for key in 0..<count { cache.insert(key, forKey: key, tags: ["t"]) }
        cache.onRemoval { [unowned cache] key, value, _ in
            guard inserts.value < 1000 else { return }
            inserts.add(1)
            cache.insert(value, forKey: 1000 + key, tags: ["t"])
        }
        #expect(cache.purge(tag: "t") == count && cache.count(tag: "t") == count && inserts.value == count)
    }
}

/// The index from tags to slots.
@Suite struct TagIndexTests {
    @Test func `slots come by age, also after one of the middle has left`() {
        var index = TagIndex()
        let nodes = (1...3).map { index.add($0, ["t"]) }
        #expect(index.count("t") == 3 && index.oldest("t", before: index.sequence) == 1)
        index.remove(nodes[1])
        index.remove(nodes[0])
        #expect(index.count("t") == 1 && index.oldest("t", before: index.sequence) == 3)
        let last = index.add(4, ["t"])
        index.remove(nodes[2])
        #expect(index.oldest("t", before: index.sequence) == 4)
        index.remove(last)
        #expect(index.count("t") == 0 && index.tagCount == 0 && index.oldest("t", before: index.sequence) == nil)
    }

    @Test func `slots that were added later do not count, and tags in place of former ones have their own names`() {
        var index = TagIndex()
        let former = index.add(1, ["a", "a", "b"])
        index.remove(former)
        let start = index.sequence, node = index.add(2, ["c", "d", "c"])
        #expect(index.names(node) == ["c", "d"] && index.tagCount == 2 && index.count("a") == 0)
        #expect(index.oldest("c", before: start) == nil && index.oldest("c", before: start + 1) == 2)
        index.move(node, to: 9)
        #expect(["c", "d"].allSatisfy { index.oldest($0, before: index.sequence) == 9 })
    }

    @Test func `the nodes of entries that have left are used again`() {
        var index = TagIndex()
        let kept = index.add(0, ["a"])
        for slot in 1...100 {
            let node = index.add(Int32(slot), ["a", "b"])
            index.remove(node)
        }
        let nodes = Mirror(reflecting: index).children.first { $0.label == "nodes" }
        let count = nodes.map { Mirror(reflecting: $0.value).children.count }
        #expect(count == 3 && index.count("a") == 1)
        index.remove(kept)
        #expect(index.tagCount == 0)
    }
}
