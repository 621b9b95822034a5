/// Cost of making a value again. Memory with a lower cost is released first.
public enum RebuildCost: UInt8, Sendable, Hashable, Comparable, CaseIterable, Codable {
    /// Microseconds of computation.
    case trivial
    /// A read from a local disk, milliseconds of computation.
    case cheap
    /// A query to another service, tens of milliseconds.
    case expensive
    /// Seconds, or a delay that a user notices. Released at the critical level only.
    case precious

    public static func < (left: RebuildCost, right: RebuildCost) -> Bool { left.rawValue < right.rawValue }
}
