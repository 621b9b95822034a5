import CAllocationCounter
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Segments whose pages the tests write, and the numbers of segments.
@Suite(.needsLinux) struct SegmentTests {
    private static let generation: UInt64 = 7
    private var page: Int { PageLayout.page }
    private var content: Int { PageLayout.content }

    /// Calls `body` with zeroed pages that have the sentinels of a segment.
    private func withPages(_ count: Int, _ body: (UnsafeMutableRawPointer) -> Void) {
        let base = UnsafeMutableRawPointer.allocate(byteCount: count * page, alignment: page)
        defer { base.deallocate() }
        base.initializeMemory(as: UInt8.self, repeating: 0, count: count * page)
        for number in 0..<count { base.storeBytes(of: Self.generation, toByteOffset: number * page, as: UInt64.self) }
        body(base)
    }

    private func segment(_ base: UnsafeMutableRawPointer, pages: Int, isLarge: Bool = false) -> Segment {
        Segment(
            base: base, capacity: pages * page, generation: Self.generation, isMain: false, isLarge: isLarge, isHuge: false)
    }

    private func write(_ header: ItemHeader, _ base: UnsafeMutableRawPointer, at offset: Int) {
        base.storeBytes(of: header.lengths, toByteOffset: offset, as: UInt64.self)
        base.storeBytes(of: header.hash, toByteOffset: offset + 8, as: UInt64.self)
    }

    /// Leaves that many bytes of freed memory that is not zero, so that an allocation of that size probably gets it.
    private func leaveDirt(_ bytes: Int) {
        let dirt = UnsafeMutablePointer<UInt64>.allocate(capacity: bytes / 8)
        dirt.initialize(repeating: .max, count: bytes / 8)
        dirt.deallocate()
    }

    // MARK: Items

    @Test func `the header of an item holds the largest key and value and most tags`() {
        let rows: [(key: Int, value: Int, tags: Int, expires: Bool)] = [
            (0, 0, 0, false), (1, 1, 1, true), (0xFFFF, 0, 0, false), (0, 0xFFFF_FFFF, 0, false), (0, 0, 255, false),
            (0, 0, 0, true), (0xFFFF, 0xFFFF_FFFF, 255, true),
        ]
        for row in rows {
            let header = ItemHeader(hash: 9, key: row.key, value: row.value, tags: row.tags, expires: row.expires)
            #expect(header.key == row.key && header.value == row.value && header.tags == row.tags && header.hash == 9)
            #expect(header.hasExpiry == row.expires && header.isPresent)
            let prefix = 16 + (row.expires ? 8 : 0) + row.tags * 8 + row.key
            #expect(header.prefix == prefix && header.count == prefix + row.value)
            #expect(header.cost % 8 == 0 && 0..<8 ~= header.cost - header.count)
        }
    }

    @Test func `the bytes of an item are there if all their pages are`() {
        let rows: [(offset: Int, count: Int, missing: Int, isThere: Bool)] = [
            (8, 0, 0, false), (8, 0, 1, true), (8, 1, 0, false), (8, content, 1, true), (8, content + 1, 1, false),
            (8, content + 1, 2, true), (8, 2 * content, 2, true), (8, 2 * content + 1, 2, false), (page + 100, 1, 0, true),
            (page + 100, 1, 1, false), (page - 8, 8, 1, true), (page - 8, 9, 1, false), (page - 8, 9, 0, false),
        ]
        for row in rows {
            withPages(4) { base in
                base.storeBytes(of: 0, toByteOffset: row.missing * page, as: UInt64.self)
                #expect(segment(base, pages: 4, isLarge: true).isThere(row.offset, count: row.count) == row.isThere, "\(row)")
            }
        }
    }

    @Test func `an item without a key may begin in the last two words of a page`() {
        withPages(2) { base in
            var segment = segment(base, pages: 2)
            defer { segment.firsts?.deallocate() }
            write(ItemHeader(hash: 1, key: 0, value: 100, tags: 0, expires: false), base, at: page - 16)
            guard let firsts = segment.firsts else { return #expect(Bool(false), "no table of first items") }
            firsts[0] = UInt16((page - 16) >> 3)
            segment.end = PageLayout.advance(page - 16, 115) + 1
            for start in [0, page - 16] {
                let item = segment.nextItem(from: start)
                #expect(item?.offset == page - 16 && item?.header.value == 100, "from \(start)")
            }
            let hasNext = segment.nextItem(from: segment.end) != nil
            #expect(!hasNext)
        }
    }

    @Test func `the one item of a large segment is found up to the start of that item, and not behind`() {
        withPages(2) { base in
            let segment = segment(base, pages: 2, isLarge: true)
            write(ItemHeader(hash: 1, key: 8, value: 5000, tags: 0, expires: false), base, at: 8)
            for (start, isFound) in [(0, true), (8, true), (9, false), (page, false)] {
                let item = segment.nextItem(from: start)
                #expect((item?.offset == 8) == isFound && (item == nil) == !isFound, "from \(start)")
            }
        }
    }

    @Test(arguments: [0, 1, 2, 8, 9]) func `a copied key has all bytes of the key`(count: Int) {
        withPages(1) { base in
            let segment = segment(base, pages: 1, isLarge: true)
            let header = ItemHeader(hash: 1, key: count, value: 0, tags: 2, expires: true)
            write(header, base, at: 8)
            let key = (0..<count).map { UInt8(0xA0 + $0) }
            for (place, byte) in key.enumerated() {
                base.storeBytes(of: byte, toByteOffset: 8 + header.keyStart + place, as: UInt8.self)
            }
            leaveDirt(32 + count)
            #expect(segment.key(at: 8, header) == key)
        }
    }

    @Test func `a segment of one page seems whole while that page is there`() {
        withPages(2) { base in
            var segment = segment(base, pages: 2, isLarge: true)
            segment.frontier = page
            base.storeBytes(of: 0, toByteOffset: page, as: UInt64.self)
            #expect(segment.seemsWhole)
            base.storeBytes(of: 0, toByteOffset: 0, as: UInt64.self)
            #expect(!segment.seemsWhole)
        }
    }

    @Test func `a new segment knows of no item, in memory that was used before as well`() {
        withPages(1) { base in
            for _ in 0..<8 {
                leaveDirt(1024)
                let segment = segment(base, pages: 512)
                defer { segment.firsts?.deallocate() }
                #expect((0..<512).allSatisfy { segment.firsts?[$0] == 0 })
            }
        }
    }

    // MARK: Numbers

    @Test func `a new number names no segment, in memory that was used before as well`() {
        for _ in 0..<8 {
            leaveDirt(8 << 10)
            let table = SegmentTable()
            leaveDirt(16 << 10)
            guard let number = table.add() else { return #expect(Bool(false), "no number") }
            #expect(table[number].pointee.generation.load(ordering: .relaxed) == 0)
            #expect(table[number].pointee.base.load(ordering: .relaxed) == 0)
        }
    }

    @Test func `there are as many numbers as a slot word can name`() {
        let table = SegmentTable()
        var last = -1
        while let number = table.add() { last = number }
        #expect(last == 0xF_FFFF && table.count == 1 << 20 && table.add() == nil)
        #expect(SlotWord(segment: last, offset: 8, hash: 0).segment == last)
        #expect(table[last].pointee.generation.load(ordering: .relaxed) == 0)
    }

    @Test func `numbers wait until two rounds have ended`() {
        let table = SegmentTable()
        var numbers = SegmentNumbers(), waits = [numbers.hasWaiting]
        guard let number = numbers.take(from: table) else { return #expect(Bool(false), "no number") }
        waits.append(numbers.hasWaiting)
        numbers.giveWhenSwept(number)
        for _ in 0..<3 {
            waits.append(numbers.hasWaiting)
            numbers.roundEnded()
        }
        #expect(waits == [false, false, true, true, false])
        let again = numbers.take(from: table)
        #expect(again == number)
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `giving numbers back allocates nothing, before and after the end of a round`() {
        // The first round warms the runtime up.
        for round in 0..<2 {
            for way in 0..<3 {
                let table = SegmentTable()
                var numbers = SegmentNumbers(), taken = 0
                while taken < 64, numbers.take(from: table) != nil { taken += 1 }
                if way == 2 { numbers.roundEnded() }
                var number = 0
                let before = allocation_count()
                while number < taken {
                    if way == 0 { numbers.give(number) } else { numbers.giveWhenSwept(number) }
                    number += 1
                }
                let allocations = allocation_count() - before
                #expect(taken == 64 && (allocations == 0 || round == 0), "way \(way)")
            }
        }
    }
}
