/// Releases the heap's free pages to the kernel after a purge, if the benefit exceeds the cost.
///
/// glibc holds the locks of the arenas that it walks, which blocks other threads' `malloc`. Therefore a pass
/// requests only one give-back from glibc, and `PurgeGovernor` spaces passes by the time taken. There is no further
/// request over holes smaller than a page. jemalloc does not block other threads, and is asked after every pass.
struct HeapGiveBack: Sendable {
    private let allocator: any GiveBack
    private var lastWasUseless = false

    /// Least release that justifies a walk over the heap. A pass that released less than asked is exempt: then the
    /// heap's free pages are the last memory to give.
    static let leastReleased = ByteCount.mebibytes(1)
    /// Longest stall without guards: about the time of a purge.
    static let tolerableStall = Duration.milliseconds(20)
    /// Least mean size of holes that justifies a walk. Smaller holes hardly contain a free whole page: 16.7 million
    /// of 64 bytes took 7 to 20 s to walk and returned nothing (measured).
    static let leastHole = ByteCount(4096)

    init(_ allocator: any GiveBack = HeapAllocator.current) { self.allocator = allocator }

    /// Gives back if the guards allow that. Allocates nothing.
    ///
    /// - Parameters:
    ///   - released: the bytes that the pass released.
    ///   - asked: the bytes that the pass was asked for.
    ///   - resident: a closure that reads this process's resident memory.
    /// - Returns: the time for which other threads' allocations may have been blocked; zero if they were not.
    mutating func giveBack(after released: ByteCount, of asked: ByteCount, time: Timekeeper, resident: () -> ByteCount)
        -> Duration
    {
        guard allocator.canGiveBack else { return .zero }
        guard released >= Self.leastReleased || released < asked else {
            allocator.giveBack(.light)
            return .zero
        }
        guard allocator.expectedStall > Self.tolerableStall else {
            allocator.giveBack(.full)
            return .zero
        }
        if lastWasUseless, let hole = allocator.meanHole(), hole < Self.leastHole { return .zero }
        let before = resident()
        let began = time.elapsed()
        allocator.giveBack(.full)
        let took = time.elapsed() - began
        lastWasUseless = before - resident() < max(released * 0.1, Self.leastReleased)
        return took
    }
}
