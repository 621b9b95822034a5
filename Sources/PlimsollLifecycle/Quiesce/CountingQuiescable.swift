public import Plimsoll

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
