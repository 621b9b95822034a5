import CPlimsollMemory

/// The allocator behind `malloc` in this process, hence behind every Swift object.
///
/// That one is loaded does not mean that it is used (under a sanitizer it is not), and a program linked statically with jemalloc's archive has two
/// that free each other's memory. So who it is is found out by using it: a small allocation must show in the allocator's own count, and
/// so must one that the C library makes.
public struct HeapAllocator: Sendable, Hashable {
    /// Which one.
    public enum Kind: String, Sendable, Hashable, Codable { case glibc, jemalloc, mimalloc, tcmalloc, unknown }

    /// Whose calls it serves.
    public enum Ownership: String, Sendable, Hashable, Codable {
        /// The whole process.
        case owned
        /// It is loaded, but `malloc` is another's.
        case notOwned
        /// The program's own calls, not those inside the C library: freeing what `strdup` returned crashes.
        case split
    }

    /// Which one it is.
    public let kind: Kind
    /// Whose calls it serves.
    public let ownership: Ownership
    /// Its version, for example `"5.3.0"`, where it tells.
    public let version: String?
    /// The file that defines `malloc`; `nil` in a static executable.
    let file: String?
    /// Whether the environment told it to return freed pages at once (mimalloc).
    let returnsAtOnce: Bool

    init(_ kind: Kind, _ ownership: Ownership, version: String? = nil, file: String? = nil, returnsAtOnce: Bool = false) {
        self.kind = kind
        self.ownership = ownership
        self.version = version
        self.file = file
        self.returnsAtOnce = returnsAtOnce
    }

    /// This process's. The first use probes it, in some 10 us.
    public static let current = HeapAllocator(plimsoll_allocator().pointee)

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
        // jemalloc's own is "5.3.0-0-g54ea...".
        let version = found.version.flatMap { String(cString: $0).split(separator: "-").first.map(String.init) }
        self.init(kind, ownership, version: version, file: found.file.map { String(cString: $0) }, returnsAtOnce: found.returns_at_once)
    }

    /// What it holds; jemalloc only, `nil` elsewhere.
    ///
    /// Takes 9 us with 9 arenas and 12 us more for each further one (measured); allocates nothing. glibc's figures would take a walk
    /// over all holes: 22 ms at 200 000.
    public func sample() -> HeapSample? {
        var sample = plimsoll_heap_sample()
        guard plimsoll_heap_sample(&sample) else { return nil }
        return HeapSample(
            allocated: ByteCount(sample.allocated), active: ByteCount(sample.active), resident: ByteCount(sample.resident),
            retained: ByteCount(sample.retained))
    }
}

extension HeapAllocator: GiveBack {
    /// Whether free pages can be given back on purpose: glibc and jemalloc, where they serve the whole process.
    ///
    /// Not mimalloc, whose `mi_collect` returned 0 to 2 % (measured, 2.0.9); nor tcmalloc, whose release kept others' allocations waiting for 190 to 810 ms
    /// and left 691 MiB of 1580 where glibc's left 253.
    public var canGiveBack: Bool { ownership == .owned && (kind == .glibc || kind == .jemalloc) }

    /// How long a full give-back of about 2 GiB may keep other threads' allocations waiting, as measured on two cores.
    public var expectedStall: Duration {
        switch kind {
        // 449 to 888 ms: it walks each arena under its lock.
        case .glibc: .milliseconds(900)
        // 0.2 to 10 ms; one of eleven took 243.
        case .jemalloc: .milliseconds(10)
        case .mimalloc, .tcmalloc, .unknown: .zero
        }
    }

    /// Gives free pages back, and does nothing where `canGiveBack` is false. Allocates nothing.
    ///
    /// A manager does this after a purge; call it after freeing much on your own. See `expectedStall`.
    public func giveBack(_ depth: GiveBackDepth) { plimsoll_heap_give_back(depth == .full) }

    /// Has large buffers go back to the kernel as they are freed, from now on, where the allocator would keep them (glibc, unless the environment says otherwise).
    ///
    /// Takes microseconds. A buffer of 4 MiB or more then costs its page faults each time: some 60 us a mebibyte, which is what filling it costs as well.
    func keepLess() { _ = plimsoll_heap_keep_less(4 << 20) }

    func meanHole() -> ByteCount? {
        var free = 0, holes = 0
        guard plimsoll_heap_holes(&free, &holes), holes > 0 else { return nil }
        return ByteCount(free / holes)
    }
}
