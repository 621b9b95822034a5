import CPlimsollMemory

/// The allocator behind `malloc` in this process, hence behind every Swift object.
///
/// A loaded allocator is not always in use (under a sanitizer it is not). A program linked statically with
/// jemalloc's archive has two allocators that free each other's memory. Detection therefore uses the allocator: a
/// small allocation must show in the allocator's own count, and so must one made by the C library.
package struct HeapAllocator: Sendable, Hashable {
    /// Known allocators.
    package enum Kind: String, Sendable, Hashable, Codable { case glibc, jemalloc, mimalloc, tcmalloc, unknown }

    /// The calls that the allocator serves.
    package enum Ownership: String, Sendable, Hashable, Codable {
        /// All calls of the process.
        case owned
        /// None: the allocator is loaded, but `malloc` belongs to another.
        case notOwned
        /// The program's own calls, not those inside the C library: freeing the result of `strdup` crashes.
        case split
    }

    /// The detected allocator.
    package let kind: Kind
    /// The calls that the allocator serves.
    package let ownership: Ownership
    /// Version, for example `"5.3.0"`, if the allocator reports one.
    package let version: String?
    /// The file that defines `malloc`; `nil` in a static executable.
    let file: String?
    /// True if the environment told the allocator to return freed pages at once (mimalloc).
    let returnsAtOnce: Bool

    init(_ kind: Kind, _ ownership: Ownership, version: String? = nil, file: String? = nil, returnsAtOnce: Bool = false)
    {
        self.kind = kind
        self.ownership = ownership
        self.version = version
        self.file = file
        self.returnsAtOnce = returnsAtOnce
    }

    /// The allocator of this process. The first use probes the allocator, in some 10 us.
    package static let current = HeapAllocator(plimsoll_allocator().pointee)

    private init(_ found: plimsoll_allocator) {
        let kind: Kind =
            switch found.kind {
            case PLIMSOLL_ALLOCATOR_GLIBC: .glibc
            case PLIMSOLL_ALLOCATOR_JEMALLOC: .jemalloc
            case PLIMSOLL_ALLOCATOR_MIMALLOC: .mimalloc
            case PLIMSOLL_ALLOCATOR_TCMALLOC: .tcmalloc
            default: .unknown
            }
        let ownership: Ownership =
            switch found.ownership {
            case PLIMSOLL_OWNED: .owned
            case PLIMSOLL_SPLIT: .split
            default: .notOwned
            }
        // jemalloc's own version string is "5.3.0-0-g54ea...".
        let version = found.version.flatMap { String(cString: $0).split(separator: "-").first.map(String.init) }
        self.init(
            kind, ownership, version: version, file: found.file.map { String(cString: $0) },
            returnsAtOnce: found.returns_at_once)
    }

    /// Returns the allocator's own figures; jemalloc only, `nil` elsewhere.
    ///
    /// Takes 9 us with 9 arenas and 12 us more for each further one (measured). Allocates nothing. glibc's figures
    /// would take a walk over all holes: 22 ms at 200 000.
    package func sample() -> HeapSample? {
        var sample = plimsoll_heap_sample()
        guard plimsoll_heap_sample(&sample) else { return nil }
        return HeapSample(
            allocated: sample.allocated, active: sample.active, resident: sample.resident, retained: sample.retained)
    }
}

extension HeapAllocator: GiveBack {
    /// True if free pages can be given back on request: glibc and jemalloc, where they serve the whole process.
    ///
    /// Not mimalloc, whose `mi_collect` returned 0 to 2 % (measured, 2.0.9). Not tcmalloc, whose release blocked
    /// other threads' allocations for 190 to 810 ms and left 691 MiB of 1580 where glibc's left 253.
    package var canGiveBack: Bool { ownership == .owned && (kind == .glibc || kind == .jemalloc) }

    /// The time for which a full give-back of about 2 GiB may block other threads' allocations, as measured on two
    /// cores.
    package var expectedStall: Duration {
        switch kind {
        // 449 to 888 ms: glibc walks each arena under the arena's lock.
        case .glibc: .milliseconds(900)
        // 0.2 to 10 ms; one of eleven took 243.
        case .jemalloc: .milliseconds(10)
        case .mimalloc, .tcmalloc, .unknown: .zero
        }
    }

    /// Releases free pages to the kernel. Does nothing if `canGiveBack` is false. Allocates nothing.
    ///
    /// A manager does this after a purge. See `expectedStall`.
    package func giveBack(_ depth: GiveBackDepth) { plimsoll_heap_give_back(depth == .full) }

    /// Makes freed large buffers go back to the kernel at once, from now on, where the allocator would keep them
    /// (glibc, unless the environment says otherwise).
    ///
    /// Takes microseconds. Each use of a buffer of 4 MiB or more then costs its page faults: some 60 us a mebibyte,
    /// about the cost of filling the buffer.
    func keepLess() { _ = plimsoll_heap_keep_less(4 << 20) }

    func meanHole() -> ByteCount? {
        var free = 0, holes = 0
        guard plimsoll_heap_holes(&free, &holes), holes > 0 else { return nil }
        return ByteCount(free / holes)
    }
}

extension HeapAllocator {
    /// The signal `"allocator"` of a manager's capabilities: tells what can be given back, and the remedy if
    /// nothing can.
    package var signal: Capabilities.Signal {
        func signal(_ isLive: Bool, _ detail: String, remedy: String? = nil) -> Capabilities.Signal {
            .init("allocator", isLive: isLive, detail, remedy: remedy)
        }
        let home = file.map { "; the symbol is in \($0)" } ?? ""
        switch (kind, ownership) {
        case (_, .split):
            return signal(
                false,
                "split heap: malloc is \(kind), libc's own is glibc; the process crashes when it frees memory that strdup or getline allocated",
                remedy: "link libjemalloc.so instead of libjemalloc.a")
        case (.unknown, _):
            return signal(false, "malloc is not the C library's\(home)")
        case (_, .notOwned):
            return signal(false, "\(title) is loaded but does not own malloc\(home)")
        case (.mimalloc, .owned):
            return returnsAtOnce
                ? signal(true, "\(title) owns malloc and is set to return freed pages at once")
                : signal(
                    false, "\(title) owns malloc, keeps freed pages, and returns almost none on request",
                    remedy:
                        "start the process with MIMALLOC_PURGE_DELAY=0 (MIMALLOC_DECOMMIT_DELAY=0 before version 2.1)")
        case (.tcmalloc, .owned):
            return signal(
                false,
                "\(title) owns malloc; a release would stop other threads' allocations, so none is requested")
        case (.glibc, .owned), (.jemalloc, .owned):
            return signal(true, "\(title) owns malloc")
        }
    }

    private var title: String { version.map { "\(kind) \($0)" } ?? "\(kind)" }
}

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
package enum GiveBackDepth: Sendable, Hashable {
    /// Pages that cost next to nothing to return: with jemalloc, those free for longer than its decay time; with
    /// glibc, none.
    case light
    /// All free pages.
    case full
}

/// The allocator's own figures of its memory, in bytes for the whole process.
public struct HeapSample: Sendable, Hashable {
    /// Bytes handed out, in whole size classes.
    public var allocated: Int
    /// Bytes in pages with an allocation on them. The part above `allocated` is holes, which no give-back returns.
    public var active: Int
    /// Bytes in pages in memory. Most of the part above `active` can be given back.
    public var resident: Int
    /// Bytes of address space kept without memory behind them.
    public var retained: Int
}
