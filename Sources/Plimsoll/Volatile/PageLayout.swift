import CPlimsollMemory

/// How a stream of bytes lies in pages whose first word is their sentinel.
///
/// The sentinel is the generation of the segment: never zero, never used twice. A page that the kernel took reads as zeros, so bytes
/// were good if the sentinel of each of their pages is the expected one *after* they were copied: pages go from good to lost and not back.
enum PageLayout {
    // Computed: reading them takes part in every look-up, and a lazy constant is a call.
    static var page: Int { plimsoll_page_size() }
    static var mask: Int { page - 1 }
    static let sentinel = 8
    /// Bytes of content in a page.
    static var content: Int { page - sentinel }

    /// Where a stream stands that has gone on for `bytes` from `offset`; never at a sentinel.
    @inline(__always)
    static func advance(_ offset: Int, _ bytes: Int) -> Int {
        let room = page - (offset & mask)
        if bytes < room { return offset + bytes }
        let rest = bytes - room
        return (offset | mask) + 1 + rest / content * page + sentinel + rest % content
    }

    /// Where an item begins whose first `prefix` bytes must lie in one page, if the stream stands at `offset`.
    static func start(_ offset: Int, prefix: Int) -> Int {
        let aligned = (offset + 7) & ~7
        let isAtEnd = aligned & mask == 0
        if isAtEnd { return aligned + sentinel }
        return page - (aligned & mask) >= prefix ? aligned : (aligned | mask) + 1 + sentinel
    }

    /// Has the first lines of a stretch of the stream come that is about to be copied out, on the page behind as well: processors do not look
    /// ahead across the end of a page.
    @inline(__always)
    static func prefetch(_ base: UnsafeMutableRawPointer, _ offset: Int, _ count: Int) {
        let room = page - (offset & mask)
        for line in 0..<(min(count, room, 512) + 63) / 64 { plimsoll_prefetch(base + offset + line * 64) }
        if count > room { for line in 0..<4 { plimsoll_prefetch(base + (offset | mask) + 1 + line * 64) } }
    }

    /// Copies `count` bytes of the stream at `offset` of `base` to `target`, whatever happens to them meanwhile.
    static func copyOut(_ base: UnsafeMutableRawPointer, _ offset: Int, _ count: Int, to target: UnsafeMutableRawPointer) {
        var (offset, left, target) = (offset, count, target)
        while left > 0 {
            let piece = min(left, page - (offset & mask))
            plimsoll_copy_racing(target, base + offset, piece)
            target += piece
            left -= piece
            offset = (offset | mask) + 1 + sentinel
        }
    }

    /// Writes `source` into the stream at `offset` of `base`.
    static func copyIn(_ source: UnsafeRawBufferPointer, _ base: UnsafeMutableRawPointer, _ offset: Int) {
        var (offset, done) = (offset, 0)
        while done < source.count {
            let piece = min(source.count - done, page - (offset & mask))
            plimsoll_copy_racing(base + offset, source.baseAddress! + done, piece)
            done += piece
            offset = (offset | mask) + 1 + sentinel
        }
    }
}

/// The two words before an item: its lengths, and the hash of its key.
struct ItemHeader {
    /// Bytes of both words.
    static let size = 16
    /// More tags than this do not fit.
    static let mostTags = 255

    private static let expires: UInt64 = 1 << 56
    /// Tells an item from the zeros behind the last one of a page.
    private static let present: UInt64 = 1 << 57

    var lengths: UInt64
    var hash: UInt64

    init(hash: UInt64, key: Int, value: Int, tags: Int, expires: Bool) {
        lengths = UInt64(value) | UInt64(key) << 32 | UInt64(tags) << 48 | (expires ? Self.expires : 0) | Self.present
        self.hash = hash
    }

    init(at address: UnsafeRawPointer) {
        lengths = address.load(as: UInt64.self)
        hash = address.load(fromByteOffset: 8, as: UInt64.self)
    }

    var value: Int { Int(truncatingIfNeeded: lengths & 0xFFFF_FFFF) }
    var key: Int { Int(truncatingIfNeeded: lengths >> 32 & 0xFFFF) }
    var tags: Int { Int(truncatingIfNeeded: lengths >> 48 & 0xFF) }
    var hasExpiry: Bool { lengths & Self.expires != 0 }
    var isPresent: Bool { lengths & Self.present != 0 }

    /// Offsets from the item's beginning.
    var tagsStart: Int { Self.size + (hasExpiry ? 8 : 0) }
    var keyStart: Int { tagsStart + tags * 8 }
    /// Bytes before the value; all in one page.
    var prefix: Int { keyStart + key }
    /// All bytes of the item.
    var count: Int { prefix + value }
    /// What it takes up of a segment, sentinels apart.
    var cost: Int { (count + 7) & ~7 }
    /// Bytes of the pages that it takes if it has them to itself.
    var pagesBytes: Int { (PageLayout.advance(PageLayout.sentinel, count - 1) | PageLayout.mask) + 1 }
}
