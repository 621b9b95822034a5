import TestSupport
import Testing

@testable import Plimsoll

/// The places of items in pages whose first words are sentinels, and of hashes in the index.
@Suite(.needsLinux) struct PageLayoutTests {
    private var page: Int { PageLayout.page }

    @Test func `the content of an item continues behind the next sentinel`() {
        for offset in [8, 9, page - 1, page + 8, 3 * page + 100] {
            var position = offset
            for bytes in 0..<3 * page {
                if PageLayout.advance(offset, bytes) != position { Issue.record("\(bytes) bytes after \(offset)") }
                position += 1
                if position % page == 0 { position += PageLayout.sentinel }
            }
        }
    }

    @Test func `an item begins at the next word, or on the next page if its prefix has no room`() {
        for prefix in [16, 24, 100] {
            let last = page - (prefix + 7) / 8 * 8
            #expect(PageLayout.start(last - 7, prefix: prefix) == last, "prefix of \(prefix)")
            #expect(PageLayout.start(last, prefix: prefix) == last, "prefix of \(prefix)")
            #expect(PageLayout.start(last + 1, prefix: prefix) == page + 8, "prefix of \(prefix)")
        }
        #expect(PageLayout.start(page - 8, prefix: 8) == page - 8 && PageLayout.start(page - 8, prefix: 9) == page + 8)
        #expect(PageLayout.start(page - 7, prefix: 16) == page + 8 && PageLayout.start(page, prefix: 16) == page + 8)
    }

    @Test func `a large item takes the pages that its bytes and the sentinels fill`() {
        func pages(_ count: Int) -> Int {
            ItemHeader(hash: 1, key: 8, value: count - ItemHeader.size - 8, tags: 0, expires: false).pagesBytes / page
        }
        for whole in 1...4 {
            #expect(pages(whole * PageLayout.content) == whole && pages(whole * PageLayout.content + 1) == whole + 1)
        }
    }

    @Test func `copied bytes come back unchanged, and sentinels stay`() {
        let base = UnsafeMutableRawPointer.allocate(byteCount: 4 * page, alignment: page)
        defer { base.deallocate() }
        let offsets = [8, 1000, page - 8, page + 8], counts = [1, 8, page - 8, page, 2 * page]
        for (offset, count) in offsets.flatMap({ offset in counts.map { (offset, $0) } }) {
            base.initializeMemory(as: UInt8.self, repeating: 0xEE, count: 4 * page)
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 % 211) }
            bytes.withUnsafeBytes { PageLayout.copyIn($0, base, offset) }
            var out = [UInt8](repeating: 0, count: count)
            out.withUnsafeMutableBytes { PageLayout.copyOut(base, offset, count, to: $0.baseAddress!) }
            #expect(out == bytes, "\(count) bytes at \(offset)")
            let sentinels = (0..<4).flatMap { number in (0..<8).map { base.load(fromByteOffset: number * page + $0, as: UInt8.self) } }
            #expect(sentinels.allSatisfy { $0 == 0xEE }, "\(count) bytes at \(offset)")
        }
    }

    @Test func `a segment seems whole until one of its four witness pages is gone`() {
        let base = UnsafeMutableRawPointer.allocate(byteCount: 16 * page, alignment: page)
        defer { base.deallocate() }
        var segment = Segment(base: base, capacity: 16 * page, generation: 7, isMain: false, isLarge: true, isHuge: false)
        #expect(segment.seemsWhole, "nothing is written yet")
        segment.frontier = 13 * page
        for number in 0..<16 { (base + number * page).storeBytes(of: 7, as: UInt64.self) }
        #expect(segment.seemsWhole)
        for witness in 0..<13 {
            (base + witness * page).storeBytes(of: 0, as: UInt64.self)
            #expect(segment.seemsWhole == ![0, 4, 8, 12].contains(witness), "page \(witness)")
            (base + witness * page).storeBytes(of: 7, as: UInt64.self)
        }
    }

    @Test func `a hash has two buckets, and every bucket is the second bucket of some hash`() {
        let pairs = (UInt64(0)..<4096).map { (HashIndex.bucket($0), HashIndex.otherBucket($0)) }
        #expect(pairs.allSatisfy { $0 != $1 })
        #expect(Set(pairs.map(\.0)).count == 64 && Set(pairs.map(\.1)) == Set(pairs.map(\.0)))
        #expect(Set(pairs.filter { $0.0 == 0 }.map(\.1)).count == 63)
    }
}
