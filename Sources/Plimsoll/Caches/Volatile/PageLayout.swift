import CPlimsollMemory

/// Layout of a stream of bytes in pages whose first word is their sentinel.
///
/// The sentinel is the generation of the segment: never zero, never used twice. A page that the kernel took reads as
/// zeros, and a lost page never becomes good again. So bytes were good if the sentinel of each of their pages is the
/// expected one *after* the copy.
enum PageLayout {
    // Computed properties: every look-up reads them, and a lazy constant is a call.
    static var page: Int { plimsoll_page_size() }
    static var mask: Int { page - 1 }
    static let sentinel = 8
    static var content: Int { page - sentinel }

    /// Returns the position `bytes` of content after `offset`; never at a sentinel.
    @inline(__always)
    static func advance(_ offset: Int, _ bytes: Int) -> Int {
        let room = page - (offset & mask)
        if bytes < room { return offset + bytes }
        let rest = bytes - room
        return (offset | mask) + 1 + rest / content * page + sentinel + rest % content
    }

    /// Returns the start of an item whose first `prefix` bytes must lie in one page, for a stream at `offset`.
    static func start(_ offset: Int, prefix: Int) -> Int {
        let aligned = (offset + 7) & ~7
        let isAtEnd = aligned & mask == 0
        if isAtEnd { return aligned + sentinel }
        return page - (aligned & mask) >= prefix ? aligned : (aligned | mask) + 1 + sentinel
    }

    /// Prefetches the first cache lines of a range that is about to be copied out, on the next page as well. Processors
    /// do not prefetch across the end of a page.
    @inline(__always)
    static func prefetch(_ base: UnsafeMutableRawPointer, _ offset: Int, _ count: Int) {
        let room = page - (offset & mask)
        for line in 0..<(min(count, room, 512) + 63) / 64 { plimsoll_prefetch(base + offset + line * 64) }
        if count > room { for line in 0..<4 { plimsoll_prefetch(base + (offset | mask) + 1 + line * 64) } }
    }

    /// Copies `count` bytes of the stream at `offset` of `base` to `target`. The bytes may change during the copy.
    static func copyOut(
        _ base: UnsafeMutableRawPointer, _ offset: Int, _ count: Int, to target: UnsafeMutableRawPointer
    ) {
        var (offset, left, target) = (offset, count, target)
        while left > 0 {
            let length = min(left, page - (offset & mask))
            plimsoll_copy_racing(target, base + offset, length)
            target += length
            left -= length
            offset = (offset | mask) + 1 + sentinel
        }
    }

    /// Writes `source` into the stream at `offset` of `base`.
    static func copyIn(_ source: UnsafeRawBufferPointer, _ base: UnsafeMutableRawPointer, _ offset: Int) {
        var (offset, done) = (offset, 0)
        while done < source.count {
            let length = min(source.count - done, page - (offset & mask))
            plimsoll_copy_racing(base + offset, source.baseAddress! + done, length)
            done += length
            offset = (offset | mask) + 1 + sentinel
        }
    }
}

/// The two words before an item: lengths and key hash.
struct ItemHeader {
    /// Bytes of both words.
    static let size = 16
    /// Maximum number of tags of an item.
    static let mostTags = 255

    private static let expires: UInt64 = 1 << 56
    /// Distinguishes an item from the zeros behind the last item of a page.
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

    /// Offset from the beginning of the item, like `keyStart`.
    var tagsStart: Int { Self.size + (hasExpiry ? 8 : 0) }
    var keyStart: Int { tagsStart + tags * 8 }
    /// Bytes before the value; all in one page.
    var prefix: Int { keyStart + key }
    /// All bytes of the item.
    var count: Int { prefix + value }
    /// Bytes that the item takes in a segment, without sentinels.
    var cost: Int { (count + 7) & ~7 }
    /// Bytes of the pages that the item takes if no other item shares them.
    var pagesBytes: Int { (PageLayout.advance(PageLayout.sentinel, count - 1) | PageLayout.mask) + 1 }
}
