/// An allocator that can release free pages to the kernel on request.
///
/// `HeapAllocator` is the only real one; tests use a substitute.
protocol GiveBack: Sendable {
    /// True if a request can have an effect.
    var canGiveBack: Bool { get }
    /// The time for which a full give-back may block other threads' allocations.
    var expectedStall: Duration { get }
    /// Releases free pages to the kernel. Allocates nothing.
    func giveBack(_ depth: GiveBackDepth)
    /// Makes freed large buffers go back to the kernel at once, from now on, as far as the allocator can. Allocates
    /// nothing.
    func keepLess()
    /// Returns the mean size of the heap's holes; `nil` if unknown. May take milliseconds.
    func meanHole() -> ByteCount?
}

/// Extent of a give-back.
public enum GiveBackDepth: Sendable, Hashable {
    /// Pages that cost next to nothing to return: with jemalloc, those free for longer than its decay time; with
    /// glibc, none.
    case light
    /// All free pages.
    case full
}

/// The allocator's own figures of its memory, in bytes for the whole process.
public struct HeapSample: Sendable, Hashable {
    /// Bytes handed out, in whole size classes.
    public var allocated: ByteCount
    /// Bytes in pages with an allocation on them. The part above `allocated` is holes, which no give-back returns.
    public var active: ByteCount
    /// Bytes in pages in memory. Most of the part above `active` can be given back.
    public var resident: ByteCount
    /// Bytes of address space kept without memory behind them.
    public var retained: ByteCount
}
