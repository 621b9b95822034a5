/// The thresholds that turn readings into levels.
///
/// A margin is the memory that must stay available below the limit. Margins are shares of the limit, capped, because a
/// burst does not grow with the machine. At the 10 GB/s that huge pages reach, a gibibyte is 100 ms of notice.
public struct PressureThresholds: Sendable, Hashable, Codable {
    /// Margin below which the level is warning.
    public var warningMargin: Margin
    /// Margin below which the level is critical.
    public var criticalMargin: Margin
    /// Factor by which available memory must exceed a level's margin before the level falls. This hysteresis keeps one
    /// number from serving for rise and fall (T20).
    public var fallFactor: Double
    /// Time for which that margin must stay exceeded.
    public var fallHold: Duration
    /// Time after which a level raised by bytes alone falls, if enough memory is free. Enough is what caches leave:
    /// 1.15 times the memory at which a warning falls. Then a burst has ended. A value above `fallHold` counts as
    /// `fallHold`.
    public var recoveryHold: Duration
    /// Minimum time between two announcements of the same level.
    public var announcementRest: Duration
    /// Time left below which the level is warning, at the present growth, once past `growthFloor`.
    public var warningTimeLeft: Duration
    /// Time left below which the level is critical, once past `growthFloor`.
    public var criticalTimeLeft: Duration
    /// Margin below which growth counts. Filling an empty machine fast is normal at start-up.
    public var growthFloor: Margin
    /// Half-life of the largest recent burst, in `1 s...`.
    public var burstHalfLife: Duration
    /// Upper bound of the memory that caches leave free for bursts, as a share of the limit, in `0...1`. No larger
    /// burst can be prepared for.
    public var burstReserve: Double
    /// Share of the last ten seconds stalled on memory, in `0...1`, that is a warning. Stall alone never means more:
    /// refaults, compressed swap and I/O-bound reclaim all raise the stall time with memory free (K13).
    public var stallWarning: Double
    /// Stall share that is critical if available memory is below the warning margin as well.
    public var stallCritical: Double

    /// Creates thresholds; the defaults are those of `standard`.
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

    /// Warning below 20 % available, critical below 10 %; fall at 1.2 times the margin held 5 s and 25 s of rest, as
    /// xnu does. `make stress` counts the survivors with these numbers.
    public static let standard = PressureThresholds()

    /// Description of a mistake in these numbers; `nil` if there is none.
    public var problem: String? {
        if criticalMargin.share > warningMargin.share || criticalMargin.atMost > warningMargin.atMost {
            return
                "criticalMargin must not exceed warningMargin: a critical level that comes before the warning would never be reached through it"
        }
        if !(0...1).contains(warningMargin.share) || !(0...1).contains(criticalMargin.share)
            || !(0...1).contains(growthFloor.share)
        {
            return "margins are shares of the limit, in 0...1"
        }
        if min(warningMargin.atMost, criticalMargin.atMost, growthFloor.atMost) < .zero {
            return "margins are amounts of memory; atMost must not be negative"
        }
        // Each of these comparisons is false for a value that is not a number.
        if !(fallFactor >= 1 && fallFactor < .infinity) {
            return
                "fallFactor is \(fallFactor); allowed is 1 and more, and finite: below 1 a level would fall before it rose"
        }
        // The critical margin is no larger.
        if warningMargin.atMost == .max, warningMargin.share * fallFactor >= 1 {
            return
                "fallFactor \(fallFactor) times warningMargin \(warningMargin.share) is at least the limit, so a level would never fall; lower one, or set atMost"
        }
        if min(fallHold, recoveryHold, announcementRest) < .zero {
            return "fallHold, recoveryHold and announcementRest are times, and must not be negative"
        }
        if burstHalfLife < .seconds(1) { return "burstHalfLife is \(burstHalfLife); allowed is a second and more" }
        if !(0...1).contains(burstReserve) {
            return "burstReserve is \(burstReserve), a share of the limit; allowed is 0 to 1"
        }
        if !(stallWarning > 0 && stallCritical >= stallWarning) {
            return "stall shares must satisfy 0 < stallWarning <= stallCritical"
        }
        return nil
    }

    /// An amount of memory as a share of the limit, but never more than a number of bytes.
    public struct Margin: Sendable, Hashable, Codable {
        /// Share of the limit, in `0...1`.
        public var share: Double
        /// Upper bound of the margin in bytes.
        public var atMost: ByteCount

        /// The smaller of `share` of the limit and `atMost`.
        public init(share: Double, atMost: ByteCount = .max) {
            self.share = share
            self.atMost = atMost
        }

        /// Returns the margin below `limit`.
        public func below(_ limit: ByteCount) -> ByteCount { min(limit * share, atMost) }
    }
}
