import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Buffers with real drops: the tests make the kernel reclaim the offered pages.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux) struct PurgeableBufferTests {
    /// Fills every word with its index and `salt`, including the first word of each page. Fills the bytes after the
    /// last whole word with ones.
    static func fill(_ buffer: PurgeableBuffer, salt: UInt64 = 0) -> Bool {
        let written: Void? = buffer.withAccess { bytes in
            bytes.withUnsafeMutableBytes { bytes in
                for index in 0..<bytes.count / 8 { bytes.storeBytes(of: UInt64(index) ^ salt, toByteOffset: index * 8, as: UInt64.self) }
                for index in bytes.count / 8 * 8..<bytes.count { bytes[index] = 1 }
            }
        }
        return written != nil
    }

    /// Returns the number of bytes that differ from those of `fill`; `nil` if the contents are gone.
    static func wrong(_ buffer: PurgeableBuffer, salt: UInt64 = 0) -> Int? {
        buffer.withAccess { bytes in
            bytes.withUnsafeBytes { bytes in
                var wrong = 0
                for index in 0..<bytes.count / 8 where bytes.load(fromByteOffset: index * 8, as: UInt64.self) != UInt64(index) ^ salt { wrong += 8 }
                for index in bytes.count / 8 * 8..<bytes.count where bytes[index] != 1 { wrong += 1 }
                return wrong
            }
        }
    }

    @Test(arguments: [1, 8, 4095, 4096, 4097, 12_345, 1 << 20, (3 << 20) + 5], [false, true])
    func `contents survive from access to access`(byteCount: Int, isGuarded: Bool) {
        let buffer = PurgeableBuffer(byteCount: byteCount, isGuarded: isGuarded)
        #expect(buffer.withAccess { bytes in bytes.bytes.withUnsafeBytes { $0.count == byteCount && $0.allSatisfy { $0 == 0 } } } == true)
        #expect(Self.fill(buffer))
        for _ in 0..<3 { #expect(Self.wrong(buffer) == 0) }
        #expect(buffer.isVolatile && !buffer.isDiscarded && buffer.noticeDrops() == .zero)
    }

    @Test(arguments: [false, true], [false, true])
    func `a reclaimed page discards the whole buffer, at once and for good`(isGuarded: Bool, usesHugePages: Bool) {
        let buffer = PurgeableBuffer(byteCount: 4 << 20, usesHugePages: usesHugePages, isGuarded: isGuarded)
        #expect(Self.fill(buffer))
        // Some pages may be in another processor's batch of pages for the LRU lists, and escape the reclaim
        // (mm/swap.c).
        let whole = buffer.residentPages
        for page in 700..<800 where buffer.residentPages == whole { buffer.reclaim(pages: page..<page + 1) }
        #expect(!buffer.beginAccess() && buffer.isDiscarded && !buffer.isVolatile && buffer.heldBytes == .zero)
        #expect(buffer.withAccess { _ in 1 } == nil && !buffer.beginAccess())
        #expect(buffer.residentPages == 0)
        #expect(buffer.noticeDrops() > .zero, "a drop found by an access is reported")
        #expect(buffer.noticeDrops() == .zero && buffer.release(.max) == .zero)
    }

    @Test func `a reclaim of a range takes the pages of that range`() throws {
        let buffer = PurgeableBuffer(byteCount: 4 << 20, usesHugePages: false, isGuarded: false)
        #expect(Self.fill(buffer))
        let whole = buffer.residentPages
        try #require(whole > 0)
        buffer.reclaim(pages: 0..<whole / 2)
        buffer.reclaim(pages: whole / 2..<whole)
        // A few pages may be in another processor's batch of pages for the LRU lists, and escape the reclaim
        // (mm/swap.c).
        #expect(buffer.residentPages < whole / 2)
    }

    @Test func `an accessed buffer is not reclaimed`() {
        let buffer = PurgeableBuffer(byteCount: 1 << 20, isGuarded: false)
        #expect(Self.fill(buffer) && buffer.beginAccess())
        buffer.reclaim()
        #expect(Self.wrong(buffer) == 0 && !buffer.isVolatile && buffer.noticeDrops() == .zero)
        buffer.endAccess()
        buffer.reclaim()
        #expect(Self.wrong(buffer) == nil)
    }

    @Test func `a buffer never accessed is neither reclaimed nor released`() {
        let buffer = PurgeableBuffer(byteCount: 1 << 20)
        buffer.reclaim()
        #expect(buffer.heldBytes == .zero && buffer.release(.max) == .zero && !buffer.isVolatile && buffer.noticeDrops() == .zero)
        #expect(buffer.residentPages == 0)
        #expect(Self.fill(buffer) && Self.wrong(buffer) == 0)
    }

    @Test func `accesses nest, and errors end the accesses`() {
        struct Problem: Error {}
        let buffer = PurgeableBuffer(byteCount: 10_000)
        #expect(Self.fill(buffer) && buffer.beginAccess() && buffer.beginAccess())
        buffer.endAccess()
        buffer.reclaim()
        #expect(Self.wrong(buffer) == 0, "one access is left")
        #expect(throws: Problem.self) { try buffer.withAccess { _ in throw Problem() } }
        buffer.endAccess()
        #expect(buffer.isVolatile)
    }

    @Test func `a discard during an access takes effect at the end of the access`() {
        let buffer = PurgeableBuffer(byteCount: 10_000)
        #expect(Self.fill(buffer) && buffer.beginAccess())
        buffer.discard()
        #expect(buffer.isDiscarded && !buffer.beginAccess() && buffer.release(.max) == .zero && buffer.residentPages == 3)
        buffer.endAccess()
        #expect(buffer.isDiscarded && buffer.residentPages == 0 && buffer.withAccess { _ in 1 } == nil)
        let untouched = PurgeableBuffer(byteCount: 10)
        untouched.discard()
        untouched.discard()
        #expect(untouched.isDiscarded && !untouched.beginAccess())
    }

    @Test(arguments: [1 << 59, (1 << 60) - 1, Int.max]) func `a buffer without memory to map is discarded from the start`(byteCount: Int) {
        let buffer = PurgeableBuffer(byteCount: byteCount)
        #expect(buffer.isDiscarded && !buffer.isVolatile && !buffer.beginAccess() && buffer.withAccess { _ in 1 } == nil)
        #expect(buffer.heldBytes == .zero && buffer.release(.max) == .zero && buffer.noticeDrops() == .zero)
        buffer.discard()
    }

    @Test func `a buffer of zero bytes works like any other`() {
        let buffer = PurgeableBuffer("empty", byteCount: .zero, rebuildCost: .trivial)
        #expect(buffer.withAccess { $0.byteCount } == 0 && buffer.withAccess { $0.byteCount } == 0)
        #expect(buffer.name == "empty" && buffer.rebuildCost == .trivial && buffer.heldBytes == .zero && !buffer.isVolatile)
        #expect(buffer.release(.max) == .zero && buffer.isDiscarded)
    }

    @Test func `a manager sees the mapped bytes, and the claim ends with the buffer`() {
        let meter = ChargeMeter {}, other = ChargeMeter {}
        var buffer: PurgeableBuffer? = PurgeableBuffer(byteCount: 1 << 20)
        buffer?.attach(volatile: meter)
        buffer?.attach(volatile: other)
        let declared = meter.heldBytes
        #expect(declared >= .mebibytes(1) && declared < .mebibytes(1) + .kibibytes(16) && other.heldBytes == .zero)
        #expect(Self.fill(buffer!) && buffer!.heldBytes == 1 << 20 && buffer!.volatileBytes == 1 << 20)
        #expect(buffer!.release(.zero) == .zero && buffer!.release(1) == 1 << 20)
        #expect(meter.heldBytes == .zero && buffer!.isDiscarded)
        buffer?.attach(volatile: other)
        #expect(other.heldBytes == .zero, "nothing is left to declare")
        buffer = PurgeableBuffer(byteCount: 5000)
        buffer?.attach(volatile: meter)
        #expect(meter.heldBytes > .zero)
        buffer = nil
        #expect(meter.heldBytes == .zero)
    }

    @Test(arguments: [false, true]) func `drops are noticed without an access`(isGuarded: Bool) {
        let buffer = PurgeableBuffer(byteCount: 1 << 20, usesHugePages: false, isGuarded: isGuarded), meter = ChargeMeter {}
        buffer.attach(volatile: meter)
        #expect(Self.fill(buffer) && buffer.noticeDrops() == .zero && Self.wrong(buffer) == 0)
        buffer.reclaim()
        // A few pages may be in another processor's batch of pages for the LRU lists, and escape the reclaim
        // (mm/swap.c).
        #expect(buffer.noticeDrops() >= 800 << 10 && buffer.isDiscarded && meter.heldBytes == .zero)
        #expect(buffer.noticeDrops() == .zero && Self.wrong(buffer) == nil)
    }

    @Test func `while many threads use buffers and one reclaims, a buffer is whole or gone, never wrong`() async {
        let seed = newSeed()
        print("seed \(seed)")
        let buffers = Buffers((0..<8).map { _ in PurgeableBuffer(byteCount: 40_000) })
        for index in 0..<8 { #expect(Self.fill(buffers[index], salt: 77)) }
        let outcome = await withTaskGroup(of: (wrong: Int, gone: Int).self) { group in
            for thread in UInt64(0)..<4 {
                group.addTask {
                    var random = SeededGenerator(seed: seed &+ thread), sum = (wrong: 0, gone: 0)
                    for _ in 0..<1000 {
                        let index = Int.random(in: 0..<8, using: &random)
                        let buffer = buffers[index]
                        if thread == 0 { buffer.reclaim() }
                        if let wrong = Self.wrong(buffer, salt: 77) {
                            sum.wrong += wrong
                            continue
                        }
                        sum.gone += 1
                        let fresh = PurgeableBuffer(byteCount: 40_000)
                        _ = Self.fill(fresh, salt: 77)
                        buffers[index] = fresh
                    }
                    return sum
                }
            }
            return await group.reduce((wrong: 0, gone: 0)) { ($0.wrong + $1.wrong, $0.gone + $1.gone) }
        }
        #expect(outcome.wrong == 0, "seed \(seed)")
        #expect(outcome.gone > 0, "seed \(seed): nothing was ever reclaimed")
    }
}

/// Buffers that threads replace while others use them.
private final class Buffers: Sendable {
    private let all: Mutex<[PurgeableBuffer]>
    init(_ all: [PurgeableBuffer]) { self.all = Mutex(all) }

    subscript(index: Int) -> PurgeableBuffer {
        get { all.withLock { $0[index] } }
        set {
            // The replaced buffer is deallocated outside the lock.
            let before = all.withLock { all in
                defer { all[index] = newValue }
                return all[index]
            }
            withExtendedLifetime(before) {}
        }
    }
}

extension PurgeableBuffer {
    /// The number of resident pages of the data, as the kernel counts them (/proc/self/pagemap, bit 63).
    var residentPages: Int {
        guard let pages else { return 0 }
        let page = Int(getpagesize()), count = (byteCount + page - 1) / page
        let file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        var entries = [UInt64](repeating: 0, count: count)
        let wanted = count * 8
        guard pread(file, &entries, wanted, Int(bitPattern: pages.start) / page * 8) == wanted else { return -1 }
        return entries.count { $0 >> 63 == 1 }
    }
}
