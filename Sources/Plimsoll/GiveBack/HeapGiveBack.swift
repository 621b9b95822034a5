/// Gives the free pages of the heap back after a purge, when that is worth what it costs.
///
/// glibc holds the locks of the arenas it walks, and others' `malloc` waits meanwhile. So it is asked once after a pass, `PurgeGovernor` keeps passes apart by
/// what it took, and it is not asked again over holes smaller than a page. jemalloc lets others go on, and is asked after every pass.
struct HeapGiveBack: Sendable {
    private let allocator: any GiveBack
    private var lastWasUseless = false

    /// Less than this let go of is not worth a walk over the heap, unless it is all there was: then what the heap holds back is the last thing to give.
    static let leastReleased = ByteCount.mebibytes(1)
    /// A give-back that may keep others waiting for longer than this is guarded: about what a purge takes anyway.
    static let tolerableStall = Duration.milliseconds(20)
    /// In holes that are smaller on average hardly a whole page is free: 16.7 million of 64 bytes took 7 to 20 s to walk and
    /// returned nothing (measured).
    static let leastHole = ByteCount(4096)

    init(_ allocator: any GiveBack = HeapAllocator.current) { self.allocator = allocator }

    /// Gives back if the guards allow it. Allocates nothing.
    ///
    /// - Parameters:
    ///   - released: what the pass let go of.
    ///   - asked: what it was asked for.
    ///   - resident: reads this process's resident memory.
    /// - Returns: the time for which other threads' allocations may have waited; zero if they did not have to.
    mutating func giveBack(after released: ByteCount, of asked: ByteCount, time: Timekeeper, resident: () -> ByteCount) -> Duration {
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
