/// The judgement of a reading.
package struct PressureAssessment: Sendable, Hashable, Codable {
    /// Time of the reading.
    package var at: Duration
    /// The level in force: rises at once, falls one step at a time after a hold.
    package var level: PressureLevel
    /// Level that this reading alone supports. Destructive steps need this level, not the held one.
    package var observed: PressureLevel
    /// Level that readings support now: rises at once, falls as soon as a reading is clear of its line. Harmless,
    /// reversible steps follow this level.
    package var present: PressureLevel
    /// Time at which `level` falls a step if readings stay clear of its line; sooner if they leave more free than this
    /// one. `nil` while this reading itself supports the level, and at `normal`.
    package var heldUntil: Duration?
    /// Evidence that last supported a held level; `nil` whenever `heldUntil` is.
    package var heldFor: PressureEvidence?
    /// Bytes to free to be back above the warning margin with a reserve for the growth seen; zero when nothing need be
    /// freed.
    package var shortfall: ByteCount
    /// Bytes that caches may still take before the line is met; zero at or past the line. `nil` if no limit is known.
    package var room: ByteCount?
    /// Time until the limit at the present growth; `nil` when not growing or without a limit.
    package var timeLeft: Duration?
    /// Growth of unreclaimable memory that lasts, or that may last, in bytes a second; never negative.
    package var growth: ByteCount
    /// Growth of unreclaimable memory within about 50 ms, usual bursts included, in bytes a second.
    package var surge: ByteCount
    /// Largest recent burst: the rise of unreclaimable memory within a second. As much is kept free for the next burst.
    package var burst: ByteCount
    /// Share of about the last ten seconds in which at least one task stalled on memory, in `0...1`.
    package var stallShare: Double
    /// Reasons for `observed`.
    package var evidence: PressureEvidence

    /// Creates an assessment; calm by default.
    package init(
        at: Duration, level: PressureLevel = .normal, observed: PressureLevel? = nil, present: PressureLevel? = nil,
        shortfall: ByteCount = .zero,
        room: ByteCount? = nil, timeLeft: Duration? = nil, growth: ByteCount = .zero, surge: ByteCount? = nil,
        burst: ByteCount = .zero,
        stallShare: Double = 0, evidence: PressureEvidence = []
    ) {
        self.at = at
        self.level = level
        self.observed = observed ?? level
        self.present = present ?? self.observed
        self.shortfall = shortfall
        self.room = room
        self.timeLeft = timeLeft
        self.growth = growth
        self.surge = surge ?? growth
        self.burst = burst
        self.stallShare = stallShare
        self.evidence = evidence
    }
}
