import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Look-ups of objects without a lock, in shards without a recent write.
@Suite(.needsLinux) struct CacheVisitTests {
    final class Object: Sendable {
        let number: Int
        private let alive: Counter?

        init(_ number: Int, alive: Counter? = nil) {
            (self.number, self.alive) = (number, alive)
            alive?.add(1)
        }
        deinit { alive?.add(-1) }
    }

    func cache<Key: Hashable & Sendable, Value: Sendable>(
        _ type: (Key, Value).Type, opensAfter: Int = 4, limit: Int = .max, shardCount: Int = 1
    ) -> PurgeableCache<Key, Value> {
        PurgeableCache(
            "visited", limit: .bytes(limit), lifetime: CacheLifetime(nil, nil, nil), shardCount: shardCount, opensAfter: opensAfter, time: .running,
            cost: { _, _ in 1 })
    }

    func openShards<Key, Value>(_ cache: PurgeableCache<Key, Value>) -> Int {
        var count = 0
        cache.directory.forEach { shard in
            if shard.openness.pointee.load(ordering: .relaxed) != 0 { count += 1 }
            return true
        }
        return count
    }

    @Test func `a shard opens after quiet look-ups and closes on a write`() {
        let cache = cache((Int, Object).self)
        cache.insert(Object(1), forKey: 1)
        for lookup in 1...4 {
            #expect(openShards(cache) == 0, "look-up \(lookup)")
            #expect(cache.value(forKey: 1)?.number == 1)
        }
        #expect(openShards(cache) == 1)
        #expect(cache.value(forKey: 1)?.number == 1 && cache.value(forKey: 2) == nil)
        #expect(cache.contains(1) && cache.coldest().count == 1 && cache.statistics.hits == 5, "looking closes nothing")
        #expect(openShards(cache) == 1)
        cache.insert(Object(2), forKey: 2)
        #expect(openShards(cache) == 0)
        #expect(cache.value(forKey: 1)?.number == 1 && cache.value(forKey: 2)?.number == 2)
    }

    @Test func `each way of writing closes the shard`() {
        let ways: [(String, @Sendable (PurgeableCache<Int, Object>) -> Void)] = [
            ("replace", { $0.insert(Object(3), forKey: 1) }), ("remove", { $0.removeValue(forKey: 1) }), ("remove all", { $0.removeAll() }),
            ("release", { _ = $0.release(1) }), ("evict", { $0.evict(count: 1) }), ("lower the limit", { $0.limit = 1 }),
            ("purge a tag", { $0.purge(tag: "odd") }), ("expiring", { $0.insert(Object(4), forKey: 4, timeToLive: .seconds(1)) }),
        ]
        for (name, write) in ways {
            let cache = cache((Int, Object).self)
            for number in 1...3 { cache.insert(Object(number), forKey: number, tags: ["odd"]) }
            while openShards(cache) == 0 { _ = cache.value(forKey: 1) }
            write(cache)
            #expect(openShards(cache) == 0, "\(name)")
        }
    }

    @Test func `many open shards are emptied at once, and open again`() {
        let cache = cache((Int, Object).self, shardCount: 8)
        for round in 1...3 {
            for number in 0..<10_000 { cache.insert(Object(number), forKey: number) }
            #expect((0..<10_000).allSatisfy { cache.value(forKey: $0)?.number == $0 } && openShards(cache) == 8, "round \(round)")
            cache.removeAll()
            #expect(openShards(cache) == 0 && cache.value(forKey: 1) == nil, "round \(round)")
        }
        cache.insert(Object(1), forKey: 1)
        #expect(cache.value(forKey: 1)?.number == 1)
    }

    @Test func `no shard opens with expiry`() {
        let cache = cache((Int, Object).self)
        cache.insert(Object(1), forKey: 1, timeToLive: .seconds(1000))
        for _ in 0..<100 { _ = cache.value(forKey: 1) }
        #expect(openShards(cache) == 0)
    }

    @Test func `an entry removed from an open shard is gone at once`() {
        let cache = cache((Int, Object).self), alive = Counter()
        cache.insert(Object(1, alive: alive), forKey: 1)
        while openShards(cache) == 0 { _ = cache.value(forKey: 1) }
        for _ in 0..<10 { #expect(cache.value(forKey: 1)?.number == 1) }
        cache.removeValue(forKey: 1)
        #expect(alive.value == 0)
    }

    /// A key whose `==` looks up another cache.
    struct Asking: Hashable, Sendable {
        let number: Int
        let other: PurgeableCache<String, Object>
        static func == (left: Asking, right: Asking) -> Bool { left.number == right.number && left.other.value(forKey: "other")?.number == 9 }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    @Test func `a key may ask another open cache`() {
        let other = cache((String, Object).self), cache = cache((Asking, Object).self)
        other.insert(Object(9), forKey: "other")
        cache.insert(Object(1), forKey: Asking(number: 1, other: other))
        for _ in 0..<20 { #expect(cache.value(forKey: Asking(number: 1, other: other))?.number == 1) }
        #expect(openShards(cache) == 1 && openShards(other) == 1)
    }

    /// A key whose `==` writes to the cache that called `==`, which the documentation forbids.
    final class Meddling: Hashable, Sendable {
        let target = Mutex<PurgeableCache<Meddling, Object>?>(nil)

        static func == (left: Meddling, right: Meddling) -> Bool {
            left.target.withLock { $0 }?.removeAll()
            return true
        }
        func hash(into hasher: inout Hasher) { hasher.combine(1) }
    }

    @Test func `a key that writes to the asking cache stops the process with a message instead of a deadlock`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let cache = PurgeableCache<Meddling, Object>(
                "meddled", lifetime: CacheLifetime(nil, nil, nil), shardCount: 1, opensAfter: 1, time: .running, cost: { _, _ in 1 })
            let key = Meddling()
            cache.insert(Object(1), forKey: key)
            _ = cache.value(forKey: key)
            key.target.withLock { $0 = cache }
            _ = cache.value(forKey: key)
        }
        #expect(result.map { String(decoding: $0.standardErrorContent, as: UTF8.self).contains("has used the cache that called it") } == true)
    }

    @Test func `concurrent threads have reader slots and stripes of their own`() {
        let crew = Crew(), gate = Mutex(()), readers = Mutex<[(base: UInt, stripe: Int)]>([])
        gate.withLock { _ in
            _ = crew.start(8) { _ in
                ReaderSlots.take()
                if let reader = ReaderSlot.current {
                    let stripe = reader.stripe.pointee.load(ordering: .relaxed)
                    readers.withLock { $0.append((UInt(bitPattern: reader.base), stripe)) }
                }
                crew.arrived()
                gate.withLock { _ in }
            }
            crew.waitForArrivals(8)
        }
        crew.waitForEnd()
        let (taken, stripes) = readers.withLock { ($0, $0.map(\.stripe).filter { $0 > 0 }) }
        #expect(Set(taken.map(\.base)).count == 8 && Set(stripes).count == stripes.count && taken.allSatisfy { $0.stripe != 0 }, "\(taken)")
    }

    @Test func `more threads than reader slots look up, and each hit counts`() async {
        await #expect(processExitsWith: .success) {
            let cache = PurgeableCache<Int, Object>(
                "crowded", lifetime: CacheLifetime(nil, nil, nil), shardCount: 1, opensAfter: 4, time: .running, cost: { _, _ in 1 })
            cache.insert(Object(1), forKey: 1)
            let crew = Crew(), gate = Mutex(()), threads = 1100
            // No thread leaves its reader slot before all threads have arrived.
            let all = gate.withLock { _ in
                let all = crew.start(threads) { _ in
                    for _ in 0..<10 where cache.value(forKey: 1) == nil { exit(1) }
                    crew.arrived()
                    gate.withLock { _ in }
                    _ = cache.value(forKey: 1)
                }
                crew.waitForArrivals(all)
                return all
            }
            crew.waitForEnd()
            exit(all == threads && cache.statistics.hits == 11 * threads ? 0 : 2)
        }
    }

    /// A key that counts its comparisons.
    private struct ComparedKey: Hashable {
        // Relaxed: read once all threads that compare have ended.
        static let comparisons = Atomic<Int>(0)
        var number: Int

        static func == (left: Self, right: Self) -> Bool {
            comparisons.add(1, ordering: .relaxed)
            return left.number == right.number
        }
        func hash(into hasher: inout Hasher) { hasher.combine(number) }
    }

    @Test func `a thread without a reader slot finds a plain value as others do, with one comparison`() async {
        await #expect(processExitsWith: .success) {
            let cache = PurgeableCache<ComparedKey, Int>("crowded", shardCount: 1, cost: { _, _ in 1 }), key = ComparedKey(number: 1)
            cache.insert(7, forKey: key)
            let crew = Crew(), gate = Mutex(()), threads = 1100, before = ComparedKey.comparisons.load(ordering: .relaxed)
            // No thread leaves its reader slot before all threads have arrived.
            let all = gate.withLock { _ in
                let all = crew.start(threads) { _ in
                    for _ in 0..<10 where cache.value(forKey: key) != 7 { exit(1) }
                    crew.arrived()
                    gate.withLock { _ in }
                }
                crew.waitForArrivals(all)
                return all
            }
            crew.waitForEnd()
            guard all == threads, cache.statistics.hits == 10 * threads else { exit(2) }
            exit(ComparedKey.comparisons.load(ordering: .relaxed) - before == 10 * threads ? 0 : 3)
        }
    }

    @Test func `a forked child waits for no other thread's look-up`() async {
        await #expect(processExitsWith: .success) {
            let cache = PurgeableCache<Int, Object>(
                "forked", lifetime: CacheLifetime(nil, nil, nil), shardCount: 1, opensAfter: 1, time: .running, cost: { _, _ in 1 })
            cache.insert(Object(1), forKey: 1)
            _ = (cache.value(forKey: 1), cache.value(forKey: 1))
            let crew = Crew(), gate = Mutex(())
            typealias Fork = @convention(c) () -> pid_t
            guard let fork = dlsym(nil, "fork").map({ unsafeBitCast($0, to: Fork.self) }) else { exit(3) }
            let child = gate.withLock { _ in
                _ = crew.start(1) { _ in
                    ReaderSlots.take()
                    guard let reader = ReaderSlot.current, reader.enter(cache.directory.shard(at: 0)) else { exit(4) }
                    crew.arrived()
                    gate.withLock { _ in }
                    reader.leave()
                }
                crew.waitForArrivals(1)
                return fork()
            }
            if child == 0 {
                // Swift's runtime may hang in a child that was forked while another thread was inside the runtime. The
                // alarm makes such a hang a failure instead of an endless wait.
                alarm(240)
                cache.insert(Object(2), forKey: 2)
                for _ in 0..<5 where cache.value(forKey: 2)?.number != 2 { _exit(10) }
                cache.removeAll()
                _exit(cache.count == 0 ? 0 : 11)
            }
            var status: Int32 = 0
            guard waitpid(child, &status, 0) == child, status == 0 else { exit(status == 0 ? 5 : status >> 8) }
            crew.waitForEnd()
            exit(cache.value(forKey: 1)?.number == 1 ? 0 : 6)
        }
    }

    @Test func `objects are found, or absent for good, while threads start, look up, write and end`() async {
        for seed in seeds(0..<4) {
            let cache = cache((Int, Object).self, opensAfter: 3, limit: 100, shardCount: 4), alive = Counter(), wrong = Counter(), hits = Counter()
            // More threads than stripes run one after the other, so that threads take over the reader slots of ended
            // threads.
            for _ in 0..<8 {
                let crew = Crew()
                _ = crew.start(4) { thread in
                    var random = SeededGenerator(seed: seed &* 100 &+ UInt64(thread))
                    for step in 0..<2000 {
                        let number = Int.random(in: 0..<150, using: &random)
                        if thread == 0, step % 50 < 2 {
                            cache.insert(Object(number, alive: alive), forKey: number)
                        } else if thread == 1, step % 97 == 0 {
                            cache.removeValue(forKey: number)
                        } else if let object = cache.value(forKey: number) {
                            hits.add(1)
                            if object.number != number { wrong.add(1) }
                        }
                    }
                }
                crew.waitForEnd()
            }
            #expect(wrong.value == 0 && hits.value > 0, "seed \(seed)")
            #expect(cache.statistics.hits == hits.value, "seed \(seed)")
            #expect(alive.value == cache.count, "an object outside the cache is deallocated, seed \(seed)")
        }
    }

    /// Threads of a test, and a wait for their end.
    final class Crew: Sendable {
        private let here = Atomic(0), running = Atomic(0), wake = Parker()

        /// - Returns: the number of started threads.
        func start(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) -> Int {
            (0..<count).count { number in
                running.wrappingAdd(1, ordering: .sequentiallyConsistent)
                let isStarted = Thread.start("crew") { [self] in
                    body(number)
                    running.wrappingSubtract(1, ordering: .sequentiallyConsistent)
                    wake.unpark()
                }
                if !isStarted { running.wrappingSubtract(1, ordering: .sequentiallyConsistent) }
                return isStarted
            }
        }

        func arrived() {
            here.wrappingAdd(1, ordering: .sequentiallyConsistent)
            wake.unpark()
        }

        func waitForArrivals(_ count: Int) { while here.load(ordering: .sequentiallyConsistent) < count { wake.park() } }
        func waitForEnd() { while running.load(ordering: .sequentiallyConsistent) > 0 { wake.park() } }
    }
}
