/// The shortage of memory.
public enum PressureLevel: UInt8, Sendable, Hashable, Comparable, CaseIterable, Codable {
    /// No shortage. Never a reason to purge (Nuke#392).
    case normal
    /// Release contents that are cheap to rebuild.
    case warning
    /// The next seconds decide: release as much as possible.
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
