import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Keys and values that are counted: none leaks, and none outlives its entry.
@Suite struct CacheLifetimeTests {
    final class Tracked: Hashable, Sendable {
        let number: Int
        private let alive: Counter

        init(_ number: Int, _ alive: Counter) {
            (self.number, self.alive) = (number, alive)
            alive.add(1)
        }
        deinit { alive.add(-1) }
        static func == (left: Tracked, right: Tracked) -> Bool { left.number == right.number }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    /// A key or value of which only a part is an object. Some cases have no object.
    enum Part: Hashable, Sendable {
        case none(Int)
        case some(Tracked, UInt8)
    }

    private let keys = Counter(), values = Counter()

    /// True if as many keys and values are alive as the cache holds. After `removeAll` of many entries a separate
    /// thread deallocates them.
    private func agrees<Key, Value>(_ cache: PurgeableCache<Key, Value>) -> Bool { keys.value == cache.count && values.value == cache.count }

    @Test(arguments: [1, 16, 256]) func `keys and values die with the cache after any history`(shards: Int) async {
        for seed in seeds(0..<3) {
            var random = SeededGenerator(seed: seed)
            let clock = ManualClock()
            do {
                let cache = PurgeableCache<Tracked, Tracked>(
                    "tracked", limit: .bytes(6000), lifetime: CacheLifetime(nil, nil, nil), shardCount: shards, time: clock.timekeeper,
                    cost: { _, _ in 2 })
                if seed == 2 { cache.onRemoval { _, _, _ in } }
                for step in 0..<9000 {
                    let number = Int.random(in: 0..<4000, using: &random)
                    switch Int.random(in: 0..<1000, using: &random) {
                    case 0..<700:
                        cache.insert(
                            Tracked(step, values), forKey: Tracked(number, keys), tags: step % 9 == 0 ? ["ninth"] : [],
                            timeToLive: step % 11 == 0 ? .seconds(1) : nil)
                    case 700..<850: _ = cache.value(forKey: Tracked(number, keys))
                    case 850..<950: cache.removeValue(forKey: Tracked(number, keys))
                    case 950..<960: _ = cache.release(Int.random(in: 0..<300, using: &random))
                    case 960..<965: cache.purge(tag: "ninth")
                    case 965..<970: #expect(!cache.insert(Tracked(step, values), forKey: Tracked(number, keys), cost: 6001))
                    case 970..<975: cache.pin(Tracked(number, keys))
                    case 975..<980: cache.unpin(Tracked(number, keys))
                    case 980..<990: clock.freeze(for: .milliseconds(200))
                    default: cache.limit = .bytes(Int.random(in: 4000...6000, using: &random))
                    }
                    if !agrees(cache) {
                        Issue.record("seed \(seed), step \(step): \(keys.value) keys and \(values.value) values for \(cache.count) entries")
                        return
                    }
                }
                if seed > 0 {
                    cache.removeAll()
                    await until { agrees(cache) }
                    for number in 0..<100 { cache.insert(Tracked(number, values), forKey: Tracked(number, keys)) }
                    #expect(agrees(cache))
                }
            }
            #expect(keys.value == 0 && values.value == 0, "seed \(seed): some outlived the cache")
        }
    }

    @Test func `objects in a part of keys and values die with their entries`() {
        do {
            let cache = PurgeableCache<Part, [Part]>("parts", limit: .bytes(900), shardCount: 16, cost: { _, _ in 1 })
            for number in 0..<5000 {
                let key = number % 3 == 0 ? Part.none(number % 1500) : .some(Tracked(number % 1500, keys), 7)
                cache.insert([.none(1), .some(Tracked(number, values), 3)], forKey: key)
            }
            #expect(values.value == cache.count && keys.value <= cache.count && cache.count <= 900)
            _ = cache.release(500)
            #expect(values.value == cache.count && cache.count == 400)
        }
        #expect(keys.value == 0 && values.value == 0)
    }

    @Test func `keys and values die with the cache after use by many threads`() async {
        let seed = newSeed()
        do {
            let cache = PurgeableCache<Tracked, Tracked>("tracked", limit: .bytes(3000), shardCount: 64, cost: { _, _ in 1 })
            let (keys, values) = (keys, values)
            await withTaskGroup(of: Void.self) { group in
                for thread in 0..<4 {
                    group.addTask {
                        var random = SeededGenerator(seed: seed &+ UInt64(thread))
                        for step in 0..<4000 {
                            let key = Tracked(Int.random(in: 0..<4000, using: &random), keys)
                            switch step % 16 {
                            case 0..<10: cache.insert(Tracked(step, values), forKey: key, tags: step % 64 == 0 ? ["rare"] : [])
                            case 10..<13: if let value = cache.value(forKey: key), value.number < 0 { Issue.record("\(value.number)") }
                            case 13: cache.removeValue(forKey: key)
                            case 14: if step % 128 == 14 { cache.purge(tag: "rare") } else { cache.evict(count: 2) }
                            default: if step % 1600 == 15 { cache.removeAll() } else { _ = cache.release(5) }
                            }
                        }
                    }
                }
            }
            await until { agrees(cache) }
        }
        #expect(keys.value == 0 && values.value == 0)
    }
}
