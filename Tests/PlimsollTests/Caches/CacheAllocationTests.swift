import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Memory of blocks and indexes, and values on their way out of a cache.
@Suite(.timeLimit(.minutes(5))) struct CacheAllocationTests {
    private static let page = Int(getpagesize())

    private func byte(_ allocation: CacheAllocation, at offset: Int) -> UInt8 {
        allocation.base.load(fromByteOffset: offset, as: UInt8.self)
    }

    private func fill(_ allocation: CacheAllocation) {
        allocation.base.initializeMemory(as: UInt8.self, repeating: 0xFF, count: allocation.byteCount)
    }

    // MARK: Pages

    @Test(.needsLinux, arguments: [(32_767, false, false), (32_768, false, true), (8191, true, false), (8192, true, true)])
    func `memory from 32 KiB on has pages of its own, and memory that readers may be in from 8 KiB on`(
        count: Int, hasReaders: Bool, hasPages: Bool
    ) {
        let least = hasReaders ? CacheAllocation.leastMappedForReaders : CacheAllocation.leastMapped
        let allocation = CacheAllocation(count, leastMapped: least)
        #expect((allocation.giveBack(0, to: allocation.byteCount) > 0) == hasPages)
        allocation.free()
    }

    @Test(.needsLinux, arguments: [(-1, 16), (0, 16), (1, 17)])
    func `memory with pages of its own is rounded up to whole pages`(more: Int, pages: Int) {
        let allocation = CacheAllocation(16 * Self.page + more, leastMapped: 1)
        #expect(allocation.byteCount == pages * Self.page)
        allocation.free()
    }

    /// An offset in whole pages and some bytes.
    struct Offset: Sendable {
        let pages: Int
        let bytes: Int
        init(_ pages: Int, _ bytes: Int = 0) { (self.pages, self.bytes) = (pages, bytes) }
    }

    private static let ranges: [(Offset, Offset, Range<Int>)] = [
        (Offset(0), Offset(4), 0..<4), (Offset(0, 1), Offset(4), 1..<4), (Offset(1), Offset(4), 1..<4),
        (Offset(1, 1), Offset(4), 2..<4), (Offset(0), Offset(1, -1), 0..<0), (Offset(0), Offset(1), 0..<1),
        (Offset(1), Offset(1), 0..<0), (Offset(3), Offset(2), 0..<0), (Offset(0, 500), Offset(3, 500), 1..<3),
    ]

    @Test(.needsLinux, arguments: ranges)
    func `only whole pages between the two offsets are given back, and are zero then`(
        start: Offset, end: Offset, pages: Range<Int>
    ) {
        let page = Self.page, allocation = CacheAllocation(4 * page, leastMapped: 1)
        let start = start.pages * page + start.bytes, end = end.pages * page + end.bytes
        fill(allocation)
        #expect(allocation.giveBack(start, to: end) == pages.count * page)
        for number in 0..<4 {
            let expected: UInt8 = pages.contains(number) ? 0 : 0xFF
            #expect(byte(allocation, at: number * page) == expected, "page \(number)")
            #expect(byte(allocation, at: number * page + page - 1) == expected, "page \(number)")
        }
        allocation.free()
    }

    @Test func `memory is zero, although memory with other contents was freed before`() {
        for round in 0..<8 {
            let allocation = CacheAllocation(1000)
            #expect((0..<1000).allSatisfy { byte(allocation, at: $0) == 0 }, "round \(round)")
            fill(allocation)
            allocation.free()
        }
    }

    @Test func `counters are zero, although memory with other contents was freed before`() {
        for _ in 0..<8 {
            let counters = CacheCounters()
            let total = counters.total.pointee.exchange(5, ordering: .relaxed)
            let limit = counters.limit.pointee.exchange(5, ordering: .relaxed)
            #expect(total == 0 && limit == 0 && !counters.has(.pins) && counters.sum(.hit) == 0)
            counters.use(.pins)
            for _ in 0..<5 { counters.count(.hit) }
            #expect(counters.has(.pins) && counters.sum(.hit) == 5 && counters.sum(.miss) == 0)
            counters.free()
        }
    }

    @Test func `the counts of each thread have a cache line of their own`() {
        #expect((0..<4).map { CacheCounters.stripe($0) } == [128, 192, 256, 320])
    }

    // MARK: Values

    @Test func `a batch gives out its entries once and in order, and ends those that are left with itself`() {
        let alive = Counter()
        var batch: CacheBatch<CacheLifetimeTests.Tracked>? = CacheBatch(capacity: 3), seen: [Int] = []
        for number in 1...3 {
            #expect(batch?.isFull == false)
            batch?.append(CacheLifetimeTests.Tracked(number, alive))
        }
        #expect(batch?.isFull == true && batch?.count == 3 && alive.value == 3)
        batch?.forEach { seen.append($0.number) }
        batch?.drain { seen.append($0.number * 10) }
        #expect(seen == [1, 2, 3, 10, 20, 30] && batch?.count == 0 && alive.value == 0)
        batch?.append(CacheLifetimeTests.Tracked(4, alive))
        batch?.append(CacheLifetimeTests.Tracked(5, alive))
        #expect(alive.value == 2)
        batch = nil
        #expect(alive.value == 0)
    }

    /// A value that notes the thread on which it ends.
    private final class Ending: Sendable {
        private let threads: Log<UInt>
        init(_ threads: Log<UInt>) { self.threads = threads }
        deinit { threads.add(Thread.current) }
    }

    @Test(arguments: [(1000, true), (1001, false)])
    func `up to a thousand values end on the thread that removes all, and more on another`(
        count: Int, isHere: Bool
    ) async {
        let threads = Log<UInt>()
        let cache = PurgeableCache<Int, Ending>("ending", shardCount: 1, cost: { _, _ in 1 })
        for key in 0..<count { cache.insert(Ending(threads), forKey: key) }
        let own = Thread.current
        cache.removeAll()
        await until("the end of the values") { threads.all.count == count }
        let ended = Set(threads.all)
        #expect(isHere ? ended == [own] : !ended.contains(own))
    }
}
