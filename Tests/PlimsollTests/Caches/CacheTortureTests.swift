import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Many threads at once, with bounded work and no waits.
@Suite struct CacheTortureTests {
    /// A key with a checksum: a cache that does not validate its copies first would call `==` on torn copies.
    struct Key: Hashable {
        let number: UInt64
        private let check: UInt64
        /// The number of torn keys in all tests that run at once. No test resets the counter, because another test may
        /// have just counted a torn key.
        static let broken = Atomic<Int>(0)

        init(_ number: Int) { (self.number, check) = (UInt64(number), ~UInt64(number) &* 3) }

        static func == (left: Key, right: Key) -> Bool {
            for key in [left, right] where key.check != ~key.number &* 3 { broken.wrappingAdd(1, ordering: .relaxed) }
            return left.number == right.number
        }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    /// Words that agree with the key and with each other.
    protocol Words: Sendable {
        init(_ key: Int, _ salt: UInt64)
        func agrees(with key: Int) -> Bool
    }

    struct Three: Words {
        var words: (UInt64, UInt64, UInt64)
        init(_ key: Int, _ salt: UInt64) { words = (UInt64(key), salt, salt &* 5 ^ UInt64(key)) }
        func agrees(with key: Int) -> Bool { words.0 == UInt64(key) && words.2 == words.1 &* 5 ^ UInt64(key) }
    }

    /// A value of 32 bytes, in registers of 16.
    struct Four: Words {
        var words: (SIMD4<UInt32>, SIMD4<UInt32>)
        init(_ key: Int, _ salt: UInt64) {
            let salt = UInt32(truncatingIfNeeded: salt), key = UInt32(key)
            words = (SIMD4(key, salt, salt &+ 1, salt &+ 2), SIMD4(salt &+ 3, salt &+ 4, salt &+ 5, salt ^ key))
        }
        func agrees(with key: Int) -> Bool {
            let salt = words.0.y
            return words.0 == SIMD4(UInt32(key), salt, salt &+ 1, salt &+ 2) && words.1 == SIMD4(salt &+ 3, salt &+ 4, salt &+ 5, salt ^ UInt32(key))
        }
    }

    final class Object: Words {
        let three: Three
        init(_ key: Int, _ salt: UInt64) { three = Three(key, salt) }
        func agrees(with key: Int) -> Bool { three.agrees(with: key) }
    }

    /// Has half of the threads read and the other half write in every way. One writer lowers and raises the limit.
    private func torture<Value: Words>(
        _ type: Value.Type, threads: Int, seed: UInt64, keys: Int, isLimitChanged: Bool, hasListener: Bool = false, steps: Int = 6000
    ) async {
        // Shards open after two look-ups, so that they open and close often although threads write.
        let highest = keys * 3
        let cache = PurgeableCache<Key, Value>(
            "torture", limit: .bytes(highest), lifetime: CacheLifetime(nil, nil, nil), shardCount: 32, opensAfter: 2, time: .running,
            cost: { _, _ in 5 })
        let found = Counter(), torn = Counter(), above = Counter(), leaves = Counter(), enters = Counter()
        if hasListener {
            cache.onRemoval { key, value, _ in
                leaves.add(1)
                if !value.agrees(with: Int(key.number)) { torn.add(1) }
            }
        }
        await withTaskGroup(of: Void.self) { group in
            for thread in 0..<threads {
                group.addTask {
                    var random = SeededGenerator(seed: seed &* 100 &+ UInt64(thread))
                    let isReader = thread % 2 == 0
                    for step in 0..<(isReader ? 2 * steps : steps) {
                        let number = Int.random(in: 0..<keys, using: &random), key = Key(number)
                        switch isReader ? 0 : Int.random(in: 0..<1000, using: &random) {
                        case 0..<200:
                            guard let value = cache.value(forKey: key) else { continue }
                            found.add(1)
                            if !value.agrees(with: number) { torn.add(1) }
                        case 200..<800:
                            let cost = Int.random(in: 0..<12, using: &random)
                            let tags = step % 16 == 0 ? ["sixteenth"] : []
                            if cache.insert(Value(number, random.next()), forKey: key, cost: cost, tags: tags) { enters.add(1) }
                            if !isLimitChanged, cache.byteCount > highest { above.add(1) }
                        case 800..<970: cache.removeValue(forKey: key)
                        case 970..<985: _ = cache.release((Int.random(in: 0..<200, using: &random)))
                        case 985..<990: cache.purge(tag: "sixteenth")
                        case 990..<991: cache.removeAll()
                        case 991..<993:
                            if cache.insert(Value(number, 1), forKey: key, cost: highest / 8) {
                                enters.add(1)
                            } else if !isLimitChanged {
                                above.add(1)
                            }
                        default: if isLimitChanged, thread == 1 { cache.limit = .bytes(Int.random(in: 0...highest, using: &random)) }
                        }
                    }
                }
            }
        }
        #expect(torn.value == 0 && Key.broken.load(ordering: .relaxed) == 0, "seed \(seed), \(threads) threads")
        #expect(above.value == 0 && cache.byteCount <= cache.limit.bytes, "seed \(seed), \(threads) threads")
        #expect(found.value > 0, "nothing was ever found")
        cache.limit = .bytes(highest)
        let left = (0..<keys).compactMap { key in cache.value(forKey: Key(key)).map { (key, $0) } }
        #expect(left.count == cache.count && left.allSatisfy { $0.1.agrees(with: $0.0) }, "seed \(seed), \(threads) threads")
        if hasListener { #expect(enters.value == leaves.value + cache.count, "each that came in left once, or is there") }
        cache.removeAll()
        #expect(cache.count == 0 && cache.byteCount == .zero, "an empty cache charges nothing")
    }

    @Test(arguments: [2, 4, 8]) func `trivial values are never seen half written`(threads: Int) async {
        for seed in seeds(0..<2) {
            await torture(Three.self, threads: threads, seed: seed, keys: seed == 0 ? 40 : 4000, isLimitChanged: false)
            await torture(Four.self, threads: threads, seed: seed, keys: seed == 0 ? 40 : 4000, isLimitChanged: seed == 1, hasListener: true)
        }
    }

    @Test(arguments: [2, 4, 8]) func `objects are read unchanged`(threads: Int) async {
        for seed in seeds(0..<2) {
            await torture(Object.self, threads: threads, seed: seed, keys: seed == 0 ? 40 : 4000, isLimitChanged: seed == 1, hasListener: seed == 1)
        }
    }

    @Test func `T26 the bound holds after each insert, with entries of any size`() async {
        let seed = newSeed()
        let cache = PurgeableCache<Int, Int>("large", limit: .bytes(100), shardCount: 64, cost: { _, cost in cost })
        let above = Counter(), refused = Counter()
        await withTaskGroup(of: Void.self) { group in
            for thread in 0..<4 {
                group.addTask {
                    var random = SeededGenerator(seed: seed &+ UInt64(thread))
                    for _ in 0..<5000 {
                        if !cache.insert(Int.random(in: 0...100, using: &random), forKey: Int.random(in: 0..<50, using: &random)) { refused.add(1) }
                        if cache.byteCount > 100 { above.add(1) }
                    }
                }
            }
        }
        #expect(above.value == 0 && refused.value == 0, "\(refused.value) were refused")
        #expect((0..<50).reduce(0) { $0 + (cache.value(forKey: $1) ?? 0) } == cache.byteCount)
    }

    @Test func `a limit lowered during inserts holds once the inserts are done`() async {
        for round in 0..<200 {
            let cache = PurgeableCache<Int, Int>("lowered", limit: .bytes(100), shardCount: 8, cost: { _, _ in 10 })
            await withTaskGroup(of: Void.self) { group in
                for thread in 0..<3 { group.addTask { for key in 0..<5 { cache.insert(key, forKey: thread * 10 + key) } } }
                group.addTask { for limit in [70, 50, 20] { cache.limit = .bytes(limit) } }
            }
            #expect(cache.byteCount <= 20 && cache.byteCount == cache.count * 10, "round \(round)")
        }
    }

    @Test func `when two threads set limits at once, the later limit holds and is reported`() async {
        for round in 0..<400 {
            let cache = PurgeableCache<Int, Int>("set twice", limit: .bytes(500), shardCount: 8, cost: { _, _ in 10 })
            for key in 0..<50 { cache.insert(key, forKey: key) }
            await withTaskGroup(of: Void.self) { group in
                for limit in [10, 210] { group.addTask { cache.limit = .bytes(limit) } }
            }
            for key in 0..<50 { cache.insert(key, forKey: key) }
            #expect(cache.limit.bytes == cache.counters.bound.pointee.load(ordering: .relaxed), "round \(round)")
            #expect(cache.byteCount == cache.limit.bytes, "round \(round)")
        }
    }

    @Test func `a limit that a listener sets while another is being lowered holds in the end`() {
        let cache = PurgeableCache<Int, Int>("set within", limit: .bytes(500), shardCount: 1, cost: { _, _ in 10 })
        for key in 0..<50 { cache.insert(key, forKey: key) }
        cache.onRemoval { [unowned cache] _, _, _ in if cache.limit != 490 { cache.limit = 490 } }
        cache.limit = 10
        #expect(cache.limit == 490)
        for key in 0..<50 { cache.insert(key, forKey: key) }
        #expect(cache.byteCount == 490)
    }

    @Test func `a listener that raises the limit during a lowering, and fills the cache, keeps the new entries`() {
        let cache = PurgeableCache<Int, Int>("raised within", limit: .bytes(500), shardCount: 1, cost: { _, _ in 10 }), notified = Counter()
        for key in 0..<50 { cache.insert(key, forKey: key) }
        cache.onRemoval { [unowned cache] _, _, _ in
            notified.add(1)
            // The 40th is the last entry that the lower limit evicts. The entries that follow exceed the lower limit,
            // and fit the limit in force.
            guard notified.value == 40 else { return }
            cache.limit = 500
            for key in 100..<130 { cache.insert(key, forKey: key) }
        }
        cache.limit = 100
        #expect(cache.limit == 500 && cache.byteCount == 400 && notified.value == 40)
    }

    @Test func `a listener that lowers the limit during a purge does not wait for entries not yet notified`() async {
        let cache = PurgeableCache<Int, Int>("lowered within", limit: .bytes(500), shardCount: 1, cost: { _, _ in 10 })
        for key in 0..<50 { cache.insert(key, forKey: key) }
        cache.onRemoval { [unowned cache] _, _, _ in if cache.limit != 20 { cache.limit = 20 } }
        let released = Counter()
        #expect(Thread.start("release") { released.add(Int(cache.release(500))) })
        await until { released.value > 0 }
        // The lowered limit evicted the rest.
        #expect(cache.limit == 20 && cache.count == 0)
    }
}
