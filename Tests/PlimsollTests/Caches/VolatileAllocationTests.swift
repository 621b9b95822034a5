import CAllocationCounter
import TestSupport
import Testing

@testable import Plimsoll

/// Heap allocations of a hit.
@Suite(.timeLimit(.minutes(5)), .needs(allocation_count_works(), "a sanitizer is in front of malloc")) struct VolatileAllocationTests {
    private let cache = VolatileCache<UInt64, [UInt8]>("cache")
    private static let keys: UInt64 = 1000
    /// The values together have several times the size of a segment, so that most values are in sealed segments.
    private static let value = [UInt8](repeating: 7, count: 16 << 10)

    init() { for key in 0..<Self.keys { cache.insert(Self.value, forKey: key) } }

    @Test func `looking at a value's bytes allocates nothing`() {
        var sum = 0
        // Reads each value three times: the first look-up borrows its first buffer, and a use is marked at most three
        // times.
        for _ in 0..<3 { sum += readAll() }
        let before = allocation_count()
        sum += readAll()
        #expect(allocation_count() - before == 0)
        #expect(sum == 4 * 7 * Int(Self.keys))
    }

    @Test func `a look-up of a value takes one allocation of exactly the value's size`() {
        var count = take()
        let before = allocation_count()
        count += take()
        #expect(allocation_count() - before == Self.keys)
        #expect(count == 2 * Self.value.count * Int(Self.keys))
    }

    @Test func `T27 K29 C86 releasing in part and whole, and noticing taken pages allocate nothing`() {
        func filled() -> VolatileCache<UInt64, [UInt8]> {
            let cache = VolatileCache<UInt64, [UInt8]>("given back")
            let value = [UInt8](repeating: 7, count: 3000)
            var key: UInt64 = 0
            while key < 10_000 {
                cache.insert(value, forKey: key)
                if key % 10 == 0 { _ = cache.value(forKey: key / 2) }
                key += 1
            }
            return cache
        }
        // The first round warms the runtime up.
        for round in 0..<2 {
            let cache = filled()
            cache.reclaim { segment, page in segment == 1 || page == 5 }
            let before = allocation_count()
            var released = cache.noticeDrops()
            released += cache.release(6 << 20)
            released += cache.release(20 << 20)
            released += cache.release(.max)
            cache.giveBackIdle()
            let allocations = allocation_count() - before
            #expect(allocations == 0 || round == 0)
            #expect(released > 28 << 20 && cache.heldBytes == .zero && cache.count == 0)
        }
    }

    private func readAll() -> Int {
        var sum = 0
        each { key in sum += cache.withBytes(forKey: key) { Int($0.unsafeLoad(as: UInt8.self)) } ?? 0 }
        return sum
    }

    private func take() -> Int {
        var count = 0
        each { key in count += cache.value(forKey: key)?.count ?? 0 }
        return count
    }

    /// Avoids `for`: unoptimized iteration of a range of `UInt64` allocates.
    private func each(_ body: (UInt64) -> Void) {
        var key: UInt64 = 0
        while key < Self.keys {
            body(key)
            key += 1
        }
    }
}
