import CPlimsollMemory
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Releases, idle entries and noticed drops of a volatile log. Mostly a segment has 16 KiB, room for 15 entries.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux, .needs(plimsoll_page_size() == 4096, "the places are those of pages of 4 KiB"))
struct VolatileGivingBackTests {
    // MARK: Releases

    @Test func `a release keeps used entries where the open segment has room, and takes no further segment`() {
        let store = VolatileStore.ordinary()
        store.fill(0..<40)
        // The first entry opens a segment of the main queue.
        #expect(store.use(0..<40) && store.evict(1) == 1 && store.mapped == 48 << 10)
        store.withLog(()) { $0.copied = .max }
        // The rest of the first segment fits into the open one.
        #expect(store.release(4 << 10) == 4 << 10)
        #expect(store.statistics.count == 40 && store.statistics.purged == 0 && store.mapped == 44 << 10)
        // The next segment's entries have no room.
        #expect(store.release(8 << 10) == 16 << 10)
        #expect(store.statistics.count == 25 && store.statistics.purged == 15 && store.use(0..<15) && store.look(15) == nil)
    }

    @Test func `a release of half looks at no entry, and a release of less spares a used one`() {
        for (target, left) in [(2 * 8192, [2, 3]), (2 * 8192 - 1, [0, 3])] {
            let store = VolatileStore.ordinary()
            for key in 0..<4 where !store.put(key, 6000) { Issue.record("key \(key) is refused") }
            #expect(store.use(0..<1) && store.mapped == 4 * 8192)
            #expect(store.release(target) == 2 * 8192 && store.statistics.purged == 2)
            #expect((0..<4).filter { store.look($0) != nil } == left, "\(target) bytes")
        }
    }

    @Test func `a release ends with the last byte asked for`() {
        let store = VolatileStore.ordinary()
        for key in 0..<4 where !store.put(key, 6000) { Issue.record("key \(key) is refused") }
        #expect(store.mapped == 4 * 8192)
        #expect(store.release(2 * 8192) == 2 * 8192 && store.statistics.count == 2)
        #expect(store.release(1) == 8192 && store.release(0) == 0 && store.statistics.count == 1)
        #expect(store.release(8193) == 8192 && store.release(1) == 0 && store.mapped == 0)
    }

    @Test func `a release gives spare bytes back as well`() {
        let store = VolatileStore.ordinary(), meter = ChargeMeter(wakesWhenRefusing: false) {}
        store.fill(0..<30)
        store.attach(meter)
        meter.takeAnyway(5000)
        store.withLog(()) { $0.spare = 5000 }
        #expect(store.release(1) == 16 << 10 && meter.heldBytes.bytes == 16 << 10 && store.mapped == 16 << 10)
    }

    // MARK: Idle entries

    @Test func `entries sealed longer ago than the idle time leave, and used ones stay after many copies as well`() {
        let clock = ManualClock(), store = VolatileStore.ordinary(1 << 20, clock)
        clock.freeze(for: .seconds(100))
        store.fill(0..<20)
        #expect(store.use(3..<4))
        clock.freeze(for: .seconds(60))
        store.turnOver(olderThan: .seconds(60))
        #expect(store.statistics.count == 20)
        clock.freeze(for: .milliseconds(1))
        store.withLog(()) { $0.copied = .max }
        store.turnOver(olderThan: .seconds(60))
        #expect(store.statistics.count == 6 && store.statistics.evictions == 14 && store.look(3) != nil)
    }

    @Test func `used entries of the main queue stay for another turn, though no open segment has room`() {
        let clock = ManualClock(), store = VolatileStore.ordinary(1 << 20, clock)
        store.fill(0..<31)
        #expect(store.use(0..<30))
        clock.freeze(for: .seconds(61))
        store.turnOver(olderThan: .seconds(60))
        #expect(store.statistics.count == 31 && store.withLog(0) { $0.main.liveBytes } == 30 * 1024)
        #expect(store.use(0..<15))
        clock.freeze(for: .seconds(61))
        store.turnOver(olderThan: .seconds(60))
        #expect(store.statistics.count == 31 && store.use(0..<15))
    }

    @Test func `used entries stay however many there are, and unused ones leave`() {
        let clock = ManualClock(), store = VolatileStore.ordinary(nil, clock)
        for key in 0..<200 where !store.put(key, (64 << 10) - 24) { Issue.record("key \(key) is refused") }
        #expect(store.use(0..<150))
        clock.freeze(for: .seconds(61))
        // 4 MiB are copied, and the rest waits.
        let isLeft = store.withLog(false) { $0.turnOver(olderThan: .seconds(60)) }
        #expect(isLeft && store.withLog(0) { $0.main.liveBytes } == 4 << 20 && store.statistics.evictions == 0)
        store.turnOver(olderThan: .seconds(60))
        // Six segments of 31 entries are full. The rest is in the open one.
        #expect(store.use(0..<150) && store.statistics.count == 164 && store.statistics.evictions == 36)
        let isLeftAfterwards = store.withLog(true) { $0.turnOver(olderThan: .seconds(60)) }
        #expect(!isLeftAfterwards)
    }

    @Test func `some thousands of idle entries leave under one hold of the lock, and the rest follows`() {
        let clock = ManualClock(), store = VolatileStore.ordinary(nil, clock)
        // A segment of 2 MiB holds less than 24,000 of them. The next one is open.
        for key in 0..<30_000 where !store.put(key, 64) { Issue.record("key \(key) is refused") }
        clock.freeze(for: .seconds(61))
        let isLeft = store.withLog(false) { $0.turnOver(olderThan: .seconds(60)) }
        #expect(isLeft && store.statistics.evictions == 1 << 14)
        store.turnOver(olderThan: .seconds(60))
        let isLeftAfterwards = store.withLog(true) { $0.turnOver(olderThan: .seconds(60)) }
        #expect(!isLeftAfterwards && store.statistics.count < 30_000 - 20_000)
    }

    @Test func `a large entry that was used stays for one more idle time`() {
        let clock = ManualClock(), store = VolatileStore.ordinary(1 << 20, clock)
        #expect(store.put(1, 6000) && store.put(2, 6000) && store.use(1..<2))
        clock.freeze(for: .seconds(61))
        store.turnOver(olderThan: .seconds(60))
        #expect(store.statistics.count == 1 && store.look(1) != nil && store.mapped == 8192)
        clock.freeze(for: .seconds(60))
        store.turnOver(olderThan: .seconds(60))
        #expect(store.statistics.count == 1)
        clock.freeze(for: .seconds(1))
        store.turnOver(olderThan: .seconds(60))
        #expect(store.statistics.count == 0 && store.mapped == 0)
    }

    @Test func `a cache with a limit keeps idle entries`() {
        let clock = ManualClock()
        for limit in [nil, ByteCount.mebibytes(1)] {
            let cache = VolatileCache<Int, [UInt8]>(
                "idle", limit: limit, idleTime: .seconds(60), isVolatile: false, time: clock.timekeeper)
            // Values that have a segment each, which is sealed at once.
            for key in 0..<2 where !cache.insert([UInt8](repeating: 1, count: 300_000), forKey: key) { Issue.record("refused") }
            clock.freeze(for: .seconds(61))
            cache.giveBackIdle()
            #expect(cache.count == (limit == nil ? 0 : 2))
        }
    }

    // MARK: Drops

    @Test func `pages that an insert notices as taken are not declared any longer`() {
        let meter = ChargeMeter(wakesWhenRefusing: false) {}
        let cache = VolatileCache<Int, [UInt8]>("noticed", allowsHugePages: false, isVolatile: true, time: .running)
        cache.attach(volatile: meter)
        let value = [UInt8](repeating: 7, count: 4096)
        var key = 0
        while cache.heldBytes < 5 << 20, key < 2000 {
            cache.insert(value, forKey: key)
            key += 1
        }
        cache.reclaim { _, _ in true }
        var before = cache.heldBytes
        while cache.heldBytes >= before, key < 4000 {
            before = cache.heldBytes
            cache.insert(value, forKey: key)
            key += 1
        }
        #expect(cache.heldBytes < before && meter.heldBytes.bytes == cache.heldBytes)
    }

    @Test func `ordinary memory has no volatile bytes and no drops`() {
        let cache = VolatileCache<Int, [UInt8]>("ordinary", isVolatile: false, time: .running)
        for key in 0..<12 { cache.insert([UInt8](repeating: 1, count: 300_000), forKey: key) }
        #expect(cache.heldBytes > 3 << 20 && cache.volatileBytes == 0 && cache.noticeDrops() == 0 && !cache.isVolatile)
    }
}
