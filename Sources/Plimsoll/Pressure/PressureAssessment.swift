/// What a reading means.
public struct PressureAssessment: Sendable, Hashable, Codable {
    /// When the reading was taken.
    public var at: Duration
    /// The level in force: rises at once, falls one step at a time after a hold.
    public var level: PressureLevel
    /// What this reading alone says. Destructive steps need it, not the held level.
    public var observed: PressureLevel
    /// The level that readings support now: rises at once, falls as soon as a reading is clear of its line. What is done and undone without harm follows it.
    public var present: PressureLevel
    /// When `level` falls a step if readings are clear of its line from now on; sooner if they leave more free than this one. `nil` while this reading itself
    /// supports the level, and at `normal`.
    public var heldUntil: Duration?
    /// The evidence that last supported a level that is held; `nil` as `heldUntil`.
    public var heldFor: PressureEvidence?
    /// Bytes to free to be back above the warning margin with a reserve for the growth seen; zero when there is nothing to free.
    public var shortfall: ByteCount
    /// Bytes that caches may still take before the line is met; zero at or past it. `nil` where no limit is known.
    public var room: ByteCount?
    /// Time until the limit at the present growth; `nil` when not growing or without a limit.
    public var timeLeft: Duration?
    /// Growth of what cannot be reclaimed that lasts, or of which nothing says that it will end, in bytes a second; never negative.
    public var growth: ByteCount
    /// The same within about 50 ms, usual bursts included.
    public var surge: ByteCount
    /// The largest burst of late: how far what cannot be reclaimed rose within a second. So much is kept free for the next.
    public var burst: ByteCount
    /// Share of about the last ten seconds in which at least one task stalled on memory, in `0...1`.
    public var stallShare: Double
    /// Why `observed` is what it is.
    public var evidence: PressureEvidence

    /// An assessment; calm unless said otherwise.
    public init(
        at: Duration, level: PressureLevel = .normal, observed: PressureLevel? = nil, present: PressureLevel? = nil, shortfall: ByteCount = .zero,
        room: ByteCount? = nil, timeLeft: Duration? = nil, growth: ByteCount = .zero, surge: ByteCount? = nil, burst: ByteCount = .zero,
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
