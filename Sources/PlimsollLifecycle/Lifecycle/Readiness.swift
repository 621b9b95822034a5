/// Tells whether the process should be sent work, and the reason if not (C20).
public struct Readiness: Sendable, Hashable {
    /// The progress of the launch.
    package enum Stage: UInt8, Sendable, Hashable {
        /// Not launched.
        case starting
        /// State is being restored.
        case restoring
        /// Up with the last state, while large or slow data still loads in the background.
        case warming
        /// All data is loaded.
        case complete
    }

    /// The progress of the launch.
    package var stage: Stage
    /// True if all data is loaded, the data of `Lifecycle.warmUp` included.
    public var isComplete: Bool { stage == .complete }
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
