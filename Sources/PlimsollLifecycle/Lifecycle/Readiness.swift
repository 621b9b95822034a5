/// Tells whether the process should be sent work, and the reason if not (C20).
public struct Readiness: Sendable, Hashable {
    /// The progress of the launch.
    public enum Stage: UInt8, Sendable, Hashable, Comparable {
        /// Not launched.
        case starting
        /// State is being restored.
        case restoring
        /// Up with the last state, while large or slow data still loads in the background.
        case warming
        /// All data is loaded.
        case complete

        public static func < (left: Stage, right: Stage) -> Bool { left.rawValue < right.rawValue }
    }

    /// The progress of the launch.
    public var stage: Stage
    /// True if work is admitted now.
    public var isReady: Bool
    /// The reason for not being ready; `nil` when ready.
    public var reason: String?
    /// The loads in progress, with the share done from 0 to 1.
    public var warming: [String: Double]
}

extension Readiness: CustomStringConvertible {
    public var description: String { isReady ? "ready (\(stage))" : "not ready: \(reason ?? "")" }
}
