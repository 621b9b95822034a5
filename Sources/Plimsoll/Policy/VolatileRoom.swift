/// How much holders of volatile memory may take, and when they give back on purpose: they use what would otherwise be idle, and keep a margin of it
/// free, so that an ordinary allocation seldom has to reclaim in its own page fault.
///
/// The kernel would take their pages anyway before anything worse happens. The margin is for speed, not for survival, so nothing here is urgent.
package struct VolatileRoom: Sendable {
    private var group = RecentLeast(span: Self.memory)
    private var machine = RecentLeast(span: Self.memory)

    /// What comes and goes within this time is not room.
    static let memory = Duration.seconds(5)

    /// What follows from one reading.
    struct Verdict: Equatable, Sendable {
        /// Bytes that may be taken until the next look.
        var allowance = ByteCount.max
        /// Bytes to give back now; zero if there is no need.
        var excess = ByteCount.zero
        /// What is kept free.
        var margin = ByteCount.zero
        /// Whether so little is free that the kernel may be taking pages by itself.
        var isTight = false
    }

    /// Room for less than two segments of 2 MiB is none: half of it would wake the manager for a single segment. Nor is less asked back.
    static let leastStep = ByteCount.mebibytes(4)

    // MARK: The margin

    // Chosen, not measured: 16 MiB is what one thread's page faults take in 5 to 10 ms at the 1.5 to 2.9 GB/s that were measured, and a second's
    // looks apart a service that allocates and frees 50 MB/s swings by less. Small groups can't spare that, large ones have more threads.
    static let share = 0.03
    static let least = ByteCount.mebibytes(16)
    static let most = ByteCount.mebibytes(512)
    static let greatestShare = 0.125
    /// Of the machine more is left, as neighbours live there, and their bursts aren't seen coming: a gibibyte is 100 ms of the fastest filling (10 GB/s).
    static let machineShare = 0.10
    static let mostOfMachine = ByteCount.gibibytes(1)
    /// What others' growth takes until the next looks have answered it, in seconds.
    static let growthSeconds = 0.5

    /// What is kept free of a limit of `total` bytes.
    ///
    /// - Parameter growth: of what cannot be reclaimed, in bytes a second.
    package static func margin(below total: ByteCount, growth: ByteCount = .zero) -> ByteCount {
        let bound = total * greatestShare
        return max(min(max(total * share, least), most), growth * growthSeconds).clamped(atMost: bound)
    }

    static func margin(ofMachine total: ByteCount, growth: ByteCount = .zero) -> ByteCount {
        max(margin(below: total, growth: growth), min(total * machineShare, mostOfMachine))
    }

    // MARK: Judging

    /// What `reading` means for volatile holders. `growth` is that of what cannot be reclaimed, in bytes a second.
    mutating func judge(_ reading: PressureReading, growth: ByteCount) -> Verdict {
        var verdict = Verdict()
        if let idle = reading.idle {
            let margin = Self.margin(below: idle.total, growth: growth)
            verdict.take(idle, margin: margin, held: reading.volatile, unheld: group.add(idle.free + reading.volatile, at: reading.at))
        }
        if let idle = reading.machineIdle {
            let margin = Self.margin(ofMachine: idle.total, growth: growth)
            verdict.take(idle, margin: margin, held: reading.volatile, unheld: machine.add(idle.free + reading.volatile, at: reading.at))
        }
        return verdict
    }
}

extension VolatileRoom.Verdict {
    /// Takes one place into account.
    ///
    /// - Parameters:
    ///   - held: bytes that volatile holders have mapped.
    ///   - unheld: what would be free if they held nothing, the least of late: what comes and goes every second is not room.
    fileprivate mutating func take(_ idle: PressureReading.IdleMemory, margin: ByteCount, held: ByteCount, unheld: ByteCount) {
        // Volatile pages are on this list as well; what of `held` is not on it makes the cache look smaller, which errs on the safe side.
        let cache = max(.zero, idle.file - held)
        // Page cache that fills a group is idle as well, but the kernel's readers need some of it: two margins are left to them. One is counted as
        // free, or holders would shrink for ever before a reader of files that takes all they leave; between lies a band in which nothing moves.
        let room = max(.zero, unheld - held - margin) + max(.zero, cache - margin * 2)
        allowance = min(allowance, room < VolatileRoom.leastStep ? .zero : room)
        let free = idle.free + max(.zero, cache - margin)
        if free < margin * 0.5 {
            excess = max(excess, min(held, max(margin - free, VolatileRoom.leastStep)))
        }
        if idle.free < margin * 0.5 { isTight = true }
        self.margin = max(self.margin, margin)
    }
}

extension ByteCount {
    fileprivate func clamped(atMost bound: ByteCount) -> ByteCount { min(self, bound) }
}
