import CPlimsollMemory

/// Gives the free pages of the C heap back after a purge, when that is worth what it costs.
///
/// `malloc_trim` holds the locks of the arenas it walks: others' `malloc` waits, 0.4 to 0.9 s for 2 GiB of dirty arenas (measured).
/// So it runs once after a pass, never more than a bounded share of the time, and not again over holes smaller than a page.
struct HeapTrimmer: Sendable {
    private let canTrim = plimsoll_heap_can_trim()
    private var lastEnd: Duration?
    private var lastTook = Duration.zero
    private var lastWasUseless = false

    /// Less than this released is not worth a walk over the heap.
    static let leastReleased = ByteCount.mebibytes(1)

    /// Trims if the guards allow it.
    ///
    /// - Parameters:
    ///   - released: what the pass let go of.
    ///   - isCritical: then up to a fifth of the time may go into trimming, otherwise a twentieth.
    ///   - resident: reads this process's resident memory.
    /// - Returns: whether it trimmed.
    mutating func trim(after released: ByteCount, isCritical: Bool, time: Timekeeper, resident: () -> ByteCount) -> Bool {
        guard canTrim, released >= Self.leastReleased else { return false }
        let began = time.elapsed()
        if let lastEnd, began - lastEnd < lastTook * (isCritical ? 4 : 19) { return false }
        if lastWasUseless, holesAreSmall { return false }
        let before = resident()
        _ = plimsoll_heap_trim()
        let end = time.elapsed()
        lastWasUseless = before - resident() < released * 0.1
        lastEnd = end
        lastTook = end - began
        return true
    }

    /// Whether the mean hole is smaller than a page, so that hardly a whole page is free: 16.7 million holes of 64 bytes
    /// took 7 to 20 s to walk and returned nothing (measured).
    private var holesAreSmall: Bool {
        var free = 0, holes = 0
        guard plimsoll_heap_holes(&free, &holes), holes > 0 else { return false }
        return free / holes < 4096
    }
}
