import CPlimsollMemory

/// Memory of an index or of slots, initially zero, at an address that stays valid until freed.
///
/// Larger pieces have pages of their own. The kernel can get the pages back while the address stays mapped; late
/// readers find zeros there.
// Unchecked: memory that its user guards.
struct CachePiece: @unchecked Sendable {
    let base: UnsafeMutableRawPointer
    let byteCount: Int
    private let isMapped: Bool

    /// Size in bytes from which a piece has pages of its own: smaller pieces would lose too much to rounding.
    static var leastMapped: Int { 32 << 10 }
    /// The same threshold for memory that must stay readable after use: pages can be released to the kernel, and
    /// the heap's memory cannot.
    static var leastMappedForReaders: Int { 8 << 10 }

    /// Allocates a piece, aligned to a cache line.
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
        // In small steps: while the kernel takes pages back, any thread that maps memory or needs more for the heap
        // waits.
        for start in stride(from: 0, to: byteCount, by: Self.step) {
            _ = plimsoll_drop(base + start, min(Self.step, byteCount - start))
        }
        _ = plimsoll_unmap(base, byteCount)
    }

    private static let step = 64 << 10

    /// Releases the whole pages between two offsets to the kernel. The pages are zero afterwards.
    ///
    /// - Returns: the bytes released, resident or not.
    func giveBack(_ start: Int, to end: Int) -> Int {
        let page = plimsoll_page_size()
        let first = (start + page - 1) & ~(page - 1), last = end & ~(page - 1)
        guard isMapped, first < last, plimsoll_drop(base + first, last - first) == 0 else { return 0 }
        return last - first
    }
}
