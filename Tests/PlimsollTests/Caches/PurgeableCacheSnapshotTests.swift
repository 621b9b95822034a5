import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The entries that a cache shows, and the snapshot that the next process restores.
@Suite struct PurgeableCacheSnapshotTests {
    let clock = ManualClock()
    let store = MemoryStateStore()

    private func cache(_ limit: Int? = nil, shards: Int = 1) -> PurgeableCache<Int, String> {
        PurgeableCache(
            "snapshot", limit: limit.map { .bytes($0) }, lifetime: CacheLifetime(nil, nil, nil), shardCount: shards, time: clock.timekeeper,
            cost: { $1.utf8.count })
    }

    @Test func `the coldest are the first to leave, and the hottest are the last`() {
        let cache = cache()
        for key in 0..<100 { cache.insert("v\(key)", forKey: key, cost: 1) }
        for key in 0..<20 { _ = cache.value(forKey: key) }
        cache.pin(50)
        #expect(cache.coldest(3).map(\.key) == [20, 21, 22] && cache.hottest(2).map(\.key) == [50, 19])
        let order = cache.coldest().map(\.key)
        #expect(order.count == 100 && cache.coldest(0).isEmpty && cache.hottest(-1).isEmpty && Set(order).count == 100)
        #expect(order == cache.hottest().map(\.key).reversed())
        cache.evict(count: 60)
        #expect(Set(cache.coldest().map(\.key)) == Set(order.suffix(40)))
        #expect(cache.statistics.hits == 20, "looking is no use")
    }

    @Test func `a snapshot brings back values, costs, tags, the time left and the order`() throws {
        let first = cache(shards: 4)
        for key in 0..<2000 {
            first.insert(
                "value \(key)", forKey: key, cost: 2, tags: key % 2 == 0 ? ["even", "all"] : [], timeToLive: key < 100 ? .seconds(60) : nil)
        }
        for key in 500..<600 { _ = first.value(forKey: key) }
        #expect(try first.save(to: store, as: "warm") == 2000)
        clock.advance(by: .seconds(40))

        let second = cache()
        second.insert("newer", forKey: 7)
        let restoration = try second.restore(from: store, as: "warm")
        #expect(restoration == CacheRestoration(restored: restoration.restored, skipped: 2000 - restoration.restored, reason: nil))
        #expect(second.value(forKey: 7) == "newer" && second.value(forKey: 1000) == "value 1000")
        #expect(second.count(tag: "even") > 900)
        #expect(Set(second.hottest(150).map(\.key)).isSuperset(of: 500..<600))
        clock.advance(by: .seconds(21))
        #expect(second.value(forKey: 3) == nil && second.value(forKey: 1001) != nil, "its minute was over")

        let third = cache(100)
        let some = try third.restore(from: store, as: "warm")
        #expect(third.byteCount <= 100 && some.restored > 0 && third.count > 0)
    }

    /// A value whose decoding inserts another one under key 1.
    struct Overtaken: VolatileStorable {
        static let cache = Mutex<PurgeableCache<Int, Overtaken>?>(nil)
        let text: String

        init(_ text: String) { self.text = text }
        init(decoding bytes: RawSpan) {
            text = String(decoding: bytes)
            Self.cache.withLock { $0 }?.insert(Overtaken("newer"), forKey: 1)
        }
        func encode(into encoder: inout VolatileEncoder) { encoder.append(text) }
    }

    @Test func `a value that comes while a snapshot's value is decoded stays`() throws {
        func cache() -> PurgeableCache<Int, Overtaken> {
            PurgeableCache("overtaken", shardCount: 1, cost: { _, _ in 1 })
        }
        let first = cache(), second = cache()
        first.insert(Overtaken("older"), forKey: 1)
        #expect(try first.save(to: store, as: "overtaken") == 1)
        Overtaken.cache.withLock { $0 = second }
        defer { Overtaken.cache.withLock { $0 = nil } }
        let restoration = try second.restore(from: store, as: "overtaken")
        #expect(restoration == CacheRestoration(restored: 0, skipped: 1, reason: nil))
        #expect(second.value(forKey: 1)?.text == "newer" && second.count == 1)
    }

    /// A value that claims to have so many bytes. Only the first exists, so the claim must be refused before any read.
    struct Claimed: VolatileStorable {
        let byteCount: Int

        init(_ byteCount: Int) { self.byteCount = byteCount }
        init(decoding bytes: RawSpan) { byteCount = bytes.byteCount }
        func encode(into encoder: inout VolatileEncoder) {}
        func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
            try withUnsafeBytes(of: 7 as UInt8) { try body(UnsafeRawBufferPointer(start: $0.baseAddress, count: byteCount)) }
        }
    }

    @Test func `a value of 4 GiB or more is left out of a snapshot, and the rest is written`() throws {
        func cache() -> PurgeableCache<Int, Claimed> { PurgeableCache("claimed", shardCount: 1, cost: { _, _ in 1 }) }
        let first = cache(), second = cache()
        for (key, count) in [1, 1 << 32, 1, 1 << 40].enumerated() { first.insert(Claimed(count), forKey: key) }
        #expect(try first.save(to: store, as: "claimed") == 2)
        #expect(try second.restore(from: store, as: "claimed") == CacheRestoration(restored: 2, skipped: 0, reason: nil))
        #expect(second.contains(0) && second.contains(2) && second.value(forKey: 2)?.byteCount == 1)
    }

    @Test func `a snapshot is bounded, and the hottest entries are chosen`() throws {
        let first = cache()
        for key in 0..<1000 { first.insert(String(repeating: "x", count: 100), forKey: key) }
        for key in 300..<310 { _ = first.value(forKey: key) }
        let written = try first.save(to: store, as: "small", atMost: .bytes(2000))
        #expect(written > 10 && written < 20)
        let second = cache()
        #expect(try second.restore(from: store, as: "small").restored == written && (300..<310).allSatisfy { second.contains($0) })
    }

    @Test func `no snapshot traps: a cut one restores the whole entries, and one of foreign bytes restores none`() throws {
        let first = cache()
        for key in 0..<50 { first.insert("value \(key)", forKey: key, tags: ["a"]) }
        try first.save(to: store, as: "whole")
        let bytes = try #require(try store.read("whole"))
        var random = SeededGenerator(seed: usualSeed(7))
        for length in stride(from: 0, to: bytes.count, by: 7) {
            try store.write("cut", Array(bytes.prefix(length)))
            let restoration = try cache().restore(from: store, as: "cut")
            #expect(restoration.reason != nil && restoration.restored < 50)
        }
        for _ in 0..<500 {
            var broken = bytes
            for _ in 0..<3 { broken[Int.random(in: 4..<bytes.count, using: &random)] = .random(in: 0...255, using: &random) }
            try store.write("broken", broken)
            _ = try cache(10_000).restore(from: store, as: "broken")
        }
        // The time of the save follows the version. These values are no time of day.
        for saved in [Int64.min, .min + 1, -1, 0, .max] {
            try store.write("time", Array(bytes[..<4]) + withUnsafeBytes(of: saved.littleEndian) { Array($0) } + bytes[12...])
            #expect(try cache().restore(from: store, as: "time").restored == 50)
        }
        try store.write("later", [2, 0, 0, 0] + bytes.dropFirst(4))
        #expect(try cache().restore(from: store, as: "later").reason?.contains("version") == true)
        #expect(try cache().restore(from: store, as: "nothing").reason == "no snapshot is stored under \"nothing\"")
    }
}
