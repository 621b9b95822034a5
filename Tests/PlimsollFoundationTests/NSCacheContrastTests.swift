import Foundation
import PlimsollFoundation
import Testing

/// NSCache of swift-corelibs-foundation (Swift 6.3) beside MemoryCache. Each difference is a known issue of Foundation:
/// the test fails where the issue is fixed, and `docs/MigratingFromNSCache.md` then loses a line.
///
/// One issue has no test, because the test would hang: NSCache calls its delegate under a lock that is not recursive,
/// so a delegate cannot use the cache.
@Suite struct NSCacheContrastTests {
    @Test func `NSCache evicts the newest among equal costs`() {
        let theirs = NSCache<NSNumber, NSNumber>(), ours = MemoryCache<NSNumber, NSNumber>()
        theirs.countLimit = 3
        ours.countLimit = 3
        for number in 0..<10 {
            theirs.setObject(number as NSNumber, forKey: number as NSNumber)
            ours.setObject(number as NSNumber, forKey: number as NSNumber)
        }
        #expect(ours.object(forKey: 9) != nil && ours.object(forKey: 8) != nil && ours.object(forKey: 0) == nil)
        withKnownIssue("the object just set is evicted, and what came first is kept for ever") {
            #expect(theirs.object(forKey: 9) != nil && theirs.object(forKey: 0) == nil)
        }
    }

    @Test func `a dropped NSCache leaks the entries`() {
        let theirs = Census(), ours = Census()
        var cache: NSCache<NSNumber, Citizen>? = NSCache()
        var memoryCache: MemoryCache<NSNumber, Citizen>? = MemoryCache()
        for number in 0..<10 {
            cache?.setObject(Citizen(number, theirs), forKey: number as NSNumber)
            memoryCache?.setObject(Citizen(number, ours), forKey: number as NSNumber)
        }
        cache = nil
        memoryCache = nil
        #expect(ours.alive == 0)
        withKnownIssue("the entries refer to each other") { #expect(theirs.alive == 0) }
    }

    @Test func `NSCache ignores a lowered limit until the next set`() {
        let theirs = NSCache<NSNumber, Citizen>(), ours = MemoryCache<NSNumber, Citizen>(), census = Census(), ourCensus = Census()
        for number in 0..<10 {
            theirs.setObject(Citizen(number, census), forKey: number as NSNumber, cost: 10)
            ours.setObject(Citizen(number, ourCensus), forKey: number as NSNumber, cost: 10)
        }
        theirs.countLimit = 5
        ours.countLimit = 5
        #expect(ourCensus.alive == 5)
        withKnownIssue("the limit has no effect") { #expect(census.alive == 5) }
        theirs.removeAllObjects()
    }

    @Test func `T26 one object larger than the limit empties NSCache`() {
        let theirs = NSCache<NSNumber, NSNumber>(), ours = MemoryCache<NSNumber, NSNumber>()
        theirs.totalCostLimit = 100
        ours.totalCostLimit = 100
        for number in 0..<10 {
            theirs.setObject(1, forKey: number as NSNumber, cost: 10)
            ours.setObject(1, forKey: number as NSNumber, cost: 10)
        }
        theirs.setObject(1, forKey: 99, cost: 1000)
        ours.setObject(1, forKey: 99, cost: 1000)
        #expect((0..<10).allSatisfy { ours.object(forKey: $0 as NSNumber) != nil } && ours.object(forKey: 99) == nil)
        withKnownIssue("everything has gone") {
            #expect((0..<10).allSatisfy { theirs.object(forKey: $0 as NSNumber) != nil })
        }
    }

    @Test func `NSCache takes keys equal by == for different keys`() {
        typealias Name = MemoryCacheTests.Name
        let theirs = NSCache<Name, NSNumber>(), ours = MemoryCache<Name, NSNumber>()
        theirs.setObject(1, forKey: Name("a"))
        ours.setObject(1, forKey: Name("a"))
        #expect(ours.object(forKey: Name("a")) == 1)
        withKnownIssue("only the same object finds the entry") { #expect(theirs.object(forKey: Name("a")) == 1) }
    }
}
