/// Whether the process should be sent work, and why not (C20).
public struct Readiness: Sendable, Hashable {
    /// How far the launch has come.
    public enum Stage: UInt8, Sendable, Hashable, Comparable {
        /// Not launched.
        case starting
        /// State is being restored.
        case restoring
        /// Up with its last state, while large or slow data still loads in the background.
        case warming
        /// Everything is loaded.
        case complete

        public static func < (left: Stage, right: Stage) -> Bool { left.rawValue < right.rawValue }
    }

    /// How far the launch has come.
    public var stage: Stage
    /// Whether work is admitted now.
    public var isReady: Bool
    /// Why not; `nil` if it is.
    public var reason: String?
    /// What still loads, with the share done from 0 to 1.
    public var warming: [String: Double]
}

extension Readiness: CustomStringConvertible {
    public var description: String { isReady ? "ready (\(stage))" : "not ready: \(reason ?? "")" }
}
