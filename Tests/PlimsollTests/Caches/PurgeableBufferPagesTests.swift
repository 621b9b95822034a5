import CAllocationCounter
import CPlimsollMemory
import Glibc
import TestSupport
import Testing

@testable import Plimsoll

/// The pages of a buffer, one by one.
@Suite(.serialized, .timeLimit(.minutes(5)), .needsLinux, .needs(plimsoll_page_size() == 4096, "the sizes are those of pages of 4 KiB"))
struct PurgeableBufferPagesTests {
    private static let page = 4096

    private static func buffer(pages: Int) -> PurgeableBuffer {
        let buffer = PurgeableBuffer(byteCount: pages * page, usesHugePages: false, isGuarded: false)
        if !PurgeableBufferTests.fill(buffer) { Issue.record("no access") }
        return buffer
    }

    private static func drop(_ pages: [Int], of buffer: PurgeableBuffer) {
        for number in pages { #expect(buffer.address.map { plimsoll_drop($0 + number * page, page) } == 0) }
    }

    @Test func `a buffer maps its pages, and a word for each of them and one more`() {
        for (bytes, pages) in [
            (0, 1), (1, 2), (4096, 2), (4097, 3), (8192, 3), (8193, 4), (511 * 4096, 512), (511 * 4096 + 1, 514), (512 * 4096, 514),
            (1023 * 4096, 1025), (1024 * 4096, 1027),
        ] {
            let buffer = PurgeableBuffer(byteCount: bytes, usesHugePages: false, isGuarded: false), meter = ChargeMeter {}
            buffer.attach(volatile: meter)
            #expect(meter.heldBytes.bytes == pages * Self.page, "\(bytes) bytes")
            withExtendedLifetime(buffer) {}
        }
    }

    @Test(arguments: [[0], [7], [2, 5], [0, 1, 2, 3, 4, 5, 6, 7]]) func `all taken pages are reported, once`(pages: [Int]) {
        for isAccessed in [false, true] {
            let buffer = Self.buffer(pages: 8)
            Self.drop(pages, of: buffer)
            if isAccessed { #expect(!buffer.beginAccess()) }
            #expect(buffer.noticeDrops() == pages.count * Self.page && buffer.noticeDrops() == 0, "accessed: \(isAccessed)")
            #expect(buffer.isDiscarded)
        }
    }

    @Test func `a stray write to a mark costs the buffer, as one taken page`() {
        let buffer = Self.buffer(pages: 3)
        // The mark of the second page is one cache line inside the page.
        buffer.address?.storeBytes(of: 1, toByteOffset: Self.page + 64, as: UInt64.self)
        #expect(!buffer.beginAccess() && buffer.noticeDrops() == Self.page && buffer.isDiscarded)
    }

    /// Returns the kernel's flags of the mappings at some addresses (`VmFlags`).
    private static func flags(at addresses: [UnsafeMutableRawPointer?]) throws -> [Set<String>] {
        // Foundation's readers stop after the first part of such a file.
        let file = try #require(fopen("/proc/self/smaps", "r"))
        defer { fclose(file) }
        var bytes: [UInt8] = [], part = [UInt8](repeating: 0, count: 1 << 16)
        while case let count = fread(&part, 1, part.count, file), count > 0 { bytes += part[..<count] }
        let text = String(decoding: bytes, as: UTF8.self)
        let places = addresses.map { UInt(bitPattern: $0) }
        var found = [Set<String>](repeating: [], count: places.count), inside: [Int] = []
        for line in text.split(separator: "\n") {
            if line.hasPrefix("VmFlags:") {
                for place in inside { found[place] = Set(line.split(separator: " ").dropFirst().map { String($0) }) }
                continue
            }
            guard let first = line.first, first.isHexDigit, first.isLowercase || first.isNumber else { continue }
            let ends = line.prefix { $0 != " " }.split(separator: "-").compactMap { UInt($0, radix: 16) }
            guard ends.count == 2 else { continue }
            inside = places.indices.filter { places[$0] >= ends[0] && places[$0] < ends[1] }
        }
        return found
    }

    @Test(.needs(access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0, "this kernel has no huge pages"))
    func `large buffers and indexes have huge pages where they are allowed`() throws {
        func buffer(_ bytes: Int, _ usesHugePages: Bool) -> PurgeableBuffer {
            PurgeableBuffer(byteCount: bytes, usesHugePages: usesHugePages, isGuarded: false)
        }
        let buffers = [
            buffer(4 << 20, true), buffer(2 << 20, true), buffer(4 << 20, false), buffer((2 << 20) - 4096, true),
        ]
        let indexes = [HashIndex(allowsHugePages: true), HashIndex(allowsHugePages: false)]
        for index in indexes {
            // Enough pages for a part of 2 MiB.
            for _ in 0..<600 where index.takePage() == nil { Issue.record("no page") }
        }
        let parts = indexes.map { index in index.arenas.first(where: { $0.bytes == 2 << 20 })?.start }
        let flags = try Self.flags(at: buffers.map(\.address) + parts)
        #expect(flags.map { $0.contains("hg") } == [true, true, false, false, true, false], "\(flags)")
        for buffer in buffers[..<2] { #expect(UInt(bitPattern: buffer.address) % (2 << 20) == 0) }
        withExtendedLifetime((buffers, indexes)) {}
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `an encoder that knows the number of bytes allocates less often`() {
        func allocations(_ capacity: Int) -> UInt64 {
            let before = allocation_count()
            var encoder = VolatileEncoder(capacity: capacity), number: UInt64 = 0
            while number < 1000 {
                encoder.append(number)
                number += 1
            }
            return encoder.bytes.count == 8000 ? allocation_count() - before : 0
        }
        // The first calls warm the runtime up.
        _ = (allocations(0), allocations(8000))
        let (unknown, known, wrong) = (allocations(0), allocations(8000), allocations(-1))
        #expect(known > 0 && known < unknown && wrong == unknown, "\(known), \(unknown), \(wrong)")
    }
}
