/// The numbers by which readings become levels.
///
/// Margins are what must stay available below the limit. They are shares of the limit, capped, because a burst
/// does not grow with the machine: at the 10 GB/s that huge pages reach, a gibibyte is 100 ms of notice.
public struct PressureThresholds: Sendable, Hashable, Codable {
    /// Less available than this is a warning.
    public var warningMargin: Margin
    /// Less available than this is critical.
    public var criticalMargin: Margin
    /// To fall, a level's margin must be exceeded by this factor, so that one number never serves for rise and fall (T20).
    public var fallFactor: Double
    /// And must stay exceeded this long.
    public var fallHold: Duration
    /// A level that bytes alone have made falls after this long where as much is free as caches leave, 1.15 times what makes a warning fall: a burst has ended.
    /// More than `fallHold` counts as that.
    public var recoveryHold: Duration
    /// Each level is announced to observers at most once in this time.
    public var announcementRest: Duration
    /// Less time than this to the limit at the present growth is a warning, once past `growthFloor`.
    public var warningTimeLeft: Duration
    /// Less time than this is critical, once past `growthFloor`.
    public var criticalTimeLeft: Duration
    /// Growth counts only when less than this is available: filling an empty machine fast is what start-up is.
    public var growthFloor: Margin
    /// The largest burst of late counts for half after this long, in `1 s...`.
    public var burstHalfLife: Duration
    /// The most that caches leave free for bursts, as a share of the limit, in `0...1`: a larger burst cannot be prepared for.
    public var burstReserve: Double
    /// Share of the last ten seconds, in `0...1`, stalled on memory, that is a warning. Stall alone is never more:
    /// refaults, compressed swap and I/O-bound reclaim all raise it with memory free (K13).
    public var stallWarning: Double
    /// Share that is critical if available is below the warning margin as well.
    public var stallCritical: Double

    /// All numbers; the defaults are `standard`'s.
    public init(
        warningMargin: Margin = Margin(share: 0.20, atMost: .gibibytes(1)),
        criticalMargin: Margin = Margin(share: 0.10, atMost: .mebibytes(512)),
        fallFactor: Double = 1.2,
        fallHold: Duration = .seconds(5),
        recoveryHold: Duration = .milliseconds(400),
        announcementRest: Duration = .seconds(25),
        warningTimeLeft: Duration = .seconds(2),
        criticalTimeLeft: Duration = .milliseconds(250),
        growthFloor: Margin = Margin(share: 0.40, atMost: .gibibytes(2)),
        burstHalfLife: Duration = .seconds(60),
        burstReserve: Double = 0.5,
        stallWarning: Double = 0.20,
        stallCritical: Double = 0.40
    ) {
        self.warningMargin = warningMargin
        self.criticalMargin = criticalMargin
        self.fallFactor = fallFactor
        self.fallHold = fallHold
        self.recoveryHold = recoveryHold
        self.announcementRest = announcementRest
        self.warningTimeLeft = warningTimeLeft
        self.criticalTimeLeft = criticalTimeLeft
        self.growthFloor = growthFloor
        self.burstHalfLife = burstHalfLife
        self.burstReserve = burstReserve
        self.stallWarning = stallWarning
        self.stallCritical = stallCritical
    }

    /// Warning below 20 % available, critical below 10 %; fall at 1.2 times the margin held 5 s and 25 s of rest, as xnu does.
    /// `make stress` counts who survives with them.
    public static let standard = PressureThresholds()

    /// What is wrong with these numbers; `nil` if nothing is.
    public var problem: String? {
        if criticalMargin.share > warningMargin.share || criticalMargin.atMost > warningMargin.atMost {
            return "criticalMargin must not exceed warningMargin: a critical level that comes before the warning would never be reached through it"
        }
        if !(0...1).contains(warningMargin.share) || !(0...1).contains(criticalMargin.share) || !(0...1).contains(growthFloor.share) {
            return "margins are shares of the limit, in 0...1"
        }
        if fallFactor < 1 { return "fallFactor is \(fallFactor); below 1 a level would fall before it rose" }
        if burstHalfLife < .seconds(1) { return "burstHalfLife is \(burstHalfLife); allowed is a second and more" }
        if !(0...1).contains(burstReserve) { return "burstReserve is \(burstReserve), a share of the limit; allowed is 0 to 1" }
        if stallWarning <= 0 || stallCritical < stallWarning { return "stall shares must satisfy 0 < stallWarning <= stallCritical" }
        return nil
    }

    /// An amount of memory as a share of the limit, but never more than a number of bytes.
    public struct Margin: Sendable, Hashable, Codable {
        /// Share of the limit, in `0...1`.
        public var share: Double
        /// Upper bound, whatever the share.
        public var atMost: ByteCount

        /// The smaller of `share` of the limit and `atMost`.
        public init(share: Double, atMost: ByteCount = .max) {
            self.share = share
            self.atMost = atMost
        }

        /// The margin below `limit`.
        public func below(_ limit: ByteCount) -> ByteCount { min(limit * share, atMost) }
    }
}
