#if DEBUG
import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Threads held at the four points of lending between which another thread may run. `make sanitize` runs these tests
/// too. Each test runs in a separate process.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct CacheLendingDelayTests {
    typealias Object = CacheVisitTests.Object
    typealias Crew = CacheVisitTests.Crew

    private static func cache(opensAfter: Int, limit: Int = .max, shardCount: Int = 1) -> PurgeableCache<Int, Object> {
        PurgeableCache(
            "lent", limit: .bytes(limit), lifetime: CacheLifetime(nil, nil, nil), shardCount: shardCount, opensAfter: opensAfter, time: .running,
            cost: { _, _ in 1 })
    }

    /// Has one thread borrow object 1 and another thread remove the object. `hold` makes the threads wait for each
    /// other at the points of lending.
    ///
    /// - Returns: 0 if the object was deallocated once, otherwise an exit status.
    private static func meet(_ hold: @escaping @Sendable (LendingPoint, _ writer: Parker, _ borrower: Parker) -> Void) -> Int32 {
        alarm(240)
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
            // Waits until the writer is at the point where the borrower may continue.
            borrower.park()
            if object.number != 1 || alive.value != 1 { wrong.add(1) }
        }
        writer.unpark()
        crew.waitForEnd()
        // The allocator hands out memory twice if the memory was freed twice.
        let others = (0..<1000).map { Object($0, alive: alive) }
        guard others.enumerated().allSatisfy({ $0 == $1.number }), alive.value == others.count else { return 2 }
        return wrong.value == 0 ? 0 : 3
    }

    @Test func `a borrower does not touch an object whose reference was taken back during the check`() async {
        await #expect(processExitsWith: .success) {
            exit(
                Self.meet { point, writer, borrower in
                    switch point {
                    case .given:
                        borrower.unpark()
                        writer.park()
                    case .seen:
                        writer.unpark()
                        // Waits until the object is out of the cache, and only this thread keeps the object alive.
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
                        // Waits until the borrower has finished.
                        writer.park()
                    case .seen: exit(4)
                    case .ended, .given: break
                    }
                })
        }
    }

    @Test func `delays at every point of lending cause neither a double release nor a leak`() async {
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
                                // Now and then, the pause is long enough for a write.
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
            // At least one borrower must have seen a given reference, otherwise the test has tried nothing.
            exit(late.value > 0 ? 0 : 4)
        }
    }
}
#endif
