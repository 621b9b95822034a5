/// What a reading means.
public struct PressureAssessment: Sendable, Hashable, Codable {
    /// When the reading was taken.
    public var at: Duration
    /// The level in force: rises at once, falls one step at a time after a hold.
    public var level: PressureLevel
    /// What this reading alone says. Destructive steps need it, not the held level.
    public var observed: PressureLevel
    /// Bytes to free to be back above the warning margin with a reserve for the growth seen; zero when there is nothing to free.
    public var shortfall: ByteCount
    /// Bytes that caches may still take before the line is met; zero at or past it. `nil` where no limit is known.
    public var room: ByteCount?
    /// Time until the limit at the present growth; `nil` when not growing or without a limit.
    public var timeLeft: Duration?
    /// Growth of what cannot be reclaimed, in bytes a second; never negative.
    public var growth: ByteCount
    /// Share of about the last ten seconds in which at least one task stalled on memory, in `0...1`.
    public var stallShare: Double
    /// Why `observed` is what it is.
    public var evidence: PressureEvidence

    /// An assessment; calm unless said otherwise.
    public init(
        at: Duration, level: PressureLevel = .normal, observed: PressureLevel? = nil, shortfall: ByteCount = .zero, room: ByteCount? = nil,
        timeLeft: Duration? = nil, growth: ByteCount = .zero, stallShare: Double = 0, evidence: PressureEvidence = []
    ) {
        self.at = at
        self.level = level
        self.observed = observed ?? level
        self.shortfall = shortfall
        self.room = room
        self.timeLeft = timeLeft
        self.growth = growth
        self.stallShare = stallShare
        self.evidence = evidence
    }
}
