/// A member of the quiesce set with statistics, like a limiter. A manager's status shows the statistics of such
/// members.
public protocol CountingQuiescable: Quiescable {
    /// Current statistics. Called from any thread, occasionally. The status waits for the result, so the getter
    /// must not block.
    var statistics: ConcurrencyLimiter.Statistics { get }

    /// Requests by priority; `nil` by default, and if requests have no priority.
    var requests: RequestCounts? { get }

    /// Requests refused a second since memory became short; `nil` by default, and while memory is plentiful.
    var refusedPerSecond: Double? { get }
}

extension CountingQuiescable {
    public var requests: RequestCounts? { nil }
    public var refusedPerSecond: Double? { nil }
}

extension ConcurrencyLimiter: CountingQuiescable {}

/// Requests admitted and refused so far, by priority. Numbers only grow.
public struct RequestCounts: Sendable, Hashable, Codable {
    /// Admitted requests, by priority: `sheddable`, `normal` and `critical`.
    public var admitted: [String: UInt64] = [:]
    /// Refused requests, by priority and then reason: `concurrency`, `arrivals` and `paused`.
    public var refused: [String: [String: UInt64]] = [:]
    /// Admitted requests that would have been refused, but are served at any level.
    public var exempted: UInt64 = 0

    /// Creates counts of zero.
    public init() {}

    /// Returns the refused requests of one priority, for all reasons. Saturating, because a status may come from
    /// another process.
    public func refused(_ priority: String) -> UInt64 {
        refused[priority, default: [:]].values.reduce(0) { sum, count in
            let (sum, overflow) = sum.addingReportingOverflow(count)
            return overflow ? .max : sum
        }
    }
}
