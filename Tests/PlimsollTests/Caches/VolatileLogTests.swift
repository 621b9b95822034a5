import CPlimsollMemory
import Glibc
import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

extension VolatileStore {
    /// Returns a store of ordinary memory, whose places the tests know.
    static func ordinary(_ limit: Int? = 1 << 20, _ clock: ManualClock = ManualClock()) -> VolatileStore {
        VolatileStore(limit: limit, allowsHugePages: false, isVolatile: false, time: clock.timekeeper)
    }

    func fill(_ keys: Range<Int>) { for key in keys where !put(key) { Issue.record("key \(key) is refused") } }

    /// Keeps `count` bytes under a key of eight bytes: an item of 24 bytes more, without tags and time to live.
    func put(_ key: Int, _ count: Int = 1000, timeToLive: Duration? = nil, tags: [UInt64] = []) -> Bool {
        let value = [UInt8](repeating: UInt8(truncatingIfNeeded: key), count: count)
        return withUnsafeBytes(of: key) { key in
            value.withUnsafeBytes { value in
                insert(
                    VolatileReference.hash(key.load(as: Int.self)), key, value, timeToLive: timeToLive, tags: tags, of: nil,
                    isSame: { _ in false })
            }
        }
    }

    func look(_ key: Int) -> Found? {
        withUnsafeBytes(of: key) { find(VolatileReference.hash(key), $0, isSame: { _ in false }) }
    }

    /// Marks entries as used. Returns true if all are there.
    func use(_ keys: Range<Int>) -> Bool {
        for key in keys {
            guard let found = look(key) else { return false }
            noteHit(found, VolatileReference.hash(key))
        }
        return true
    }

    /// The number of evictions that are made one by one, as long as an entry is left.
    func evict(_ count: Int) -> Int {
        withLog(0) { log in
            var done = 0
            while done < count, log.evictNext() { done += 1 }
            return done
        }
    }
}

/// Decisions of the log, in states that the tests set. In most of them a segment has 16 KiB, room for 15 entries.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux, .needs(plimsoll_page_size() == 4096, "the places are those of pages of 4 KiB"))
struct VolatileLogTests {
    // MARK: Bounds

    @Test func `the bound is the lower one of limit and restriction, and ordinary memory has one without either`() {
        let rows: [(limit: Int?, isVolatile: Bool, restriction: Int?, bound: Int)] = [
            (nil, true, nil, .max), (nil, false, nil, 64 << 20), (nil, false, 5, 5), (nil, true, 5, 5), (10, true, nil, 10),
            (10, true, 5, 5), (10, false, 20, 10), (0, false, nil, 0), (-5, false, nil, 0),
        ]
        for row in rows {
            let store = VolatileStore(limit: row.limit, allowsHugePages: false, isVolatile: row.isVolatile, time: .running)
            store.restrict(to: row.restriction)
            #expect(store.withLog(0) { $0.bound } == row.bound, "\(row)")
        }
        let store = VolatileStore.ordinary()
        store.setLimit(-5)
        #expect(store.limit == 0)
        store.setLimit(nil)
        #expect(store.limit == nil)
    }

    @Test func `a segment has a sixty-fourth of the limit, from 16 KiB to 2 MiB, and eight of the smallest are always allowed`() {
        let rows: [(limit: Int?, segment: Int, mapped: Int)] = [
            (nil, 2 << 20, 64 << 20), (128 << 20, 2 << 20, 128 << 20), ((128 << 20) - 1, 1 << 20, (128 << 20) - 1),
            (2 << 20, 32 << 10, 2 << 20), ((2 << 20) - 1, 16 << 10, (2 << 20) - 1), ((128 << 10) + 1, 16 << 10, (128 << 10) + 1),
            (128 << 10, 16 << 10, 128 << 10), (0, 16 << 10, 128 << 10),
        ]
        for row in rows {
            let sizes = VolatileStore.ordinary(row.limit).withLog([Int]()) { [$0.segmentSize, $0.mappedBound] }
            #expect(sizes == [row.segment, row.mapped], "\(row)")
        }
        for (bytes, rounded) in [(1, 16 << 10), (16 << 10, 16 << 10), ((16 << 10) + 1, 32 << 10), (32 << 10, 32 << 10)] {
            #expect(AddressSpace.rounded(bytes) == rounded)
        }
    }

    @Test func `a segment grows by a quarter of its size, or by 64 KiB`() {
        let rows: [(limit: Int?, first: Int)] = [(nil, 64 << 10), (16 << 20, 64 << 10), (8 << 20, 32 << 10), (1 << 20, 4 << 10)]
        for row in rows {
            let store = VolatileStore.ordinary(row.limit)
            #expect(store.put(1, 1) && store.mapped == row.first, "\(row)")
        }
    }

    @Test func `an item larger than a quarter of a segment or of 1 MiB has a segment of its own`() {
        // Content of whole pages, with their sentinels, is a quarter.
        for (limit, most) in [(nil, 64 * 4088), (1 << 20, 4088), (2 << 20, 2 * 4088)] as [(Int?, Int)] {
            for count in [most - 1, most, most + 1] {
                let store = VolatileStore.ordinary(limit)
                #expect(store.put(1, count - 24))
                let isLarge = store.withLog(false) { log in log.segments.contains { $0?.isLarge == true } }
                #expect(isLarge == (count > most), "\(count) bytes with limit \(limit ?? -1)")
            }
        }
    }

    @Test func `an entry of exactly the limit is kept, and a larger one is refused`() {
        for (limit, count, isKept) in [
            (1024, 1000, true), (1023, 1000, false), (1024, 1001, false), (1 << 20, 256 * 4088 - 24, true),
            (1 << 20, 256 * 4088 - 23, false),
        ] as [(Int, Int, Bool)] {
            let store = VolatileStore.ordinary(limit)
            #expect(store.put(1, count) == isKept && store.statistics.count == (isKept ? 1 : 0), "\(count) bytes with limit \(limit)")
        }
    }

    @Test func `a limit lowered to the bytes of the entries or of the pages evicts none, and one byte less evicts`() {
        let few = VolatileStore.ordinary()
        few.fill(0..<10)
        few.setLimit(10 * 1024)
        #expect(few.statistics.count == 10)
        few.setLimit(10 * 1024 - 1)
        #expect(few.statistics.count == 9 && few.statistics.evictions == 1)

        let many = VolatileStore.ordinary()
        many.fill(0..<200)
        let mapped = many.mapped
        #expect(mapped > 128 << 10 && many.statistics.byteCount < mapped)
        many.setLimit(mapped)
        #expect(many.statistics.count == 200)
        many.setLimit(mapped - 1)
        #expect(many.statistics.count < 200 && many.mapped < mapped)
    }

    @Test func `a lowered limit spares used entries, after many copies as well`() {
        let store = VolatileStore.ordinary()
        store.fill(0..<40)
        #expect(store.use(0..<15))
        store.withLog(()) { $0.copied = .max }
        store.setLimit(25 * 1024)
        #expect(store.use(0..<15) && store.statistics.count == 25)
    }

    @Test func `an insert spares used entries, after many copies as well`() {
        let store = VolatileStore.ordinary(40 * 1024)
        store.fill(0..<40)
        #expect(store.use(0..<10))
        store.withLog(()) { $0.copied = .max }
        #expect(store.put(100) && store.use(0..<10) && store.statistics.count == 40 && store.statistics.evictions == 1)
    }

    // MARK: Declarations

    @Test func `pages are declared from spare bytes first, and copies without room`() {
        let rows: [(spare: Int, room: Int, isCopy: Bool, isDeclared: Bool, spareAfter: Int, taken: Int)] = [
            (0, 100, false, true, 0, 100), (0, 99, false, false, 0, 0), (30, 70, false, true, 0, 70), (30, 69, false, false, 30, 0),
            (100, 0, false, true, 0, 0), (150, 0, false, true, 50, 0), (-10, 100, false, true, -10, 100), (-10, 99, false, false, -10, 0),
            (0, 0, true, true, -100, 0), (30, 0, true, true, -70, 0), (150, 0, true, true, 50, 0),
        ]
        for row in rows {
            let store = VolatileStore.ordinary(), meter = ChargeMeter(wakesWhenRefusing: false) {}
            store.attach(meter)
            meter.allow(ByteCount(row.room), since: .zero)
            let found = store.withLog([Int]()) { log in
                log.share = 1000
                log.spare = row.spare
                let isDeclared = log.declare(100, isCopy: row.isCopy)
                defer { log.spare = 0 }
                return [isDeclared ? 1 : 0, log.spare, log.lacking]
            }
            let lacking = row.isDeclared ? 0 : 100 - max(0, row.spare)
            #expect(found == [row.isDeclared ? 1 : 0, row.spareAfter, lacking], "\(row)")
            #expect(meter.heldBytes.bytes == row.taken, "\(row)")
        }
    }

    @Test func `pages that go make up for copies first, and an empty log keeps no spare bytes`() {
        let rows: [(spare: Int, bytes: Int, mappedAfter: Int, spareAfter: Int)] = [
            (0, 40, 60, 0), (-30, 40, 60, 0), (-50, 40, 60, -10), (20, 40, 60, 20), (20, 99, 1, 20), (20, 100, 0, 0), (0, 100, 0, 0),
        ]
        for row in rows {
            let store = VolatileStore.ordinary(), meter = ChargeMeter(wakesWhenRefusing: false) {}
            store.attach(meter)
            meter.takeAnyway(100 + row.spare)
            let found = store.withLog([Int]()) { log in
                (log.mapped, log.spare) = (100, row.spare)
                log.countOut(row.bytes)
                return [log.mapped, log.spare]
            }
            #expect(found == [row.mappedAfter, row.spareAfter], "\(row)")
            #expect(meter.heldBytes.bytes == row.mappedAfter + row.spareAfter, "\(row)")
            withExtendedLifetime(store) {}
        }
    }

    @Test func `spare bytes above those to keep are given back`() {
        for (spare, kept, left) in [(0, 0, 0), (5, 0, 0), (5, 4, 4), (5, 5, 5), (5, 6, 5), (-5, 0, -5)] {
            let store = VolatileStore.ordinary(), meter = ChargeMeter(wakesWhenRefusing: false) {}
            store.attach(meter)
            meter.takeAnyway(spare)
            let found = store.withLog(0) { log in
                log.spare = spare
                log.giveSpare(downTo: kept)
                return log.spare
            }
            #expect(found == left && meter.heldBytes.bytes == left, "\(spare) down to \(kept)")
            withExtendedLifetime(store) {}
        }
    }

    @Test func `a log declares earlier pages to one meter, and takes the declarations along`() {
        let meter = ChargeMeter(wakesWhenRefusing: false) {}, other = ChargeMeter(wakesWhenRefusing: false) {}
        var store: VolatileStore? = VolatileStore.ordinary()
        #expect(store?.put(1) == true)
        store?.attach(meter)
        store?.attach(other)
        #expect(meter.heldBytes.bytes == 4096 && other.heldBytes == .zero)
        meter.takeAnyway(500)
        store?.withLog(()) { $0.spare = 500 }
        store = nil
        #expect(meter.heldBytes == .zero)
    }

    @Test func `room counts together with the pages of the log, by whole steps`() {
        let rows: [(limit: Int, room: Int, mapped: Int, spare: Int, count: Int, hasRoom: Bool)] = [
            (1 << 20, 4096, 0, 0, 100, true), (1 << 20, 4095, 0, 0, 100, false), (1 << 20, 4095, 1, 0, 100, true),
            (1 << 20, 4095, 0, 1, 100, true), (1 << 20, 4094, 1, 0, 100, false), (1 << 20, 4094, 1, 1, 100, true),
            (1 << 20, 12_288, 0, 0, 10_000, true), (1 << 20, 12_287, 0, 0, 10_000, false), (1 << 20, 0, 12_288, 0, 10_000, true),
            (8 << 20, 30_000, 0, 0, 100, false), (8 << 20, 32 << 10, 0, 0, 100, true), (128 << 20, 64 << 10, 0, 0, 100, true),
            (128 << 20, (64 << 10) - 1, 0, 0, 100, false),
        ]
        for row in rows {
            let store = VolatileStore.ordinary(row.limit), meter = ChargeMeter(wakesWhenRefusing: false) {}
            store.attach(meter)
            meter.allow(ByteCount(row.room), since: .zero)
            let hasRoom = store.withLog(false) { log in
                (log.mapped, log.spare) = (row.mapped, row.spare)
                defer { (log.mapped, log.spare) = (0, 0) }
                return log.canHave(VolatileReference.header(1, row.count))
            }
            #expect(hasRoom == row.hasRoom, "\(row)")
        }
    }

    // MARK: Shares

    @Test func `a log is above the share with more bytes than the share, and lacks bytes below the share only`() {
        let rows: [(share: Int, mapped: Int, bytes: Int, isAbove: Bool, lacking: Int)] = [
            (0, 60, 40, false, 0), (100, 60, 40, false, 40), (100, 60, 41, true, 41), (100, 100, 0, false, 0), (100, 99, 1, false, 1),
            (100, 101, 0, true, 0), (1, 0, 2, true, 2),
        ]
        for row in rows {
            let store = VolatileStore.ordinary(), meter = ChargeMeter(wakesWhenRefusing: false) {}
            store.attach(meter)
            let found = store.withLog([Int]()) { log in
                (log.share, log.mapped) = (row.share, row.mapped)
                defer { (log.share, log.mapped) = (0, 0) }
                log.lack(row.bytes)
                let isAbove = log.isAboveShare(with: row.bytes), first = log.takeRequest(), second = log.takeRequest()
                return [isAbove ? 1 : 0, first?.bytes ?? 0, second?.bytes ?? 0, log.lacking]
            }
            #expect(found == [row.isAbove ? 1 : 0, row.lacking, 0, 0], "\(row)")
        }
        for (bytes, share) in [(nil, 0), (-5, 0), (0, 0), (7, 7)] as [(Int?, Int)] {
            let store = VolatileStore.ordinary()
            store.setShare(bytes)
            #expect(store.withLog(-1) { $0.share } == share)
        }
    }

    @Test func `only what is above the share is evicted, by whole segments`() {
        let rows: [(share: Int?, count: Int, evicted: Int)] = [
            (nil, .max, 0), (32 << 10, .max, 0), (16 << 10, 0, 0), (16 << 10, -5, 0), (16 << 10, .min, 0), (16 << 10, 1, 16 << 10),
            (16 << 10, .max, 16 << 10), (1, .max, 32 << 10), (1, 1, 16 << 10),
        ]
        for row in rows {
            let store = VolatileStore.ordinary()
            store.fill(0..<30)
            #expect(store.mapped == 32 << 10)
            store.setShare(row.share)
            #expect(store.evictAboveShare(row.count) == row.evicted && store.mapped == (32 << 10) - row.evicted, "\(row)")
        }
    }

    @Test func `an eviction above the share takes the spare bytes along, and spares used entries after many copies as well`() {
        let store = VolatileStore.ordinary(), meter = ChargeMeter(wakesWhenRefusing: false) {}
        store.fill(0..<30)
        #expect(store.use(0..<30) && store.evict(1) == 1)
        store.attach(meter)
        meter.takeAnyway(5000)
        store.withLog(()) { log in (log.copied, log.spare) = (.max, 5000) }
        store.setShare(16 << 10)
        #expect(store.evictAboveShare(1) > 0)
        #expect(store.statistics.count == 30 && store.statistics.evictions == 0)
        #expect(meter.heldBytes.bytes == store.mapped)
    }

    // MARK: Evicting

    @Test func `at most 4 MiB of used entries are copied for an insert`() {
        let store = VolatileStore.ordinary(nil)
        for key in 0..<80 where !store.put(key, (64 << 10) - 24) { Issue.record("key \(key) is refused") }
        #expect(store.use(0..<80))
        store.withLog(()) { $0.copied = 0 }
        // Some of the steps release a segment instead.
        for _ in 0..<80 where store.withLog(0, { $0.main.liveBytes }) < 4 << 20 { #expect(store.evict(1) == 1) }
        #expect(store.withLog(0) { $0.main.liveBytes } == 4 << 20 && store.statistics.evictions == 0)
        #expect(store.evict(1) == 1 && store.statistics.evictions == 1 && store.statistics.count == 79)
    }

    @Test func `the small queue is evicted from while it has a tenth of the bytes`() {
        let store = VolatileStore.ordinary()
        store.fill(0..<10)
        #expect(store.use(0..<9) && store.evict(9) == 9)
        let before = store.withLog([Int]()) { [$0.small.liveBytes, $0.main.liveBytes] }
        #expect(before == [1024, 9 * 1024] && store.evict(1) == 1)
        let after = store.withLog([Int]()) { [$0.small.liveBytes, $0.main.liveBytes] }
        #expect(after == [0, 9 * 1024] && store.statistics.evictions == 1)
    }

    @Test func `a few keys that are written again and again leave the rest of the cache alone`() {
        let store = VolatileStore.ordinary()
        store.fill(0..<600)
        // Each of 30 segments takes 15 steps for the entries, which move to the main queue, and one for the memory.
        #expect(store.use(0..<600) && store.evict(480) == 480 && store.withLog(0) { $0.main.liveBytes } == 450 * 1024)
        for write in 0..<2000 where !store.put(1000 + write % 10) { Issue.record("write \(write) is refused") }
        #expect(store.statistics.evictions == 0 && store.statistics.count == 610)
        let mapped = store.withLog([Int]()) { [$0.mapped, $0.small.mapped + $0.main.mapped] }
        #expect(mapped[0] == mapped[1] && mapped[0] <= 1 << 20)
    }

    /// Evicts one entry, but not from a segment. Returns the entries of each segment afterwards; -1 for no segment.
    private static func evictSparing(_ number: Int, _ store: VolatileStore) -> (Bool, [Int]) {
        store.withLog((false, [])) { log -> (Bool, [Int]) in
            let isDone = log.evictNext(sparing: number)
            return (isDone, log.segments.map { $0?.liveCount ?? -1 })
        }
    }

    @Test func `a spared segment is passed over for the next one, or for the other queue`() {
        let two = VolatileStore.ordinary()
        two.fill(0..<20)
        #expect(Self.evictSparing(0, two) == (true, [15, 4]))

        let one = VolatileStore.ordinary()
        one.fill(0..<5)
        #expect(Self.evictSparing(0, one) == (false, [5]))
        #expect(one.use(0..<1) && one.evict(1) == 1)
        #expect(Self.evictSparing(0, one) == (true, [4, 0]), "from the main queue")

        // The first number is used again for the newest segment.
        let again = VolatileStore.ordinary()
        again.fill(0..<35)
        #expect(again.evict(16) == 16)
        again.fill(35..<46)
        #expect(again.evict(16) == 16)
        #expect(Self.evictSparing(2, again) == (true, [0, -1, 15]))
    }

    @Test func `a used entry is copied forward unless it has expired`() {
        let rows: [(timeToLive: Duration, age: Duration, isKept: Bool)] = [
            (.seconds(10), .seconds(9), true), (.seconds(10), .seconds(10), false), (.seconds(10), .seconds(11), false),
            (.nanoseconds(1), .zero, true),
        ]
        for row in rows {
            let clock = ManualClock(), store = VolatileStore.ordinary(1 << 20, clock)
            #expect(store.put(1, timeToLive: row.timeToLive) && store.use(1..<2), "\(row)")
            clock.freeze(for: row.age)
            #expect(store.evict(1) == 1)
            #expect(store.statistics.count == (row.isKept ? 1 : 0) && store.statistics.evictions == (row.isKept ? 0 : 1), "\(row)")
        }
    }

    @Test func `entries that were copied forward are found by their tags`() {
        let store = VolatileStore.ordinary()
        for key in 0..<3 where !store.put(key, tags: [7, 70]) { Issue.record("key \(key) is refused") }
        #expect(store.use(0..<3) && store.evict(3) == 3 && store.withLog(0) { $0.main.liveBytes } > 0)
        #expect(store.count(tag: 7) == 3 && store.count(tag: 70) == 3 && store.count(tag: 8) == 0)
        #expect(store.purge(tag: 7) == 3 && store.statistics.count == 0)
    }

    // MARK: Segments

    @Test func `a full segment without entries is released`() {
        let store = VolatileStore.ordinary()
        store.fill(0..<15)
        for key in 0..<15 { #expect(store.look(key).map { store.remove($0) } == true) }
        #expect(store.statistics.count == 0 && store.mapped == 16 << 10, "an open segment stays")
        #expect(store.put(100) && store.mapped == 4 << 10)
        let found = store.withLog([Int]()) { log in
            [log.sealed, log.segments.compactMap { $0 }.count, log.small.oldest - log.small.open, log.small.newest - log.small.open]
        }
        #expect(found == [0, 1, 0, 0])
    }

    @Test func `a segment that goes with entries keeps its number until the index is swept, and an empty one does not`() {
        for isEmpty in [false, true] {
            let store = VolatileStore.ordinary()
            store.fill(0..<1)
            if isEmpty { #expect(store.look(0).map { store.remove($0) } == true) }
            let waits = store.withLog([Bool]()) { log in
                let average = log.averageCost(0)
                log.retire(0, .purged)
                // A round has two steps: one for the only page, and one that finds no further page.
                var waits = [average == (isEmpty ? 0 : 1024), log.numbers.hasWaiting]
                for _ in 0..<4 {
                    log.sweep()
                    waits.append(log.numbers.hasWaiting)
                }
                return waits
            }
            #expect(waits == (isEmpty ? [true, false, false, false, false, false] : [true, true, true, true, true, false]))
            #expect(store.withLog(-1) { $0.index.count } == 0 && store.statistics.purged == (isEmpty ? 0 : 1))
        }
    }

    @Test(
        .needs(access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0, "this kernel has no huge pages"), arguments: [false, true])
    func `a log of 32 MiB and more has huge pages, if they are allowed`(allowsHugePages: Bool) {
        let store = VolatileStore(limit: nil, allowsHugePages: allowsHugePages, isVolatile: false, time: .running)
        var key = 0, huge = 0
        while key < 1000, store.mapped < 36 << 20 {
            let before = store.withLog([Int]()) { [$0.mapped, $0.segments.count] }
            #expect(store.put(key, 40_000))
            key += 1
            let found = store.withLog([Bool]()) { log in
                guard log.segments.count > before[1], let segment = log.segments[log.segments.count - 1] else { return [] }
                return [segment.isHuge, segment.frontier == segment.capacity]
            }
            guard !found.isEmpty else { continue }
            #expect(found[0] == (allowsHugePages && before[0] >= 32 << 20), "at \(before[0]) bytes")
            #expect(found[1] == found[0], "at \(before[0]) bytes")
            if found[0] { huge += 1 }
        }
        #expect(key < 1000 && huge == (allowsHugePages ? 2 : 0))
    }
}
