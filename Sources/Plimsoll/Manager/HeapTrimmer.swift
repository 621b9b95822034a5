import CPlimsollMemory

/// Gives the free pages of the C heap back after a purge, when that is worth what it costs.
///
/// `malloc_trim` holds the locks of the arenas it walks: others' `malloc` waits, 0.4 to 0.9 s for 2 GiB of dirty arenas (measured).
/// So it runs once after a pass, `PurgeGovernor` keeps passes apart by what it took, and it is not repeated over holes smaller than a page.
struct HeapTrimmer: Sendable {
    private let canTrim = plimsoll_heap_can_trim()
    private var lastWasUseless = false

    /// Less than this let go of is not worth a walk over the heap, unless it is all there was: then what the heap holds back is the last thing to give.
    static let leastReleased = ByteCount.mebibytes(1)

    /// Trims if the guards allow it.
    ///
    /// - Parameters:
    ///   - released: what the pass let go of.
    ///   - asked: what it was asked for.
    ///   - resident: reads this process's resident memory.
    /// - Returns: the time it took; zero if it did not trim.
    mutating func trim(after released: ByteCount, of asked: ByteCount, time: Timekeeper, resident: () -> ByteCount) -> Duration {
        guard canTrim, released >= Self.leastReleased || released < asked, !(lastWasUseless && holesAreSmall) else { return .zero }
        let before = resident()
        let began = time.elapsed()
        _ = plimsoll_heap_trim()
        let took = time.elapsed() - began
        lastWasUseless = before - resident() < max(released * 0.1, Self.leastReleased)
        return took
    }

    /// Whether the mean hole is smaller than a page, so that hardly a whole page is free: 16.7 million holes of 64 bytes
    /// took 7 to 20 s to walk and returned nothing (measured).
    private var holesAreSmall: Bool {
        var free = 0, holes = 0
        guard plimsoll_heap_holes(&free, &holes), holes > 0 else { return false }
        return free / holes < 4096
    }
}
