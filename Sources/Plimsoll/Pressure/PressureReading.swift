/// The memory state at one instant: numbers only, no judgement.
///
/// A reading is a plain value without storage of its own, so taking, copying and comparing one allocates nothing.
public struct PressureReading: Sendable, Hashable, Codable {
    /// Time of the reading, on the source's clock. Only differences mean anything.
    public var at: Duration
    /// Kind of the tightest limit.
    public var boundary: Boundary
    /// The tightest limit on the path to the root; `nil` where none is known.
    public var limit: ByteCount?
    /// Memory charged at the level of that limit, page cache and neighbours included (`memory.current`,
    /// `memory.usage_in_bytes`).
    public var usage: ByteCount
    /// `usage` less `inactive_file`: the number by which orchestrators evict.
    public var workingSet: ByteCount
    /// Memory that can still be allocated below the limit: clean page cache counts as free, tmpfs does not. `nil`
    /// without a limit.
    public var available: ByteCount?
    /// This process's resident set (`/proc/self/statm`).
    public var resident: ByteCount
    /// Stall totals since the group was made; `nil` where the kernel keeps none. Where the totals of another group take
    /// over, they go on without a jump.
    public var stall: StallTotals?
    /// Event counts since the group was made; `nil` where the kernel keeps none.
    public var events: EventCounts?
    /// Processes that the kernel has killed for memory in the own group alone; `nil` where it does not count them.
    /// `events` counts at the level of the limit, and so includes the kills of neighbours (K25).
    package var ownKills: Int?
    /// Bytes that registered caches hold by their own accounting. Their growth stops at the line by itself and is no
    /// danger.
    public var charged: ByteCount
    /// Bytes that registered volatile purgeables have mapped by their own accounting. Part of `usage`, and of
    /// `available` as far as the kernel may take them.
    public var volatile: ByteCount
    /// Volatile memory of any process that the kernel has taken since the group was made; only ever grows
    /// (`pglazyfreed` in `memory.stat`, in bytes). `nil` where the kernel does not count it, as on version 1.
    public var lazyFreed: ByteCount?
    /// Idle memory at the level of a group's limit that has least of it; `nil` without a limit.
    package var idle: IdleMemory?
    /// Idle memory of the machine as a whole; `nil` if unreadable.
    package var machineIdle: IdleMemory?
    /// Level that a trusted sender (`$MEMORY_PRESSURE_WATCH`) has announced since the last reading; `nil` for none.
    public var announced: PressureLevel?

    /// Creates a reading; omitted values are unknown or zero.
    public init(
        at: Duration, boundary: Boundary = .none, limit: ByteCount? = nil, usage: ByteCount = .zero,
        workingSet: ByteCount? = nil, available: ByteCount? = nil, resident: ByteCount = .zero,
        stall: StallTotals? = nil, events: EventCounts? = nil, charged: ByteCount = .zero, volatile: ByteCount = .zero,
        lazyFreed: ByteCount? = nil, announced: PressureLevel? = nil
    ) {
        self.at = at
        self.boundary = boundary
        self.limit = limit
        self.usage = usage
        self.workingSet = workingSet ?? usage
        self.available = available ?? limit.map { Swift.max(.zero, $0 - usage) }
        self.resident = resident
        self.stall = stall
        self.events = events
        self.charged = charged
        self.volatile = volatile
        self.lazyFreed = lazyFreed
        idle = limit.map {
            .init(total: $0, free: Swift.max(.zero, $0 - usage), file: Swift.max(.zero, usage - (workingSet ?? usage)))
        }
        self.announced = announced
    }

    /// Memory that cannot be reclaimed under the limit: `limit` less `available`.
    public var pinned: ByteCount? {
        guard let limit, let available else { return nil }
        return limit - available
    }

    /// Idle memory at one place.
    package struct IdleMemory: Sendable, Hashable, Codable {
        /// The limit at that place, or the machine's memory.
        package var total: ByteCount
        /// Memory that no process uses: `total` less the used memory, or `MemFree`.
        package var free: ByteCount
        /// Page cache that was not used lately, and volatile pages. Both stand on the list of inactive file pages
        /// (`inactive_file` in `memory.stat`, `Inactive(file)` in `/proc/meminfo`), from which the kernel reclaims
        /// first.
        package var file: ByteCount

        /// Creates idle memory from these numbers of bytes.
        package init(total: ByteCount, free: ByteCount, file: ByteCount = .zero) {
            self.total = total
            self.free = free
            self.file = file
        }

        /// Free and idle together.
        package var sum: ByteCount { free + file }
    }

    /// The kind of the tightest limit.
    public enum Boundary: String, Sendable, Hashable, Codable {
        /// `memory.max`, or version 1's `memory.limit_in_bytes`: crossing it kills.
        case maximum
        /// `memory.high`: crossing it throttles.
        case high
        /// The machine's own memory.
        case machine
        /// No known limit.
        case none
    }

    /// Times during which tasks stalled on memory (`total=` in `memory.pressure`, microseconds in the kernel).
    public struct StallTotals: Sendable, Hashable, Codable {
        /// Time in which at least one task stalled.
        public var some: Duration
        /// Time in which every task that wasn't idle stalled.
        public var full: Duration

        /// Creates totals since the group was made.
        public init(some: Duration, full: Duration = .zero) {
            self.some = some
            self.full = full
        }
    }

    /// Number of times that the group met its limits (`memory.events`; version 1 knows `max` as `memory.failcnt` and
    /// `oomKill`).
    public struct EventCounts: Sendable, Hashable, Codable {
        /// Reclaim passes at `memory.high`.
        public var high: Int
        /// Number of times usage was about to cross `memory.max`. Also counts harmless reclaim of page cache.
        public var max: Int
        /// Number of times the limit was reached and allocation was about to fail.
        public var oom: Int
        /// Processes killed, descendants' included.
        public var oomKill: Int

        /// Creates counts since the group was made.
        public init(high: Int = 0, max: Int = 0, oom: Int = 0, oomKill: Int = 0) {
            self.high = high
            self.max = max
            self.oom = oom
            self.oomKill = oomKill
        }
    }
}

/// Memory of a process and its group at one instant.
public struct Footprint: Sendable, Hashable, Codable {
    /// Resident memory of this process (`/proc/self/statm`).
    public var resident: ByteCount
    /// Usage of the group that has the tightest limit; zero if unknown.
    public var usage: ByteCount

    /// Creates a footprint of both numbers.
    public init(resident: ByteCount = .zero, usage: ByteCount = .zero) {
        self.resident = resident
        self.usage = usage
    }
}
