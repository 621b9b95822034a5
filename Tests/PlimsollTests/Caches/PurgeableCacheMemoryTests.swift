import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The memory of a cache itself, pinned entries, and the removal of all entries.
@Suite struct PurgeableCacheMemoryTests {
    /// An object that counts the live objects of this type.
    final class Tracked: Sendable {
        let alive: Counter
        init(_ alive: Counter) {
            self.alive = alive
            alive.add(1)
        }
        deinit { alive.add(-1) }
    }

    @Test func `after a release the remaining entries are compact, found, and in order`() {
        for seed in seeds(0..<5) {
            var random = SeededGenerator(seed: seed)
            let cache = PurgeableCache<Int, Int>("trivial", shardCount: 2, cost: { _, _ in 1 })
            let objects = PurgeableCache<Int, String>("objects", shardCount: 2, cost: { _, value in value.utf8.count })
            for key in 0..<20_000 {
                cache.insert(key, forKey: key, tags: key % 50 == 0 ? ["fifty"] : [], timeToLive: key % 70 == 0 ? .seconds(3600) : nil)
                objects.insert("value \(key)", forKey: key)
            }
            let hot = Set((0..<1500).map { _ in Int.random(in: 0..<20_000, using: &random) })
            for key in hot { #expect(cache.value(forKey: key) == key && objects.value(forKey: key) == "value \(key)") }
            let top = cache.sum { $0.top }
            let released = cache.release(18_000)
            #expect(released == 18_000 && cache.count == 2000, "seed \(seed)")
            #expect(cache.sum { $0.top } == 2000 && top >= 20_000, "seed \(seed)")
            #expect(objects.release(objects.byteCount / 10 * 9) > 0)
            for key in hot { #expect(cache.value(forKey: key) == key && objects.value(forKey: key) == "value \(key)", "seed \(seed)") }
            let left = (0..<20_000).filter { cache.value(forKey: $0) == $0 }
            #expect(left.count == 2000 && cache.count(tag: "fifty") == left.count { $0 % 50 == 0 }, "seed \(seed)")
            #expect(cache.purge(tag: "fifty") == left.count { $0 % 50 == 0 })
            #expect((0..<20_000).filter { objects.value(forKey: $0) == "value \($0)" }.count == objects.count, "seed \(seed)")
            for key in 20_000..<30_000 { cache.insert(key, forKey: key) }
            #expect((20_000..<30_000).allSatisfy { cache.value(forKey: $0) == $0 })
        }
    }

    @Test func `removing all entries ends all objects, and the cache goes on`() async {
        let alive = Counter(), meter = ChargeMeter {}
        let cache = PurgeableCache<Int, Tracked>("tracked", shardCount: 8, cost: { _, _ in 3 })
        #expect(cache.attach(meter))
        for round in 0..<3 {
            for key in 0..<5000 { cache.insert(Tracked(alive), forKey: key, tags: ["all"]) }
            #expect(cache.count == 5000 && alive.value == 5000 && meter.heldBytes == 15_000, "round \(round)")
            cache.removeAll()
            #expect(cache.count == 0 && cache.byteCount == .zero && cache.value(forKey: 7) == nil && cache.count(tag: "all") == 0)
            // A separate thread deallocates many objects.
            await until { alive.value == 0 && meter.heldBytes == .zero }
        }
        let few = PurgeableCache<Int, Tracked>("few", cost: { _, _ in 3 })
        for key in 0..<100 { few.insert(Tracked(alive), forKey: key) }
        few.removeAll()
        #expect(alive.value == 0, "a few end at once")

        let trivial = PurgeableCache<Int, Int>("trivial", cost: { _, _ in 3 })
        for round in 0..<3 {
            for key in 0..<50_000 { trivial.insert(round, forKey: key) }
            #expect(trivial.count == 50_000 && trivial.value(forKey: 49_999) == round)
            trivial.removeAll()
            #expect(trivial.count == 0 && trivial.byteCount == .zero && (0..<50_000).allSatisfy { trivial.value(forKey: $0) == nil })
        }
    }

    @Test func `pinned entries stay through any eviction`() {
        let cache = PurgeableCache<Int, Int>("pinned", limit: .bytes(100), shardCount: 1, cost: { _, _ in 1 })
        #expect(!cache.pin(1) && !cache.unpin(1))
        for key in 0..<100 { cache.insert(key, forKey: key) }
        for key in 0..<10 { #expect(cache.pin(key)) }
        #expect(cache.pin(3) && cache.pinnedCount == 10)
        for key in 100..<1000 { #expect(cache.insert(key, forKey: key)) }
        #expect((0..<10).allSatisfy { cache.value(forKey: $0) == $0 } && cache.count == 100)
        #expect(cache.release(.max) == 90 && cache.count == 10, "also under pressure")
        #expect(cache.insert(33, forKey: 3) && cache.value(forKey: 3) == 33 && cache.pinnedCount == 10, "replacing leaves it pinned")
        cache.limit = .bytes(10)
        #expect(!cache.insert(2000, forKey: 2000) && cache.count == 10, "nothing may go for it")
        #expect(cache.unpin(3) && cache.pinnedCount == 10, "pinned twice")
        #expect(cache.unpin(3) && cache.pinnedCount == 9 && !cache.unpin(3))
        #expect(cache.insert(2000, forKey: 2000) && cache.value(forKey: 3) == nil && cache.count == 10)
        #expect(cache.removeValue(forKey: 0) == 0 && cache.pinnedCount == 8, "it can be removed")
        cache.removeAll()
        #expect(cache.count == 0 && cache.pinnedCount == 0)
    }

    @Test func `an eviction by count takes the coldest entries, and is counted as eviction`() {
        let cache = PurgeableCache<Int, Int>("counted", shardCount: 1, cost: { _, _ in 0 })
        for key in 0..<100 { cache.insert(key, forKey: key) }
        for key in 0..<50 { _ = cache.value(forKey: key) }
        #expect(cache.evict(count: 30) == 30 && cache.count == 70)
        #expect((0..<50).allSatisfy { cache.value(forKey: $0) == $0 } && cache.statistics.evictions == 30)
        #expect(cache.evict(count: 1000) == 70 && cache.evict(count: 1) == 0 && cache.evict(count: -1) == 0)
    }

    @Test func `outgrown blocks stay mapped for readers without a lock, and are freed at once where all readers lock`() {
        let read = PurgeableCache<Int, Int>("read without a lock", shardCount: 1, cost: { _, _ in 1 })
        let locked = PurgeableCache<Int, String>("locked", shardCount: 1, cost: { _, _ in 1 })
        for key in 0..<20_000 {
            read.insert(key, forKey: key)
            locked.insert("\(key)", forKey: key)
        }
        #expect(read.sum { $0.retired.count } > 0 && locked.sum { $0.retired.count } == 0)
    }

    @Test func `compaction removes unused slots at the end from the list of free slots`() {
        let cache = PurgeableCache<Int, Int>("sparse at its end", shardCount: 1, cost: { _, _ in 1 })
        for key in 0..<8000 { cache.insert(key, forKey: key) }
        for key in 3000..<8000 { cache.removeValue(forKey: key) }
        #expect(cache.release(1) == 1 && cache.sum { $0.top } == 2999)
        for key in 8000..<12_000 { cache.insert(key, forKey: key) }
        #expect(cache.sum { $0.top } == 6999 && cache.count == 6999)
        #expect((8000..<12_000).allSatisfy { cache.value(forKey: $0) == $0 })
    }

    @Test func `a release of nothing leaves a sparse cache as it is, and the release of one entry makes it compact`() {
        let cache = PurgeableCache<Int, Int>("sparse", shardCount: 1, cost: { _, _ in 1 })
        for key in 0..<8000 { cache.insert(key, forKey: key) }
        for key in 1000..<8000 { cache.removeValue(forKey: key) }
        #expect(cache.release(0) == 0 && cache.count == 1000 && cache.sum { $0.top } >= 8000)
        #expect(cache.release(1) == 1 && cache.count == 999 && cache.sum { $0.top } == 999)
    }

    /// A key that only its own code can move: the runtime knows the address of each weak reference.
    // Unchecked: the weak reference is not set again after the key was made.
    private struct WeakKey: Hashable, @unchecked Sendable {
        let number: Int
        weak var owner: Tracked?

        static func == (a: WeakKey, b: WeakKey) -> Bool { a.number == b.number }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    @Test func `keys with weak references come along when the cache grows and when it becomes compact`() {
        let alive = Counter()
        let owner = Tracked(alive), cache = PurgeableCache<WeakKey, Int>("weak keys", shardCount: 1, cost: { _, _ in 1 })
        func owners() -> Int { cache.coldest().count { $0.key.owner === owner && $0.key.number == $0.value } }
        for number in 0..<6000 { cache.insert(number, forKey: WeakKey(number: number, owner: owner)) }
        #expect(owners() == 6000)
        #expect(cache.release(5000) == 5000 && cache.sum { $0.top } == 1000 && owners() == 1000)
        cache.removeAll()
        #expect(withExtendedLifetime(owner) { alive.value } == 1)
    }

    @Test func `a slot that a pinned entry has left pins no other entry`() {
        let cache = PurgeableCache<Int, Int>("pins", shardCount: 1, cost: { _, _ in 1 })
        cache.insert(1, forKey: 1)
        #expect(cache.pin(1) && cache.removeValue(forKey: 1) == 1 && cache.pinnedCount == 0)
        cache.insert(2, forKey: 2)
        #expect(!cache.unpin(2))
        #expect(cache.pin(2) && cache.pinnedCount == 1 && cache.unpin(2) && cache.pinnedCount == 0)
    }

    @Test func `a sample is as large as asked for, from all shards`() {
        let cache = PurgeableCache<Int, Int>("sampled", shardCount: 4, cost: { _, _ in 7 })
        func sampled(_ count: Int) -> [SampledEntry] {
            var sample: [SampledEntry] = []
            cache.withSample(of: count) { sample = $0 }
            return sample
        }
        #expect(sampled(10).isEmpty)
        for key in 0..<4000 { cache.insert(key, forKey: key) }
        for count in [1, 10, 100, 1000] { #expect(sampled(count).count == count) }
        #expect(sampled(100).allSatisfy { $0.cost == 7 && $0.inlineBytes == 16 })
        #expect(sampled(100).allSatisfy { $0.words.count == 2 && $0.words[0] == $0.words[1] })
    }
}
