import CPlimsollMemory
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// A volatile cache after a reclaim of its pages. The reclaim is real: the kernel takes the marked pages.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct VolatileDropTests {
    typealias Cache = VolatileCache<UInt64, [UInt8]>

    /// Returns a value that differs from every other value and from every torn one: each word has the key and the
    /// word's position.
    static func value(_ key: UInt64, size: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: key), count: size)
        bytes.withUnsafeMutableBytes { bytes in
            for position in stride(from: 0, to: size & ~7, by: 64) {
                bytes.storeBytes(of: (key &+ UInt64(position)) &* 0x9E37_79B9_7F4A_7C15, toByteOffset: position, as: UInt64.self)
            }
        }
        return bytes
    }

    static func size(_ key: UInt64) -> Int { [40, 100, 900, 4096, 9000, 30_000][Int(key % 6)] }

    /// Reads every key, and returns the numbers of present values and of wrong values.
    static func read(_ cache: Cache, _ keys: Range<UInt64>) -> (there: Int, wrong: Int) {
        var (there, wrong) = (0, 0)
        for key in keys {
            guard let bytes = cache.value(forKey: key) else { continue }
            there += 1
            if bytes != value(key, size: size(key)) { wrong += 1 }
        }
        return (there, wrong)
    }

    static func filled(_ count: UInt64, limit: ByteCount? = nil) -> Cache {
        let cache = Cache("dropped", limit: limit, allowsHugePages: false, isVolatile: true, time: .running)
        for key in 0..<count { cache.insert(value(key, size: size(key)), forKey: key) }
        return cache
    }

    @Test func `after a reclaim of all pages misses are counted as kernel drops, and there is room for more`() {
        let cache = Self.filled(3000)
        let (held, volatile) = (cache.heldBytes, cache.volatileBytes)
        cache.reclaim { _, _ in true }
        #expect(cache.noticeDrops() == volatile && cache.heldBytes == held - volatile && cache.volatileBytes == .zero)
        let (there, wrong) = Self.read(cache, 0..<3000)
        #expect(wrong == 0 && there == cache.count)
        #expect(cache.statistics.droppedByKernel == 3000 - there)
        for key in UInt64(0)..<3000 { cache.insert(Self.value(key, size: Self.size(key)), forKey: key) }
        #expect(Self.read(cache, 0..<3000) == (3000, 0))
    }

    @Test func `a look-up detects an unnoticed reclaim, once`() {
        let cache = Self.filled(2000)
        cache.reclaim { _, _ in true }
        let (there, wrong) = Self.read(cache, 0..<2000)
        #expect(wrong == 0 && there < 2000)
        #expect(cache.statistics.droppedByKernel == 2000 - there && cache.statistics.misses == 2000 - there)
        #expect(Self.read(cache, 0..<2000) == (there, 0))
        #expect(cache.statistics.droppedByKernel == 2000 - there && cache.count == there)
    }

    @Test(arguments: seeds(1..<4)) func `a reclaimed page makes whole values misses, and the neighbouring values stay whole`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let cache = Self.filled(3000, limit: .mebibytes(32))
        cache.reclaim { _, _ in UInt64.random(in: 0..<10, using: &random) == 0 }
        let (there, wrong) = Self.read(cache, 0..<3000)
        #expect(wrong == 0 && there > 700 && there < 3000)
        // These inserts turn segments with holes over: the items behind a hole are still found, and all bytes are
        // accounted for in the end.
        for key in UInt64(10_000)..<14_000 { cache.insert(Self.value(key, size: Self.size(key)), forKey: key) }
        #expect(Self.read(cache, 0..<14_000).wrong == 0)
        #expect(cache.byteCount <= 32 << 20 && cache.heldBytes <= 34 << 20)
        _ = cache.release(1 << 30)
        #expect(cache.count == 0 && cache.byteCount == .zero && cache.heldBytes == .zero)
    }

    @Test func `a log that grows as fast as the kernel reclaims stays small without a manager`() {
        let cache = Cache("alone")
        for key in UInt64(0)..<20_000 {
            cache.insert(Self.value(key, size: 4096), forKey: key)
            if key % 1000 == 999 { cache.reclaim { _, _ in true } }
        }
        #expect(cache.heldBytes < 10 << 20 && cache.count < 3000)
        #expect(cache.statistics.droppedByKernel > 17_000)
    }

    @Test func `reclaimed pages behind a whole segment are noticed as well`() {
        // The kernel skips recently read pages once, so that not only the oldest pages are reclaimed.
        let cache = Self.filled(3000)
        let held = cache.heldBytes
        var taken = Set<Int>()
        cache.reclaim { segment, page in
            if page == 0, segment % 3 == 1 { taken.insert(segment) }
            return segment % 3 == 1
        }
        #expect(taken.count > 2)
        #expect(cache.noticeDrops() == (taken.count << 21) && cache.heldBytes == held - (taken.count << 21))
        #expect(cache.noticeDrops() == .zero)
    }

    @Test func `a segment of which four pages are there counts as whole, until one of the four is gone`() {
        let cache = Self.filled(3000)
        var first: Int?
        cache.reclaim { segment, page in
            if first == nil { first = segment }
            return segment == first && page == 1
        }
        #expect(first != nil && cache.noticeDrops() == 0)
        cache.reclaim { segment, page in segment == first && page == 0 }
        #expect(cache.noticeDrops() == 2 * PageLayout.page && cache.noticeDrops() == 0)
    }

    @Test func `a segment number is reused only after the index has forgotten the last segment of that number`() {
        let cache = Self.filled(2000)
        for round in UInt64(1)...15 {
            cache.reclaim { _, _ in true }
            _ = cache.noticeDrops()
            for key in UInt64(0)..<600 {
                cache.insert(Self.value(key + round * 10_000, size: Self.size(key + round * 10_000)), forKey: key + round * 10_000)
            }
            #expect(Self.read(cache, 0..<1_000_000 / 1000).wrong == 0)
            #expect(Self.read(cache, round * 10_000..<round * 10_000 + 600).wrong == 0)
        }
        let most = cache.store.withLog(0) { log in
            #expect(log.segments.count < 400)
            #expect(log.index.count <= log.index.pageCount * HashIndex.slots)
            // Two rounds over the index free all numbers that wait. Each call sweeps a page or ends a round.
            for _ in 0..<2 * (log.index.pageCount + 1) { log.sweep() }
            let waits = log.numbers.hasWaiting
            #expect(!waits)
            return log.segments.count
        }
        for key in UInt64(160_000)..<160_600 { cache.insert(Self.value(key, size: Self.size(key)), forKey: key) }
        #expect(cache.store.withLog(0) { $0.segments.count } == most, "the new segments have former numbers")
        #expect(Self.read(cache, 160_000..<160_600).wrong == 0)
    }

    @Test func `a segment number waits for the end of the round under way, and for one whole round`() {
        let table = SegmentTable()
        var numbers = SegmentNumbers()
        let former = (0..<2).compactMap { _ in numbers.take(from: table) }
        for number in former { numbers.giveWhenSwept(number) }
        // The round under way may have passed the slots of these segments.
        numbers.roundEnded()
        let early = numbers.take(from: table)
        numbers.roundEnded()
        let late = (0..<2).compactMap { _ in numbers.take(from: table) }
        #expect(former == [0, 1] && early == 2 && Set(late) == Set(former))
    }

    @Test func `a key whose page is reclaimed during a listener's copy is not reported`() {
        let cache = Self.filled(400)
        let keys = cache.store.withLog([[UInt8]?]()) { log in
            guard let segment = log.segments.compactMap({ $0 }).first(where: { $0.isSealed }), let item = segment.nextItem(from: 0) else { return [] }
            let kept = segment.key(at: item.offset, item.header)
            let lost = segment.key(at: item.offset, item.header) { _ = plimsoll_drop(segment.base, PageLayout.page) }
            return [kept, lost]
        }
        #expect(keys.count == 2 && keys.first??.count == 8 && keys.last == .some(nil), "\(keys)")
    }

    @Test func `after the loss of one item, the segment and the queue count the live bytes of the remaining items`() {
        // Three items of one size, on two pages or three.
        for size in [5000, 1500] {
            let cache = Cache("books", isVolatile: false, time: .running)
            for key in UInt64(0)..<3 { cache.insert(Self.value(key, size: size), forKey: key) }
            let cost = cache.byteCount / 3
            let isLost = cache.store.withLog(false) { log in
                guard let segment = log.segments.compactMap({ $0 }).first, let first = segment.nextItem(from: 0),
                    let second = segment.nextItem(from: segment.next(after: first.offset, first.header)),
                    let last = segment.nextItem(from: segment.next(after: second.offset, second.header))
                else { return false }
                // Drops the page in which the last item begins.
                return plimsoll_drop(segment.base + (last.offset & ~PageLayout.mask), PageLayout.page) == 0
            }
            #expect(isLost && cost >= size)
            let left = (UInt64(0)..<3).filter { cache.value(forKey: $0) != nil }.count
            #expect(left < 3)
            cache.store.withLog(()) { log in
                let segments = log.segments.compactMap { $0 }
                #expect(segments.map(\.liveCount) == [left] && segments.map(\.liveBytes) == [left * cost], "\(size)")
                #expect(log.liveCount == left && log.small.liveBytes == left * cost && log.liveBytes == left * cost, "\(size)")
            }
            #expect(cache.statistics.droppedByKernel == 3 - left)
        }
    }

    @Test func `after a full release all segment numbers are free again`() {
        let table = SegmentTable()
        var numbers = SegmentNumbers()
        let first = (0..<30).compactMap { _ in numbers.take(from: table) }
        // Some numbers are returned in the round under way, some after that round.
        for number in first[..<10] { numbers.giveWhenSwept(number) }
        numbers.roundEnded()
        for number in first[10..<20] { numbers.giveWhenSwept(number) }
        for number in first[20...] { numbers.give(number) }
        numbers.allSwept()
        #expect(!numbers.hasWaiting)
        let second = (0..<30).compactMap { _ in numbers.take(from: table) }
        #expect(first.count == 30 && Set(second) == Set(first) && table.count == 30)

        let cache = Cache("numbers", limit: .mebibytes(4), isVolatile: false, time: .running)
        var most = 0
        for round in UInt64(0)..<10 {
            for key in UInt64(0)..<3000 { cache.insert(Self.value(key, size: 1000), forKey: key + round * 10_000) }
            if round == 0 { most = cache.store.withLog(0) { $0.segments.count } }
            cache.removeAll()
        }
        #expect(most > 32 && cache.store.withLog(0) { $0.segments.count } == most)
    }

    @Test(arguments: seeds(1..<3)) func `readers, writers and reclaim at the same time produce no wrong byte`(seed: UInt64) {
        print("seed \(seed)")
        let cache = Self.filled(3000, limit: seed == 1 ? nil : .mebibytes(24))
        let storm = Storm(cache: cache, seed: seed)
        storm.run(rounds: 40) { cache.reclaim { segment, _ in segment % 3 == 0 } }
        #expect(storm.wrong.value == 0 && storm.hits.value > 10_000)
    }
}

/// Readers and writers on threads of their own, which run for as long as the test reclaims pages.
private final class Storm: Sendable {
    let cache: VolatileDropTests.Cache
    let seed: UInt64
    let wrong = Counter(), hits = Counter(), done = Counter()
    private let isRunning = Atomic<Bool>(true)

    init(cache: VolatileDropTests.Cache, seed: UInt64) {
        self.cache = cache
        self.seed = seed
    }

    func run(rounds: Int, trouble: () -> Void) {
        for number in UInt64(0)..<4 {
            let started = Thread.start("storm") { [self] in
                var random = SeededGenerator(seed: seed * 100 + number)
                while isRunning.load(ordering: .relaxed) { step(number, &random) }
                done.add(1)
            }
            #expect(started)
        }
        for _ in 0..<rounds { trouble() }
        blockUntil { hits.value > 10_000 }
        isRunning.store(false, ordering: .relaxed)
        blockUntil { done.value == 4 }
    }

    private func step(_ number: UInt64, _ random: inout SeededGenerator) {
        let key = UInt64.random(in: 0..<4000, using: &random)
        let value = { VolatileDropTests.value(key, size: VolatileDropTests.size(key)) }
        if number == 3, UInt64.random(in: 0..<50, using: &random) == 0 { cache.removeValue(forKey: key) }
        if let bytes = cache.value(forKey: key) {
            hits.add(1)
            if bytes != value() { wrong.add(1) }
        } else {
            cache.insert(value(), forKey: key)
        }
    }
}
