/// How short memory is.
public enum PressureLevel: UInt8, Sendable, Hashable, Comparable, CaseIterable, Codable {
    /// Nothing to do. Never a reason to purge (Nuke#392).
    case normal
    /// Give back what is cheap to rebuild.
    case warning
    /// The next seconds decide: give back what can be given.
    case critical

    public static func < (left: PressureLevel, right: PressureLevel) -> Bool { left.rawValue < right.rawValue }

    /// The level below, or `normal`.
    var below: PressureLevel { PressureLevel(rawValue: rawValue == 0 ? 0 : rawValue - 1) ?? .normal }
}

extension PressureLevel: CustomStringConvertible {
    public var description: String {
        switch self {
        case .normal: "normal"
        case .warning: "warning"
        case .critical: "critical"
        }
    }
}
