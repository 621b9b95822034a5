import Foundation
import Plimsoll
import PlimsollFoundation
import PlimsollTesting
import Testing

@Suite(.timeLimit(.minutes(5))) struct MemoryCacheLimitTests {
    /// Returns a cache with `count` numbers, each at a cost of ten.
    func filled(_ count: Int, limit: Int = 0, costLimit: Int = 0) -> MemoryCache<Int, Int> {
        let cache = MemoryCache<Int, Int>()
        cache.countLimit = limit
        cache.totalCostLimit = costLimit
        for number in 0..<count { cache.setObject(number, forKey: number, cost: 10) }
        return cache
    }

    func numbers(_ cache: MemoryCache<Int, Int>, _ range: Range<Int> = 0..<200) -> [Int] { range.filter { cache.object(forKey: $0) != nil } }

    @Test func `lowered limits take effect at once, and zero is no limit`() {
        let cache = filled(100)
        cache.countLimit = 60
        #expect(cache.count == 60 && cache.totalCost == 600 && cache.heldBytes == 600)
        cache.totalCostLimit = 305
        #expect(cache.count == 30 && cache.totalCost == 300 && numbers(cache).count == 30)
        cache.totalCostLimit = 0
        cache.countLimit = -1
        for number in 0..<100 { cache.setObject(number, forKey: number, cost: 10) }
        #expect(cache.count == 100 && cache.totalCost == 1000 && cache.countLimit == -1 && cache.totalCostLimit == 0)
        cache.totalCostLimit = 1
        #expect(cache.count == 0 && cache.totalCost == 0)
    }

    @Test func `both limits hold together, and the tighter one decides`() {
        let cache = filled(0, limit: 10, costLimit: 100)
        for number in 0..<50 { cache.setObject(number, forKey: number, cost: 1) }
        #expect(cache.count == 10 && cache.totalCost == 10)
        for number in 50..<60 { cache.setObject(number, forKey: number, cost: 40) }
        #expect(cache.count <= 10 && cache.totalCost <= 100 && cache.object(forKey: 59) == 59)
        // Objects without a cost are bounded by number only.
        for number in 100..<200 { cache.setObject(number, forKey: number) }
        #expect(cache.count == 10)
    }

    @Test func `a newcomer is admitted with any costs in the cache`() {
        for order in [{ _ in 0 }, { $0 }, { 300 - $0 }, { $0 * 37 % 100 }] as [(Int) -> Int] {
            let cache = filled(0, limit: 20, costLimit: 2000)
            for number in 0..<300 {
                #expect(cache.setObject(number, forKey: number, cost: order(number)))
                #expect(cache.object(forKey: number) == number && cache.count <= 20 && cache.totalCost <= 2000)
            }
        }
        let single = filled(0, limit: 1)
        for number in 0..<10 { #expect(single.setObject(number, forKey: number) && numbers(single) == [number]) }
    }

    @Test func `a newcomer is admitted among entries that are all in use`() {
        let cache = filled(5, limit: 5)
        for number in 5..<50 {
            for other in numbers(cache) { #expect(cache.object(forKey: other) == other) }
            cache.setObject(number, forKey: number)
            #expect(cache.object(forKey: number) == number && cache.count == 5)
        }
    }

    @Test func `entries asked for again outlive a scan`() {
        let cache = filled(100, limit: 100)
        for number in 0..<20 { _ = cache.object(forKey: number) }
        for number in 1000..<5000 { cache.setObject(number, forKey: number, cost: number % 7) }
        #expect(numbers(cache, 0..<20).count == 20 && cache.count == 100)
        #expect(cache.statistics.evictions == 4000 && cache.statistics.purged == 0)
    }

    @Test func `T26 an object over the limit is refused alone, and the old value under that key is dropped`() {
        let cache = filled(10, costLimit: 100)
        #expect(!cache.setObject(99, forKey: 99, cost: 101) && !cache.setObject(99, forKey: 99, cost: Int.max) && cache.count == 10)
        #expect(!cache.setObject(-1, forKey: 3, cost: 1000) && cache.object(forKey: 3) == nil)
        #expect(cache.count == 9 && cache.totalCost == 90 && cache.statistics.evictions == 0)
    }

    @Test func `T26 no cost makes sums overflow, and a negative cost counts as zero`() {
        let cache = MemoryCache<Int, Int>()
        for number in 0..<1000 { #expect(cache.setObject(number, forKey: number, cost: Int.max - number)) }
        #expect(cache.count == 1000 && cache.totalCost > 0)
        cache.totalCostLimit = Int.max
        cache.countLimit = Int.max
        cache.setObject(1, forKey: 2000, cost: Int.max)
        #expect(cache.count == 1001)
        cache.totalCostLimit = 1
        #expect(cache.count == 0 && cache.setObject(1, forKey: 1, cost: Int.min) && cache.totalCost == 0)
        cache.countLimit = Int.min
        cache.totalCostLimit = Int.min
        #expect(cache.setObject(2, forKey: 2, cost: 7) && cache.count == 2)
    }

    @Test func `replacing in a full cache evicts no other entry`() {
        let cache = filled(10, limit: 10, costLimit: 100)
        for round in 1...20 {
            for number in 0..<10 { cache.setObject(number + round, forKey: number, cost: 10) }
            #expect(cache.count == 10 && cache.totalCost == 100 && (0..<10).allSatisfy { cache.object(forKey: $0) == $0 + round })
        }
        #expect(cache.statistics.evictions == 0)
        // A replacement that costs more evicts as many entries as needed.
        #expect(cache.setObject(7, forKey: 0, cost: 55) && cache.object(forKey: 0) == 7 && cache.totalCost <= 100 && cache.count == 5)
    }
}
