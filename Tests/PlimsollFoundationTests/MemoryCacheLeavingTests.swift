import Foundation
import Plimsoll
import PlimsollFoundation
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

/// Objects that leave a cache, and the notifications about them.
@Suite(.timeLimit(.minutes(5))) struct MemoryCacheLeavingTests {
    typealias Citizens = MemoryCache<NSNumber, Citizen>

    private func watched(limit: Int, act: @escaping @Sendable (Citizens, Citizen) -> Void = { _, _ in }) -> (Citizens, Witness<NSNumber, Citizen>) {
        let cache = Citizens(), witness = Witness<NSNumber, Citizen>({ $0.number }, act: act)
        cache.countLimit = limit
        cache.delegate = witness
        return (cache, witness)
    }

    private func fill(_ cache: Citizens, _ numbers: Range<Int>, _ census: Census = Census()) {
        for number in numbers { cache.setObject(Citizen(number, census), forKey: NSNumber(value: number)) }
    }

    // MARK: Delegate

    @Test func `the delegate is notified of evicted objects, and of no others`() {
        let (cache, witness) = watched(limit: 3)
        fill(cache, 0..<5)
        #expect(witness.evicted == [0, 1])
        cache.removeObject(forKey: 2)
        fill(cache, 3..<4)
        cache.totalCostLimit = 10
        #expect(!cache.setObject(Citizen(4), forKey: 4, cost: 11) && cache.count == 1)
        cache.removeAllObjects()
        #expect(witness.evicted == [0, 1])
        fill(cache, 5..<8)
        #expect(cache.release(.max) > .zero && witness.evicted == [0, 1, 5, 6, 7])
        fill(cache, 8..<11)
        cache.countLimit = 1
        #expect(witness.evicted == [0, 1, 5, 6, 7, 8, 9])
        cache.delegate = nil
        fill(cache, 11..<13)
        #expect(witness.evicted.count == 7)
    }

    @Test func `the delegate is not kept alive, nor notified of objects that end with the cache`() {
        var cache: Citizens? = Citizens()
        var witness: Witness<NSNumber, Citizen>? = Witness { $0.number }
        weak let gone = witness
        cache?.delegate = witness
        witness = nil
        #expect(gone == nil && cache?.delegate == nil)
        let other = Witness<NSNumber, Citizen> { $0.number }
        cache?.delegate = other
        fill(cache!, 0..<10)
        cache = nil
        #expect(other.evicted.isEmpty)
    }

    @Test func `T2 the delegate may use the cache in any way`() {
        let (cache, witness) = watched(limit: 4) { cache, citizen in
            #expect(cache.object(forKey: NSNumber(value: citizen.number)) == nil, "the object has left already")
            switch citizen.number {
            case 0: cache.setObject(citizen, forKey: -1)
            case 1: cache.removeObject(forKey: 2)
            case 3: cache.countLimit = 2
            case 6: cache.removeAllObjects()
            case 8: cache.delegate = nil
            default: _ = cache.statistics
            }
        }
        fill(cache, 0..<5)
        #expect(cache.count <= 4 && cache.object(forKey: 4) != nil)
        fill(cache, 5..<100)
        #expect(cache.count == 2 && cache.object(forKey: 99) != nil && cache.delegate == nil, "\(witness.evicted)")
        #expect(witness.evicted.contains(0) && witness.evicted.last == 8)
    }

    @Test func `T2 a delegate that puts all evicted objects back terminates`() {
        let (cache, _) = watched(limit: 3) { cache, citizen in cache.setObject(citizen, forKey: NSNumber(value: citizen.number)) }
        fill(cache, 0..<20)
        #expect(cache.count <= 3)
        cache.countLimit = 1
        #expect(cache.count <= 1)
        cache.delegate = nil
        fill(cache, 20..<21)
        #expect(cache.object(forKey: 20) != nil)
    }

    // MARK: Lives

    @Test func `a dropped cache leaves no object behind`() {
        let census = Census(), keys = Census()
        var cache: MemoryCache<Citizen, Citizen>? = MemoryCache()
        for number in 0..<1000 { cache?.setObject(Citizen(number, census), forKey: Citizen(number, keys), cost: number) }
        #expect(census.alive == 1000 && keys.alive == 1000)
        weak let gone = cache
        cache = nil
        #expect(gone == nil && census.alive == 0 && keys.alive == 0)
    }

    @Test func `a leaving object is released at once, by every path`() {
        let census = Census(), cache = Citizens()
        fill(cache, 0..<100, census)
        cache.removeObject(forKey: 0)
        fill(cache, 1..<2, census)
        cache.countLimit = 50
        #expect(census.alive == 50 && cache.count == 50)
        #expect(cache.release(640) == 640 && census.alive == 40)
        cache.removeAllObjects()
        #expect(census.alive == 0)
    }

    @Test func `T2 an object's deinit may use the cache`() {
        let cache = Citizens(), census = Census()
        cache.countLimit = 10
        for number in 0..<100 {
            let citizen = Citizen(number, census) { [weak cache] in
                _ = cache?.object(forKey: 1)
                cache?.removeObject(forKey: 2)
                if number % 10 == 0 { cache?.setObject(Citizen(), forKey: NSNumber(value: -number)) }
            }
            cache.setObject(citizen, forKey: NSNumber(value: number))
            #expect(cache.count <= 10)
        }
        cache.setObject(Citizen(), forKey: 99)
        cache.removeObject(forKey: 98)
        cache.countLimit = 2
        _ = cache.release(1)
        cache.removeAllObjects()
        #expect(census.alive == 0)
    }

    // MARK: Discarded content

    final class Sheet: DiscardableContent {
        private let state = Mutex((accesses: 0, isDiscarded: false))
        func beginContentAccess() -> Bool {
            state.withLock { state in
                if state.isDiscarded { return false }
                state.accesses += 1
                return true
            }
        }
        func endContentAccess() { state.withLock { $0.accesses -= 1 } }
        func discardContentIfPossible() { state.withLock { if $0.accesses == 0 { $0.isDiscarded = true } } }
        func isContentDiscarded() -> Bool { state.withLock { $0.isDiscarded } }
    }

    @Test func `a look-up evicts an object with discarded content`() {
        let cache = MemoryCache<String, Sheet>(), sheet = Sheet(), witness = Witness<String, Sheet> { _ in 1 }
        cache.delegate = witness
        cache.setObject(sheet, forKey: "a", cost: 10)
        #expect(cache.object(forKey: "a") === sheet)
        sheet.discardContentIfPossible()
        #expect(cache.object(forKey: "a") == nil && cache.count == 0 && cache.totalCost == 0 && witness.evicted == [1])
        #expect(cache.statistics.hits == 1 && cache.statistics.misses == 1 && cache.statistics.evictions == 1)

        cache.evictsObjectsWithDiscardedContent = false
        cache.setObject(sheet, forKey: "a")
        #expect(cache.object(forKey: "a") === sheet && !cache.evictsObjectsWithDiscardedContent)
        cache.evictsObjectsWithDiscardedContent = true
        #expect(cache.object(forKey: "a") == nil)
    }

    @Test(.needs(VolatileMemory.isSupported, "no memory can be volatile here"))
    func `purgeable data with pages reclaimed by the kernel counts as missing`() {
        let cache = MemoryCache<NSString, PurgeableData>()
        // More pages than the kernel can miss because they are still in another processor's list of pages to be sorted
        // in (mm/swap.c).
        let kept = PurgeableData(data: Data(repeating: 1, count: 1_000_000)), taken = PurgeableData(data: Data(repeating: 2, count: 1_000_000))
        cache.setObject(kept, forKey: "kept")
        cache.setObject(taken, forKey: "taken")
        taken.endContentAccess()
        #expect(cache.object(forKey: "taken") === taken)
        taken.buffer.reclaim()
        kept.buffer.reclaim()
        #expect(cache.object(forKey: "kept") === kept, "the data is accessed")
        #expect(cache.object(forKey: "taken") == nil && cache.count == 1)
    }

    @Test func `an evicted object discards the content unless accessed; a removed object does not`() {
        let cache = MemoryCache<Int, Sheet>(), sheets = (0..<5).map { _ in Sheet() }
        for (number, sheet) in sheets.enumerated() { cache.setObject(sheet, forKey: number) }
        #expect(sheets[0].beginContentAccess())
        cache.removeObject(forKey: 1)
        cache.setObject(Sheet(), forKey: 2)
        cache.setObject(sheets[3], forKey: 3)
        #expect(cache.release(.max) > .zero && cache.count == 0)
        #expect(sheets.map { $0.isContentDiscarded() } == [false, false, false, true, true])
    }
}
