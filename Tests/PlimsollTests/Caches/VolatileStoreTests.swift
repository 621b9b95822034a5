import CPlimsollMemory
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// A store of bytes by itself: keys that share a hash, items that lose pages, and callers that are overtaken.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct VolatileStoreTests {
    private static let hash: UInt64 = 0x0123_4567_89AB_CDEF

    private static func store() -> VolatileStore {
        VolatileStore(limit: nil, allowsHugePages: false, isVolatile: false, time: ManualClock().timekeeper)
    }

    /// Keeps a value under a key; all keys have one hash.
    @discardableResult
    private static func put(
        _ key: [UInt8], _ value: [UInt8], _ store: VolatileStore, tags: Int = 0,
        isSame: (UnsafeRawBufferPointer) -> Bool = { _ in false }
    ) -> Bool {
        key.withUnsafeBytes { key in
            value.withUnsafeBytes { value in
                store.insert(
                    hash, key, value, timeToLive: nil, tags: [UInt64](repeating: 1, count: tags), of: nil, isSame: isSame)
            }
        }
    }

    private static func find(_ key: [UInt8], _ store: VolatileStore) -> VolatileStore.Found? {
        key.withUnsafeBytes { store.find(hash, $0, isSame: { _ in false }) }
    }

    private static func value(_ key: [UInt8], _ store: VolatileStore) -> [UInt8]? {
        guard let found = find(key, store) else { return nil }
        var value = [UInt8](repeating: 0, count: found.count)
        let isGood = value.withUnsafeMutableBytes { store.copy(found, to: $0) }
        return isGood ? value : nil
    }

    // MARK: Keys

    @Test func `keys of one hash differ by their length and by each of their bytes`() {
        let long = [UInt8](1...9)
        let pairs: [([UInt8], [UInt8])] = [
            ([1, 2, 3], [9, 2, 3]), ([1, 2, 3], [1, 2, 9]), ([1], [1, 2]), ([1, 2], [1]), ([], [0]), (Array(long[..<8]), long),
            (long, Array(long[..<8]) + [0]), (long, [0] + Array(long[1...])), ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 0]),
        ]
        for (one, other) in pairs {
            let store = Self.store()
            #expect(Self.put(one, [1], store) && Self.value(other, store) == nil, "\(one), \(other)")
            #expect(Self.put(other, [2, 2], store) && store.statistics.count == 2, "\(one), \(other)")
            #expect(Self.value(one, store) == [1] && Self.value(other, store) == [2, 2], "\(one), \(other)")
        }
    }

    @Test func `an item has at most 255 tags`() {
        for (tags, isKept) in [(0, true), (1, true), (255, true), (256, false)] {
            let store = Self.store()
            #expect(Self.put([1], [2], store, tags: tags) == isKept && Self.value([1], store) == (isKept ? [2] : nil), "\(tags) tags")
        }
    }

    @Test func `an insert that is overtaken while keys are compared looks up again`() {
        let store = Self.store()
        Self.put([1], [1], store)
        var comparisons = 0
        let isKept = Self.put([2], [2], store) { _ in
            comparisons += 1
            if comparisons == 1 { Self.put([2], [3], store) }
            return false
        }
        #expect(isKept && comparisons > 0 && store.statistics.count == 2)
        #expect(Self.value([1], store) == [1] && Self.value([2], store) == [2])
    }

    @Test func `an insert whose predecessor is removed while keys are compared is kept`() {
        let store = Self.store()
        Self.put([1], [1], store)
        let isKept = Self.put([2], [2], store) { _ in
            if let found = Self.find([1], store) { store.remove(found) }
            return true
        }
        #expect(isKept && store.statistics.count == 1 && Self.value([2], store) == [2] && Self.value([1], store) == nil)
    }

    // MARK: Pages

    @Test(.needs(plimsoll_page_size() == 4096, "the places are those of pages of 4 KiB"))
    func `a copy is good if each page of the item is there, to the last byte`() {
        // Header and key fill the first page.
        let key = [UInt8](repeating: 1, count: PageLayout.content - ItemHeader.size)
        let rows: [(count: Int, missing: Int, isGood: Bool)] = [
            (0, 0, false), (0, 1, true), (1, 0, false), (1, 1, false), (1, 2, true), (4088, 1, false), (4088, 2, true),
            (4089, 2, false), (4089, 3, true), (2 * 4088, 3, true), (2 * 4088 + 1, 3, false),
        ]
        for row in rows {
            let store = Self.store()
            Self.put(key, [UInt8](repeating: 7, count: row.count), store)
            guard let found = Self.find(key, store) else { return #expect(Bool(false), "no item") }
            #expect(plimsoll_drop(found.base + row.missing * PageLayout.page, PageLayout.page) == 0)
            let target = UnsafeMutableRawPointer.allocate(byteCount: row.count + 1, alignment: 16)
            defer { target.deallocate() }
            #expect(store.copy(found, to: target) == row.isGood, "\(row)")
            // An item that has lost a page is forgotten, and others stay.
            #expect(!store.hasMoved(found), "\(row)")
            #expect(store.statistics.count == (row.isGood ? 1 : 0), "\(row)")
            #expect(store.statistics.droppedByKernel == (row.isGood ? 0 : 1), "\(row)")
        }
    }

    @Test func `an item that was replaced or removed since a look-up has moved`() {
        let store = Self.store()
        Self.put([1], [1], store)
        guard let first = Self.find([1], store) else { return #expect(Bool(false), "no item") }
        #expect(!store.hasMoved(first))
        Self.put([1], [2], store)
        #expect(store.hasMoved(first) && !store.remove(first) && Self.value([1], store) == [2])
        guard let second = Self.find([1], store) else { return #expect(Bool(false), "no item") }
        #expect(store.remove(second) && store.hasMoved(second) && !store.remove(second))
        #expect(store.statistics.count == 0 && store.statistics.droppedByKernel == 0)
    }

    @Test func `an expired item does not take a later item of the same key and place along`() {
        let clock = ManualClock(), made = AtomicLazyReference<VolatileStore>(), isArmed = Atomic<Bool>(false)
        // Acts as another thread between the look-up of an item and the check of the time to live.
        let time = Timekeeper(elapsed: {
            let now = clock.timekeeper.elapsed()
            if isArmed.exchange(false, ordering: .relaxed), let store = made.load() {
                #expect(store.release(.max) > 0 && store.put(1, timeToLive: .seconds(10)))
            }
            return now
        })
        let store = made.storeIfNil(VolatileStore(limit: 1 << 20, allowsHugePages: false, isVolatile: false, time: time))
        #expect(store.put(1, timeToLive: .seconds(10)))
        let first = store.look(1)
        clock.freeze(for: .seconds(11))
        isArmed.store(true, ordering: .relaxed)
        #expect(store.look(1) == nil, "the item found has expired")
        let second = store.look(1)
        #expect(second != nil && second?.word.place == first?.word.place && second?.generation != first?.generation)
        #expect(store.statistics.count == 1)
    }

    // MARK: Learning

    @Test(.needs(plimsoll_page_size() == 4096, "the places are those of pages of 4 KiB"))
    func `a byte of an item stands for as much memory as the log has for each`() {
        let store = Self.store()
        #expect(store.memoryPerMille.load(ordering: .relaxed) == 1000)
        #expect(store.put(1) && store.mapped == 64 << 10)
        let rows: [(count: Int, bytes: Int, perMille: Int)] = [
            (1, 1024, 64_000), (0, 1024, 1000), (1, 0, 1000), (1, 1, 1_000_000), (2, 64 << 10, 1000), (2, 128 << 10, 500),
        ]
        for row in rows {
            var statistics = CacheStatistics()
            (statistics.count, statistics.byteCount) = (row.count, row.bytes)
            let isLearning = store.endRound(statistics, upTo: 1 << 20, at: .zero) != nil
            #expect(!isLearning && store.memoryPerMille.load(ordering: .relaxed) == row.perMille, "\(row)")
        }
    }

    @Test func `the sample depends on the mean memory of an entry, and is a usual one for an empty cache`() {
        func sampled(_ entries: Int, _ store: VolatileStore) -> UInt32 {
            store.learn {}
            var statistics = CacheStatistics()
            (statistics.count, statistics.byteCount) = (entries, entries)
            _ = store.endRound(statistics, upTo: 1 << 30, at: .zero)
            return store.counters.sampled.pointee.load(ordering: .relaxed)
        }
        // One entry on 64 KiB of pages, as many entries as have the usual size there, and none.
        let stores = (0..<3).map { _ in Self.store() }
        #expect(stores[0].put(1) && stores[1].put(1) && stores[1].mapped % Int(CurveMeter.usualCost) == 0)
        let (one, many) = (sampled(1, stores[0]), sampled(stores[1].mapped / Int(CurveMeter.usualCost), stores[1]))
        let none = sampled(0, stores[2])
        #expect(one > many && many == none && none > 0, "\(one), \(many), \(none)")
    }
}

/// Calls of a cache that say little, but must be right.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct VolatileCacheEdgeTests {
    private struct Refused: Error {}

    /// A key that refuses to be written if its text is empty. The type has more than bits, so that it is encoded.
    private struct Key: Hashable, VolatileStorable {
        let text: String
        init(_ text: String) { self.text = text }
        init(decoding bytes: RawSpan) throws { text = String(decoding: bytes) }
        func encode(into encoder: inout VolatileEncoder) throws {
            guard !text.isEmpty else { throw Refused() }
            encoder.append(text)
        }
    }

    @Test func `a key without bytes has no entry`() {
        let cache = VolatileCache<Key, Int>("keys", isVolatile: false, time: .running)
        #expect(cache.insert(1, forKey: Key("a")) && cache.contains(Key("a")) && cache.value(forKey: Key("a")) == 1)
        #expect(!cache.insert(2, forKey: Key("")) && !cache.contains(Key("")) && cache.value(forKey: Key("")) == nil)
        #expect(cache.removeValue(forKey: Key("")) == nil && cache.count == 1)
    }

    @Test func `a removal counts as a hit or a miss`() {
        let cache = VolatileCache<Int, Int>("removals", isVolatile: false, time: .running)
        cache.insert(1, forKey: 1)
        #expect(cache.removeValue(forKey: 1) == 1 && cache.statistics.hits == 1 && cache.statistics.misses == 0)
        #expect(cache.removeValue(forKey: 1) == nil && cache.statistics.hits == 1 && cache.statistics.misses == 1)
    }

    @Test func `each missing key is one miss, for loads by a thread and of many keys as well`() async throws {
        let cache = VolatileCache<Int, Int>("loads", isVolatile: false, time: .running)
        for _ in 0..<2 { #expect(try cache.valueBlocking(forKey: 1) { 1 } == 1) }
        #expect(cache.statistics.misses == 1 && cache.statistics.hits == 1 && cache.statistics.loads == 1)
        let values = try await cache.values(forKeys: [1, 2, 3]) { _ in [2: 2, 3: 3] }
        #expect(values == [1: 1, 2: 2, 3: 3])
        #expect(cache.statistics.misses == 3 && cache.statistics.hits == 2 && cache.statistics.loads == 2)
    }

    @Test func `listeners get keys of one byte unchanged`() {
        let cache = VolatileCache<UInt8, Int>("bytes", isVolatile: false, time: .running), left = Log<UInt8>()
        cache.onRemoval { key, _ in left.add(key) }
        for key in 1...50 as ClosedRange<UInt8> { cache.insert(7, forKey: key) }
        for key in 1...50 as ClosedRange<UInt8> { cache.removeValue(forKey: key) }
        #expect(left.all == Array(1...50))
    }

    @Test func `a value that lives for an instant is there before time passes`() {
        let clock = ManualClock()
        let cache = VolatileCache<Int, Int>("short", isVolatile: false, time: clock.timekeeper)
        cache.insert(1, forKey: 1, timeToLive: .nanoseconds(1))
        cache.insert(2, forKey: 2, timeToLive: .zero)
        #expect(cache.value(forKey: 1) == 1 && cache.value(forKey: 2) == nil)
        clock.freeze(for: .nanoseconds(1))
        #expect(cache.value(forKey: 1) == nil && cache.count == 0)
    }

    @Test func `a release frees the buffers of earlier look-ups, and spares are counted once`() {
        let cache = VolatileCache<Int, [UInt8]>("buffers", isVolatile: false, time: .running)
        for key in 0..<2 { cache.insert([UInt8](repeating: 1, count: 10_000), forKey: key) }
        func borrow() { #expect(cache.withBytes(forKey: 1) { $0.byteCount } == 10_000) }
        borrow()
        #expect(cache.dropSpares() == 16 << 10 && cache.dropSpares() == 0)
        borrow()
        #expect(cache.release(1) > 0 && cache.dropSpares() == 0)
    }

    @Test func `a cache declares on the meter of volatile memory alone, and takes another limit`() {
        let cache = VolatileCache<Int, Int>("calls", isVolatile: false, time: .running), meter = ChargeMeter {}
        #expect(cache.attach(meter) && cache.insert(1, forKey: 1) && meter.heldBytes == .zero)
        #expect(cache.holdsAtMost == nil)
        cache.resize(to: .mebibytes(3))
        #expect(cache.limit == .mebibytes(3) && cache.holdsAtMost == .mebibytes(3))
        let none = VolatileCache<Int, Int>("none", limit: .zero, isVolatile: false, time: .running)
        #expect(none.limit == .zero && !none.insert(1, forKey: 1))
    }

    @Test func `the usual types write their bytes into the value of another type`() throws {
        var encoder = VolatileEncoder()
        [UInt8]([1, 2]).encode(into: &encoder)
        "ab".encode(into: &encoder)
        UInt16(0x0403).encode(into: &encoder)
        let bytes = encoder.bytes
        #expect(bytes == [1, 2, 0x61, 0x62] + withUnsafeBytes(of: UInt16(0x0403)) { Array($0) })
        #expect([UInt8]([1, 2]).encodedByteCount == 2 && "ab".encodedByteCount == 2 && UInt16(3).encodedByteCount == 2)
    }
}
