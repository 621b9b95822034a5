/// A change of level, as observers hear of it.
public struct PressureEvent: Sendable, Hashable {
    /// The same on every route by which this event travels, so that no work is done twice (C78). Grows by one an event.
    public var id: UInt64
    /// The level now in force.
    public var level: PressureLevel
    /// The level announced before.
    public var previous: PressureLevel
    /// Bytes to free to be clear of the line; zero if nothing need be freed.
    public var shortfall: Int
    /// Time until the limit at the present growth; `nil` if it isn't coming nearer.
    public var timeLeft: Duration?
    /// Why.
    public var evidence: PressureEvidence
    /// Whether somebody asked to pretend: everything is done for real, but nothing is terminated.
    public var isSimulated: Bool { evidence.contains(.simulated) }
}
