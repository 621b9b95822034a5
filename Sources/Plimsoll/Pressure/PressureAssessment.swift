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
    /// As `room`, with what is kept for bursts: memory that other caches have just left is no sign of a burst.
    package var roomToLine: ByteCount?
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
    /// `level` and `observed` by readings alone, while a simulation raises them; else `nil`.
    package var measured: Measured?

    /// Levels by readings alone.
    package struct Measured: Sendable, Hashable, Codable {
        var level: PressureLevel
        var observed: PressureLevel
    }

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

/// The kinds of evidence for a level.
public struct PressureEvidence: OptionSet, Sendable, Hashable, Codable {
    public let rawValue: UInt8

    /// Creates evidence from recorded bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Little is left below the limit.
    public static let headroom = PressureEvidence(rawValue: 1 << 0)
    /// At the present rate of growth the limit is near in time.
    public static let growth = PressureEvidence(rawValue: 1 << 1)
    /// Tasks have stalled on memory for a sustained share of the last seconds.
    public static let stall = PressureEvidence(rawValue: 1 << 2)
    /// The kernel counted the group at its limit while little was available.
    public static let limitEvents = PressureEvidence(rawValue: 1 << 3)
    /// The limit was lowered since the last reading.
    public static let limitLowered = PressureEvidence(rawValue: 1 << 4)
    /// The service manager or another trusted sender announced the level.
    public static let announced = PressureEvidence(rawValue: 1 << 5)
    /// A caller started a simulation.
    public static let simulated = PressureEvidence(rawValue: 1 << 6)

    // Made once: a literal of several kinds first makes an array, and the path that frees memory must not allocate.
    /// Kinds with a number of bytes that are short.
    static let ofBytes: PressureEvidence = [.headroom, .growth]
    /// Kinds that no number of bytes starts or ends.
    static let withoutBytes: PressureEvidence = [.stall, .announced, .simulated]
    /// Kinds with a level but no number of bytes.
    static let ofLevel: PressureEvidence = [.announced, .simulated]

    private static let names: [(PressureEvidence, String)] = [
        (.headroom, "headroom"), (.growth, "growth"), (.stall, "stall"), (.limitEvents, "limit events"),
        (.limitLowered, "limit lowered"), (.announced, "announced"), (.simulated, "simulated"),
    ]
}

extension PressureEvidence: CustomStringConvertible {
    /// The kinds, comma separated; `"none"` for none.
    public var description: String {
        isEmpty ? "none" : Self.names.filter { contains($0.0) }.map(\.1).joined(separator: ", ")
    }
}
