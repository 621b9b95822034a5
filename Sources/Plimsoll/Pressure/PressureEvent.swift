/// A change of level, as delivered to observers.
public struct PressureEvent: Sendable, Hashable {
    /// Identifier of the event, the same on every route, so that no work is done twice (C78). Grows by one with each
    /// event.
    public var id: UInt64
    /// The level now in force.
    public var level: PressureLevel
    /// The level announced before.
    public var previous: PressureLevel
    /// Bytes to free to be clear of the line; zero if nothing need be freed.
    public var shortfall: Int
    /// Time until the limit at the present growth; `nil` if the limit isn't coming nearer.
    public var timeLeft: Duration?
    /// Reasons for the level.
    public var evidence: PressureEvidence
    /// True for a simulation: everything is done for real, but nothing is terminated.
    public var isSimulated: Bool { evidence.contains(.simulated) }
}
