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
