/// An allocator that can be asked to give free pages back to the kernel.
///
/// `HeapAllocator` is the one there is; tests put another in its place.
protocol GiveBack: Sendable {
    /// Whether asking can bring anything.
    var canGiveBack: Bool { get }
    /// How long a full give-back may keep other threads' allocations waiting.
    var expectedStall: Duration { get }
    /// Gives free pages back. Allocates nothing.
    func giveBack(_ depth: GiveBackDepth)
    /// Has large buffers go back to the kernel as they are freed, from now on, as far as the allocator can. Allocates nothing.
    func keepLess()
    /// The mean size of the holes it keeps; `nil` where that is not known. May take milliseconds.
    func meanHole() -> ByteCount?
}

/// How far a give-back goes.
public enum GiveBackDepth: Sendable, Hashable {
    /// What costs next to nothing: pages that have been free for longer than jemalloc's decay time; with glibc nothing.
    case light
    /// All pages that are free.
    case full
}

/// What an allocator holds, in its own words. All are bytes of the whole process.
public struct HeapSample: Sendable, Hashable {
    /// Handed out, in whole size classes.
    public var allocated: ByteCount
    /// Pages with something handed out on them; what exceeds `allocated` are holes, which no give-back returns.
    public var active: ByteCount
    /// Pages in memory; most of what exceeds `active` can be given back.
    public var resident: ByteCount
    /// Addresses kept without memory behind them.
    public var retained: ByteCount
}
