#if DEBUG
import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Threads held at the four moments of lending between which another may come; `make sanitize` runs them, too. Each in a process of its own.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct CacheLendingDelayTests {
    typealias Object = CacheVisitTests.Object
    typealias Crew = CacheVisitTests.Crew

    private static func cache(opensAfter: Int, limit: Int = .max, shardCount: Int = 1) -> PurgeableCache<Int, Object> {
        PurgeableCache(
            "lent", limit: .bytes(limit), lifetime: CacheLifetime(nil, nil, nil), shardCount: shardCount, opensAfter: opensAfter, time: .running,
            cost: { _, _ in 1 })
    }

    /// Has one thread borrow object 1 and another take it out of the cache; `hold` has them wait for each other at the moments they come to.
    ///
    /// - Returns: 0 if the object has ended once, else a status.
    private static func meet(_ hold: @escaping @Sendable (LendingPoint, _ writer: Parker, _ borrower: Parker) -> Void) -> Int32 {
        alarm(60)
        let cache = cache(opensAfter: 2), alive = Counter(), wrong = Counter()
        let writer = Parker(), borrower = Parker(), crew = Crew()
        cache.insert(Object(1, alive: alive), forKey: 1)
        while cache.directory.shard(at: 0).openness.pointee.load(ordering: .relaxed) == 0 { _ = cache.value(forKey: 1) }
        LendingPoint.watch { hold($0, writer, borrower) }
        cache.withValue(forKey: 1) { object in
            _ = crew.start(1) { _ in
                cache.removeValue(forKey: 1)
                borrower.unpark()
            }
            // Until the writer is where this one is to go on.
            borrower.park()
            if object.number != 1 || alive.value != 1 { wrong.add(1) }
        }
        writer.unpark()
        crew.waitForEnd()
        // What has been freed twice is given out twice.
        let others = (0..<1000).map { Object($0, alive: alive) }
        guard others.enumerated().allSatisfy({ $0 == $1.number }), alive.value == others.count else { return 2 }
        return wrong.value == 0 ? 0 : 3
    }

    @Test func `a reference taken back during the borrower's check is left alone`() async {
        await #expect(processExitsWith: .success) {
            exit(
                Self.meet { point, writer, borrower in
                    switch point {
                    case .given:
                        borrower.unpark()
                        writer.park()
                    case .seen:
                        writer.unpark()
                        // Until the object is out of the cache and, but for this thread, dead.
                        borrower.park()
                    case .ended, .retained: break
                    }
                })
        }
    }

    @Test func `a reference given after the borrower's check is taken back`() async {
        await #expect(processExitsWith: .success) {
            exit(
                Self.meet { point, writer, borrower in
                    switch point {
                    case .retained:
                        borrower.unpark()
                        // Until the borrower is through.
                        writer.park()
                    case .seen: exit(4)
                    case .ended, .given: break
                    }
                })
        }
    }

    @Test func `delays at every moment of lending cause no double end and no left-over`() async {
        await #expect(processExitsWith: .success) {
            alarm(240)
            let late = Counter()
            for seed in seeds(3) {
                let moments = Counter()
                LendingPoint.watch { point in
                    var random = SeededGenerator(seed: seed &* 1_000_003 &+ UInt64(moments.value))
                    moments.add(1)
                    if point == .seen { late.add(1) }
                    if Bool.random(using: &random) { nap(.random(in: 0...200, using: &random)) }
                }
                let alive = Counter(), wrong = Counter()
                let caches = (0..<2).map { _ in Self.cache(opensAfter: 2, limit: 20, shardCount: 1) }
                for _ in 0..<3 {
                    let crew = Crew()
                    _ = crew.start(4) { thread in
                        var random = SeededGenerator(seed: seed &* 100 &+ UInt64(thread))
                        for step in 0..<400 {
                            let number = Int.random(in: 0..<6, using: &random), cache = caches.randomElement(using: &random)!
                            if thread == 0, step % 4 == 0 {
                                cache.insert(Object(number, alive: alive), forKey: number)
                            } else if thread == 1, step % 16 == 0 {
                                cache.removeValue(forKey: number)
                            } else {
                                // Long enough now and then for a writer to come.
                                let nap = UInt32.random(in: 0..<4, using: &random) == 0 ? UInt32.random(in: 0...200, using: &random) : 0
                                cache.withValue(forKey: number) { object in
                                    if nap > 0 { TestSupport.nap(nap) }
                                    if object.number != number { wrong.add(1) }
                                }
                            }
                        }
                    }
                    crew.waitForEnd()
                }
                let left = caches.reduce(0) { $0 + $1.count }
                guard wrong.value == 0, alive.value == left else {
                    print("PLIMSOLL_SEED=\(seed): \(wrong.value) wrong, \(alive.value) alive, \(left) in caches")
                    exit(wrong.value > 0 ? 2 : 3)
                }
            }
            // A gift must have been seen, or nothing has been tried.
            exit(late.value > 0 ? 0 : 4)
        }
    }
}
#endif
