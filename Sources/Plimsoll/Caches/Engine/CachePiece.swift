import CPlimsollMemory

/// Memory of an index or of slots, zero at first, at an address that stays good until it is freed.
///
/// Larger ones are pages of their own, which the kernel gets back without the address being given up: whoever still reads there finds zeros.
// Unchecked: memory that somebody else guards.
struct CachePiece: @unchecked Sendable {
    let base: UnsafeMutableRawPointer
    let byteCount: Int
    private let isMapped: Bool

    /// From so many bytes on pages of their own: smaller ones would lose too much to rounding.
    static var leastMapped: Int { 32 << 10 }
    /// The same for what has to stay readable when it is of no use any more: then pages can be given back, and the heap's memory can't.
    static var leastMappedForReaders: Int { 8 << 10 }

    /// Aligned to a cache line.
    init(_ count: Int, leastMapped: Int = leastMapped) {
        if count >= leastMapped {
            let page = plimsoll_page_size()
            let rounded = (count + page - 1) & ~(page - 1)
            var address: UnsafeMutableRawPointer?
            if plimsoll_map(rounded, page, &address) == 0, let address, plimsoll_permit(address, rounded) == 0 {
                (base, byteCount, isMapped) = (address, rounded, true)
                return
            }
        }
        (byteCount, isMapped) = (count, false)
        base = .allocate(byteCount: count, alignment: 64)
        base.initializeMemory(as: UInt8.self, repeating: 0, count: count)
    }

    func free() {
        guard isMapped else { return base.deallocate() }
        // A little at a time: for as long as the kernel takes pages back, whoever maps memory or needs more of it for the heap waits.
        for start in stride(from: 0, to: byteCount, by: Self.step) { _ = plimsoll_drop(base + start, min(Self.step, byteCount - start)) }
        _ = plimsoll_unmap(base, byteCount)
    }

    private static let step = 64 << 10

    /// Gives the kernel the whole pages between two offsets, which are zero afterwards.
    ///
    /// - Returns: bytes given back, whether or not they were resident.
    func giveBack(_ start: Int, to end: Int) -> Int {
        let page = plimsoll_page_size()
        let first = (start + page - 1) & ~(page - 1), last = end & ~(page - 1)
        guard isMapped, first < last, plimsoll_drop(base + first, last - first) == 0 else { return 0 }
        return last - first
    }
}
