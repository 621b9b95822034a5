import CPlimsollMemory
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Values in memory that the kernel may reclaim: the promises that a cache keeps with or without a reclaim.
@Suite(.serialized, .timeLimit(.minutes(5))) struct VolatileCacheTests {
    static func bytes(_ count: Int, seed: UInt64) -> [UInt8] {
        var random = SeededGenerator(seed: seed)
        // Writes whole words: without optimisation, millions of single bytes take seconds.
        return [UInt8](unsafeUninitializedCapacity: count + 8) { bytes, initialized in
            for start in stride(from: 0, to: count, by: 8) {
                UnsafeMutableRawBufferPointer(bytes).storeBytes(of: random.next(), toByteOffset: start, as: UInt64.self)
            }
            initialized = count
        }
    }

    @Test(arguments: [0, 1, 7, 8, 100, 4_063, 4_064, 4_065, 4_096, 70_000, 300_000, 2 << 20, 5 << 20])
    func `values of every size come back byte for byte, alone and beside others`(size: Int) {
        let cache = VolatileCache<UInt64, [UInt8]>("sizes")
        let values = (0..<6).map { Self.bytes(size, seed: UInt64($0 + size)) }
        for (key, value) in values.enumerated() { #expect(cache.insert(value, forKey: UInt64(key))) }
        for (key, value) in values.enumerated() {
            #expect(cache.value(forKey: UInt64(key)) == value)
            #expect(cache.withBytes(forKey: UInt64(key)) { $0.withUnsafeBytes { Array($0) } } == value)
        }
        #expect(cache.count == 6 && cache.statistics.hits == 12 && cache.statistics.misses == 0)
        #expect(cache.value(forKey: 99) == nil && cache.statistics.misses == 1)
    }

    @Test func `a look-up that loads is one miss and one load, and a load that throws is a failure`() async throws {
        struct Refused: Error {}
        let clock = ManualClock()
        let cache = VolatileCache<Int, String>("loads", isVolatile: false, time: clock.timekeeper)
        for _ in 0..<2 {
            let value = try await cache.value(forKey: 1) {
                clock.advance(by: .milliseconds(3))
                return "one"
            }
            #expect(value == "one")
        }
        await #expect(throws: Refused.self) { try await cache.value(forKey: 2) { throw Refused() } }
        let statistics = cache.statistics
        #expect(statistics.hits == 1 && statistics.misses == 2)
        #expect(statistics.loads == 1 && statistics.loadFailures == 1 && statistics.loadTime == .milliseconds(3))
    }

    @Test func `a value is replaced and removed, and absent afterwards`() {
        let cache = VolatileCache<String, String>("names")
        #expect(cache.insert("one", forKey: "a") && cache.insert("two", forKey: "a"))
        #expect(cache.value(forKey: "a") == "two" && cache.count == 1)
        #expect(cache.removeValue(forKey: "a") == "two" && cache.removeValue(forKey: "a") == nil)
        #expect(cache.value(forKey: "a") == nil && cache.count == 0 && cache.byteCount == .zero)
        for key in 0..<1000 { cache.insert("value \(key)", forKey: "key \(key)") }
        cache.removeAll()
        #expect(cache.count == 0 && cache.heldBytes == .zero && cache.value(forKey: "key 7") == nil)
        #expect(cache.insert("again", forKey: "key 7") && cache.value(forKey: "key 7") == "again")
    }

    @Test func `keys are equal by their meaning, not their bytes`() {
        // The keys are two spellings of one text.
        let names = VolatileCache<String, Int>("names")
        names.insert(1, forKey: "caf\u{E9}")
        names.insert(2, forKey: "cafe\u{301}")
        #expect(names.count == 1 && names.value(forKey: "caf\u{E9}") == 2)
        let numbers = VolatileCache<Double, Int>("numbers")
        numbers.insert(1, forKey: 0.0)
        #expect(numbers.value(forKey: -0.0) == 1)
        struct Padded: Hashable, VolatileStorable, BitwiseCopyable {
            var small: UInt8
            var large: UInt64
        }
        let padded = VolatileCache<Padded, Int>("padded")
        for number in 0..<500 { padded.insert(number, forKey: Padded(small: UInt8(number & 255), large: UInt64(number))) }
        #expect((0..<500).allSatisfy { padded.value(forKey: Padded(small: UInt8($0 & 255), large: UInt64($0))) == $0 })
        #expect(padded.count == 500)
    }

    @Test func `keys of equal hashes are kept apart, and do not grow the index without bound`() {
        struct Poor: Hashable, VolatileStorable, BitwiseCopyable {
            var number: Int
            func hash(into hasher: inout Hasher) { hasher.combine(7) }
        }
        let cache = VolatileCache<Poor, Int>("poor")
        for number in 0..<200 { cache.insert(number, forKey: Poor(number: number)) }
        let kept = (0..<200).filter { cache.value(forKey: Poor(number: $0)) != nil }
        #expect(kept.allSatisfy { cache.value(forKey: Poor(number: $0)) == $0 })
        #expect(kept.count == cache.count && kept.count >= 8)
        #expect(cache.statistics.evictions == 200 - kept.count)
    }

    @Test func `listeners hear of an entry that leaves for another one of the same hash`() {
        struct Poor: Hashable, VolatileStorable, BitwiseCopyable {
            var number: Int
            func hash(into hasher: inout Hasher) { hasher.combine(7) }
        }
        let cache = VolatileCache<Poor, Int>("poor"), left = Log<Int>()
        cache.onRemoval { key, reason in if reason == .evicted { left.add(key.number) } }
        for number in 0..<200 { cache.insert(number, forKey: Poor(number: number)) }
        let gone = (0..<200).filter { cache.value(forKey: Poor(number: $0)) == nil }
        #expect(!gone.isEmpty && left.all.sorted() == gone)
    }

    @Test(.needsLinux, arguments: [64, 1000, 5000]) func `the index splits under many entries and no entry is lost`(size: Int) {
        let cache = VolatileCache<Int, [UInt8]>("many")
        let count = size == 64 ? 100_000 : 20_000
        for key in 0..<count { cache.insert([UInt8](repeating: UInt8(key & 255), count: size), forKey: key) }
        #expect(cache.count == count)
        #expect(
            (0..<count).allSatisfy { key in
                cache.withBytes(forKey: key) { $0.byteCount == size && $0.unsafeLoad(as: UInt8.self) == UInt8(key & 255) } == true
            })
    }

    /// A text whose decoding removes the same key from the cache.
    struct Nested: VolatileStorable {
        static let cache = Mutex<VolatileCache<Int, Nested>?>(nil)
        static let taken = Mutex<[String]>([])
        /// The type has more than bits, so that a value is decoded instead of copied.
        let text: String

        init(_ text: String) { self.text = text }
        func encode(into encoder: inout VolatileEncoder) { encoder.append(text) }
        init(decoding bytes: RawSpan) throws {
            text = String(decoding: bytes)
            let cache = Self.cache.withLock { cache in
                defer { cache = nil }
                return cache
            }
            guard let taken = cache?.removeValue(forKey: 1) else { return }
            Self.taken.withLock { $0.append(taken.text) }
        }
    }

    @Test func `of two callers that remove the same value one gets that value, and neither gets a replaced one`() {
        let cache = VolatileCache<Int, Nested>("taken once")
        cache.insert(Nested("seven"), forKey: 1)
        Nested.cache.withLock { $0 = cache }
        #expect(cache.removeValue(forKey: 1)?.text == nil)
        #expect(Nested.taken.withLock { $0 } == ["seven"] && cache.count == 0)
    }

    // MARK: Bounds

    @Test(arguments: [ByteCount.kibibytes(4), .kibibytes(200), .mebibytes(3), .mebibytes(12)])
    func `a limit is kept, and entries in use outlive the others`(limit: ByteCount) {
        let cache = VolatileCache<Int, [UInt8]>("limited", limit: limit)
        let size = 400, hot = 4
        for key in 0..<hot { cache.insert([UInt8](repeating: 9, count: size), forKey: key) }
        for key in hot..<max(1000, limit.bytes / size * 3) {
            #expect(cache.insert([UInt8](repeating: 1, count: size), forKey: key))
            for key in 0..<hot where key < hot { _ = cache.value(forKey: key) }
        }
        #expect(cache.byteCount <= limit.bytes && cache.byteCount > limit.bytes / 2)
        #expect(cache.heldBytes <= max(limit.bytes, 128 << 10) + 2 << 20)
        #expect((0..<hot).allSatisfy { cache.value(forKey: $0) != nil })
        #expect(cache.statistics.evictions > 0 && cache.statistics.droppedByKernel == 0)
    }

    @Test func `a limit of zero, a value too large and a key too large each refuse only their own insert`() {
        let none = VolatileCache<Int, [UInt8]>("none", limit: .zero)
        #expect(!none.insert([1], forKey: 1) && none.count == 0)
        let cache = VolatileCache<String, [UInt8]>("small", limit: .mebibytes(1))
        #expect(cache.insert([1], forKey: "kept"))
        #expect(!cache.insert([UInt8](repeating: 0, count: 2 << 20), forKey: "too large"))
        let longest = String(repeating: "k", count: PageLayout.content - ItemHeader.size)
        #expect(cache.insert([1], forKey: longest) && cache.removeValue(forKey: longest) == [1], "a whole page")
        #expect(!cache.insert([1], forKey: longest + "k"), "a key larger than a page")
        #expect(!cache.insert([1], forKey: "tags", tags: (0..<300).map { "\($0)" }))
        #expect(cache.value(forKey: "kept") == [1] && cache.count == 1)
        #expect(cache.insert([], forKey: "") && cache.value(forKey: "") == [])
    }

    @Test func `a value that only just does not fit evicts no other entry`() {
        let cache = VolatileCache<Int, [UInt8]>("just", limit: .mebibytes(1))
        for key in 0..<100 { cache.insert([1, 2, 3], forKey: key) }
        #expect(!cache.insert([UInt8](repeating: 0, count: 1 << 20), forKey: 1000) && cache.count == 100)
        #expect(!cache.insert([UInt8](repeating: 0, count: (1 << 20) - 100), forKey: 1000) && cache.count == 100)
        #expect(cache.insert([UInt8](repeating: 7, count: 1_000_000), forKey: 1000))
        #expect(cache.value(forKey: 1000) == [UInt8](repeating: 7, count: 1_000_000) && cache.heldBytes <= 1 << 20)
    }

    @Test func `lowering the limit under load gives memory back at once`() {
        let cache = VolatileCache<Int, [UInt8]>("lowered", limit: .mebibytes(64))
        let isWriting = Atomic<Bool>(true)
        let done = Atomic<Int>(0)
        #expect(
            Thread.start("writer") {
                defer { done.wrappingAdd(1, ordering: .releasing) }
                var key = 0
                while isWriting.load(ordering: .relaxed) {
                    cache.insert([UInt8](repeating: UInt8(key & 255), count: 3000), forKey: key)
                    _ = cache.value(forKey: key / 2)
                    key += 1
                }
            })
        blockUntil { cache.heldBytes >= 32 << 20 }
        for limit in [32, 8, 1, 16] {
            cache.limit = .mebibytes(limit)
            #expect(cache.byteCount <= limit << 20 && cache.heldBytes <= (limit + 3) << 20)
        }
        isWriting.store(false, ordering: .relaxed)
        blockUntil { done.load(ordering: .acquiring) == 1 }
        #expect(cache.limit == .mebibytes(16))
    }

    // MARK: Codecs

    struct Strange: VolatileStorable, Equatable {
        struct Refused: Error {}
        var text: String
        var encodedByteCount: Int { text == "negative" ? .min : text == "huge" ? .max : 1 }
        func encode(into encoder: inout VolatileEncoder) throws {
            if text == "throws" { throw Refused() }
            encoder.append(text)
        }
        init(_ text: String) { self.text = text }
        init(decoding bytes: RawSpan) throws {
            text = String(decoding: bytes)
            if text == "unreadable" { throw Refused() }
        }
    }

    @Test func `a codec that throws or gives a wrong length loses that value only`() {
        let cache = VolatileCache<Int, Strange>("strange")
        #expect(cache.insert(Strange("before"), forKey: 1))
        #expect(!cache.insert(Strange("throws"), forKey: 1) && cache.value(forKey: 1) == Strange("before"))
        for (key, text) in ["negative", "huge", "longer than the one byte promised"].enumerated() {
            #expect(cache.insert(Strange(text), forKey: 10 + key) && cache.value(forKey: 10 + key) == Strange(text))
        }
        #expect(cache.insert(Strange("unreadable"), forKey: 2))
        #expect(cache.count == 5 && cache.value(forKey: 2) == nil && cache.count == 4, "what cannot be read is taken out")
    }

    struct Point: VolatileStorable, BitwiseCopyable, Hashable {
        var x: Int32
        var y: Double
    }

    @Test func `structures, text and numbers are kept unchanged`() {
        let points = VolatileCache<Point, Point>("points")
        points.insert(Point(x: 3, y: 4), forKey: Point(x: 1, y: 2))
        #expect(points.value(forKey: Point(x: 1, y: 2)) == Point(x: 3, y: 4))
        let texts = VolatileCache<Int, String>("texts")
        let long = String(repeating: "ein Boot \u{1F6A2} ", count: 3000)
        texts.insert(long, forKey: 1)
        #expect(texts.value(forKey: 1) == long)
        let arrays = VolatileCache<[UInt8], Bool>("arrays")
        arrays.insert(true, forKey: [1, 2, 3])
        #expect(arrays.value(forKey: [1, 2, 3]) == true && arrays.value(forKey: [1, 2]) == nil)
    }

    // MARK: Time, tags, reasons

    @Test func `values expire by the given time`() {
        let clock = ManualClock()
        let cache = VolatileCache<Int, Int>("short", timeToLive: .seconds(10), isVolatile: true, time: clock.timekeeper)
        let left = Mutex<[Int: RemovalReason]>([:])
        cache.onRemoval { key, reason in left.withLock { $0[key] = reason } }
        cache.insert(1, forKey: 1)
        clock.advance(by: .seconds(9))
        cache.insert(2, forKey: 2)
        #expect(cache.value(forKey: 1) == 1)
        clock.advance(by: .seconds(1))
        #expect(cache.value(forKey: 1) == nil && cache.value(forKey: 2) == 2)
        #expect(left.withLock { $0 } == [1: .expired] && cache.count == 1)
        let eternal = VolatileCache<Int, Int>("eternal", timeToLive: .seconds(Int64.max))
        #expect(eternal.insert(1, forKey: 1) && eternal.value(forKey: 1) == 1)
    }

    @Test func `a purge by tag releases the empty segments, and keeps the items of the other segments`() {
        let cache = VolatileCache<Int, [UInt8]>("tagged", isVolatile: false, time: .running)
        for key in 0..<3000 {
            cache.insert([UInt8](repeating: 1, count: 2000), forKey: key, tags: [key % 500 == 0 ? "kept" : "gone"])
        }
        let before = cache.heldBytes
        #expect(cache.purge(tag: "gone") == 2994)
        #expect((0..<3000).filter { cache.value(forKey: $0) != nil } == [0, 500, 1000, 1500, 2000, 2500])
        // The open segments are not released.
        #expect(cache.purge(tag: "kept") == 6 && cache.heldBytes <= before / 2)
    }

    @Test func `a purged tag removes all tagged entries together`() {
        let cache = VolatileCache<Int, [UInt8]>("tagged")
        for key in 0..<3000 { cache.insert([UInt8](repeating: 1, count: 2000), forKey: key, tags: ["tenant-\(key % 3)", "all"]) }
        #expect(cache.count(tag: "all") == 3000 && cache.count(tag: "tenant-1") == 1000 && cache.count(tag: "nobody") == 0)
        cache.removeValue(forKey: 3)
        #expect(cache.count(tag: "all") == 2999 && cache.count(tag: "tenant-0") == 999 && cache.count(tag: "tenant-1") == 1000)
        cache.insert([UInt8](repeating: 1, count: 2000), forKey: 3, tags: ["tenant-0", "all"])
        cache.purge(tag: "tenant-1")
        #expect(cache.count(tag: "tenant-1") == 0 && cache.count(tag: "tenant-2") == 1000)
        #expect(cache.count == 2000 && cache.statistics.purged == 1000)
        #expect((0..<3000).allSatisfy { (cache.value(forKey: $0) == nil) == ($0 % 3 == 1) })
        cache.purge(tag: "nobody")
        #expect(cache.count == 2000)
        cache.purge(tag: "all")
        #expect(cache.count == 0)
    }

    @Test func `listeners receive the reason, after the lock`() {
        let cache = VolatileCache<Int, [UInt8]>("notified", limit: .kibibytes(64))
        let received = Mutex<[RemovalReason: Int]>([:])
        cache.onRemoval { [unowned cache] _, reason in
            _ = cache.count
            received.withLock { $0[reason, default: 0] += 1 }
        }
        for key in 0..<300 { cache.insert([UInt8](repeating: 1, count: 1000), forKey: key) }
        cache.insert([1], forKey: 299)
        cache.removeValue(forKey: 299)
        let evicted = cache.statistics.evictions
        let left = cache.count
        _ = cache.release(1 << 20)
        #expect(received.withLock { $0 } == [.evicted: evicted, .replaced: 1, .removed: 1, .purged: left])
    }

    @Test func `a key is loaded once, for any number of callers`() async throws {
        let cache = VolatileCache<Int, [UInt8]>("loaded")
        let loads = Counter()
        try await withThrowingTaskGroup(of: [UInt8].self) { group in
            for _ in 0..<20 {
                group.addTask {
                    try await cache.value(forKey: 1) {
                        loads.add(1)
                        await giveWay()
                        return [1, 2, 3]
                    }
                }
            }
            for try await value in group { #expect(value == [1, 2, 3]) }
        }
        #expect(loads.value == 1)
    }

    // MARK: Giving back

    @Test(.needsLinux) func `released memory leaves the process, and the rest stays readable`() {
        let cache = VolatileCache<Int, [UInt8]>("released")
        for key in 0..<8000 { cache.insert([UInt8](repeating: UInt8(key & 255), count: 4096), forKey: key) }
        let held = cache.heldBytes
        #expect(held >= 31 << 20 && cache.volatileBytes >= held - 3 << 20)
        let part = cache.release(8 << 20)
        #expect(part >= 8 << 20 && part < 11 << 20 && cache.heldBytes == held - part)
        for key in 0..<8000 { if let value = cache.value(forKey: key) { #expect(value == [UInt8](repeating: UInt8(key & 255), count: 4096)) } }
        #expect(cache.release(1000 << 20) == held - part && cache.heldBytes == .zero && cache.count == 0)
        #expect(cache.statistics.purged == 8000)
        #expect(cache.insert([1], forKey: 1) && cache.value(forKey: 1) == [1])
    }

    @Test func `without a limit, idle entries are released in time`() {
        let clock = ManualClock()
        let cache = VolatileCache<Int, [UInt8]>("idle", idleTime: .seconds(60), isVolatile: true, time: clock.timekeeper)
        for key in 0..<4000 { cache.insert([UInt8](repeating: 1, count: 4096), forKey: key) }
        clock.advance(by: .seconds(50))
        for key in 0..<100 { _ = cache.value(forKey: key) }
        cache.giveBackIdle()
        #expect(cache.count == 4000)
        clock.advance(by: .seconds(11))
        cache.giveBackIdle()
        #expect(cache.heldBytes <= 4 << 20, "the open segment, and what was asked for")
        #expect((0..<100).allSatisfy { cache.value(forKey: $0) != nil })
    }
}

extension String {
    init(decoding bytes: RawSpan) { self = bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
