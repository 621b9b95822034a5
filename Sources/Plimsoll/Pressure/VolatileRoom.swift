/// Decides how much memory volatile purgeables may take, and when they release on purpose. They use memory that would
/// otherwise be idle, but keep a margin free, so that an ordinary allocation seldom has to reclaim in its own page
/// fault.
///
/// The kernel would take their pages anyway before anything worse happens. The margin is for speed, not for survival,
/// so nothing here is urgent.
package struct VolatileRoom: Sendable {
    private var group = RecentLeast(span: Self.memory)
    private var machine = RecentLeast(span: Self.memory)

    /// Time window: memory that is free only within a shorter time is not room.
    static let memory = Duration.seconds(5)

    /// The result of one reading.
    struct Verdict: Equatable, Sendable {
        /// Bytes that may be taken until the next reading.
        var allowance = ByteCount.max
        /// Bytes to release now; zero if there is no need.
        var excess = ByteCount.zero
        /// Bytes kept free.
        var margin = ByteCount.zero
        /// True if so little is free that the kernel may be reclaiming by itself.
        var isTight = false
    }

    /// Minimum step. Less room than two segments of 2 MiB counts as none: half of that would wake the manager for a
    /// single segment. A request to release is no smaller either.
    static let leastStep = ByteCount.mebibytes(4)

    // MARK: The margin

    // Chosen, not measured. 16 MiB is what one thread's page faults take in 5 to 10 ms at the 1.5 to 2.9 GB/s that were
    // measured. With readings a second apart, a service that allocates and frees 50 MB/s swings by less. Small groups
    // can't spare that, large ones have more threads.
    static let share = 0.03
    static let least = ByteCount.mebibytes(16)
    static let most = ByteCount.mebibytes(512)
    static let greatestShare = 0.125
    /// The machine's margin is larger, because neighbours live there and their bursts can't be foreseen. A gibibyte is
    /// 100 ms of the fastest filling (10 GB/s).
    static let machineShare = 0.10
    static let mostOfMachine = ByteCount.gibibytes(1)
    /// Seconds of other processes' growth that the margin covers until the next readings have responded.
    static let growthSeconds = 0.5

    /// Returns the margin kept free of a limit of `total` bytes.
    ///
    /// - Parameter growth: growth of unreclaimable memory, in bytes a second.
    package static func margin(below total: ByteCount, growth: ByteCount = .zero) -> ByteCount {
        let bound = total * greatestShare
        return min(max(min(max(total * share, least), most), growth * growthSeconds), bound)
    }

    static func margin(ofMachine total: ByteCount, growth: ByteCount = .zero) -> ByteCount {
        max(margin(below: total, growth: growth), min(total * machineShare, mostOfMachine))
    }

    // MARK: Judging

    /// Returns the verdict on `reading` for volatile purgeables. `growth` is that of unreclaimable memory, in bytes a
    /// second.
    mutating func judge(_ reading: PressureReading, growth: ByteCount) -> Verdict {
        var verdict = Verdict()
        if let idle = reading.idle {
            let margin = Self.margin(below: idle.total, growth: growth)
            verdict.take(
                idle, margin: margin, held: reading.volatile,
                unheld: group.add(idle.free + reading.volatile, at: reading.at))
        }
        if let idle = reading.machineIdle {
            let margin = Self.margin(ofMachine: idle.total, growth: growth)
            verdict.take(
                idle, margin: margin, held: reading.volatile,
                unheld: machine.add(idle.free + reading.volatile, at: reading.at))
        }
        return verdict
    }
}

extension VolatileRoom.Verdict {
    /// Takes one limit, or the machine, into account.
    ///
    /// - Parameters:
    ///   - held: bytes that volatile purgeables have mapped.
    ///   - unheld: recent minimum of the memory that would be free without volatile purgeables: memory that comes and
    ///     goes every second is not room.
    fileprivate mutating func take(
        _ idle: PressureReading.IdleMemory, margin: ByteCount, held: ByteCount, unheld: ByteCount
    ) {
        // Volatile pages are on this list as well. If part of `held` is not on the list, the cache looks smaller, which
        // errs on the safe side.
        let cache = max(.zero, idle.file - held)
        // Page cache that fills a group is idle as well, but readers of files need a part: leave them two margins.
        // Count one of these margins as free. Otherwise volatile purgeables would shrink for ever before a reader of
        // files that takes all they leave. Between the two lies a band of hysteresis.
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

/// Decides when to check if the kernel has taken volatile pages. A reader of such a page finds out by itself. The check
/// updates the accounting, so that the pages taken count as room again and are reported.
struct DropWatch: Sendable {
    private var checkedAt: Duration?
    private var freed: ByteCount?
    private var events: PressureReading.EventCounts?

    /// Pause between checks while the kernel's counter moves.
    static let countedPause = Duration.milliseconds(250)
    /// Pause between checks while the group meets its limit, where the kernel does not count the pages taken.
    static let metPause = Duration.seconds(1)
    /// Pause between checks while little is free and nothing indicates if pages are taken.
    static let tightPause = Duration.seconds(10)

    /// Returns true if a check is due after `reading`; the check then counts as made. Only evidence makes a check due:
    /// an idle process is not woken.
    mutating func isDue(_ reading: PressureReading, isTight: Bool) -> Bool {
        guard reading.volatile > .zero else {
            // Nothing can be lost, so the counters of now are no evidence later.
            (freed, events) = (reading.lazyFreed, reading.events)
            return false
        }
        // Counters that fall belong to another group (K12): a change is evidence either way.
        let isCounted = reading.lazyFreed != nil
        let pause: Duration
        if isCounted, let freed, reading.lazyFreed != freed {
            pause = Self.countedPause
        } else if !isCounted, let events, reading.events != events {
            pause = Self.metPause
        } else if !isCounted, isTight {
            pause = Self.tightPause
        } else {
            if freed == nil { freed = reading.lazyFreed }
            if events == nil { events = reading.events }
            return false
        }
        guard checkedAt.map({ reading.at - $0 >= pause || reading.at < $0 }) ?? true else { return false }
        (checkedAt, freed, events) = (reading.at, reading.lazyFreed, reading.events)
        return true
    }
}
