/// The place of an item and the number of its recent uses, in one word, so that a reader sees both or neither.
struct SlotWord: Equatable {
    var bits: UInt64

    static let mostUses: UInt64 = 3
    static let use: UInt64 = 1 << 62
    private static let placeMask: UInt64 = Self.use - 1

    init(bits: UInt64) { self.bits = bits }

    /// - Parameters:
    ///   - offset: a multiple of 8 below 2 MiB, never zero.
    ///   - uses: in `0...3`.
    init(segment: Int, offset: Int, hash: UInt64, uses: UInt64 = 0) {
        bits = UInt64(offset) >> 3 | UInt64(segment) << 18 | Self.tag(of: hash) << 38 | uses << 62
    }

    var isEmpty: Bool { bits == 0 }
    var offset: Int { Int(truncatingIfNeeded: bits & 0x3_FFFF) << 3 }
    var segment: Int { Int(truncatingIfNeeded: bits >> 18 & 0xF_FFFF) }
    var tag: UInt64 { bits >> 38 & 0xFF_FFFF }
    var uses: UInt64 { bits >> 62 }
    /// The place alone, without the uses, which readers change.
    var place: UInt64 { bits & Self.placeMask }

    /// Returns 24 bits of the hash that choose neither the page nor the bucket.
    static func tag(of hash: UInt64) -> UInt64 { hash >> 12 & 0xFF_FFFF }
}
