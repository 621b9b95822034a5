/// A holder that counts what is done with it, as caches do: a manager's status shows it.
public protocol CountingPurgeable: Purgeable {
    /// What it has done and holds. Called from any thread, now and then.
    var statistics: CacheStatistics { get }

    /// The most it holds; `nil` for no limit.
    var holdsAtMost: ByteCount? { get }
}

extension PurgeableCache: CountingPurgeable {
    public var holdsAtMost: ByteCount? { limit == .max ? nil : limit }
}

extension VolatileCache: CountingPurgeable {
    public var holdsAtMost: ByteCount? { limit }
}

/// What admits work and counts it, as limiters do: a manager's status shows it if it is in the quiesce set.
public protocol CountingQuiescable: Quiescable {
    /// What it has done and does. Called from any thread, now and then; a status waits for it, so it must not wait for others.
    var statistics: ConcurrencyLimiter.Statistics { get }

    /// The same by priority; `nil`, as it is unless implemented, where work has none.
    var requests: RequestCounts? { get }

    /// Turned away a second since memory became short; `nil` while it is plentiful, and unless implemented.
    var refusedPerSecond: Double? { get }
}

extension CountingQuiescable {
    public var requests: RequestCounts? { nil }
    public var refusedPerSecond: Double? { nil }
}

extension ConcurrencyLimiter: CountingQuiescable {}

/// Requests admitted and refused so far, by priority. Numbers only grow.
public struct RequestCounts: Sendable, Hashable, Codable {
    /// Admitted, by priority: `sheddable`, `normal` and `critical`.
    public var admitted: [String: UInt64] = [:]
    /// Refused, by priority and then reason: `concurrency`, `arrivals` and `paused`.
    public var refused: [String: [String: UInt64]] = [:]
    /// Of those admitted, the ones that are served whatever the level and would have been refused.
    public var exempted: UInt64 = 0

    /// None yet.
    public init() {}

    /// Refused of one priority, for whatever reason; saturating, as a status may be another process's.
    public func refused(_ priority: String) -> UInt64 {
        refused[priority, default: [:]].values.reduce(0) { sum, count in
            let (sum, overflow) = sum.addingReportingOverflow(count)
            return overflow ? .max : sum
        }
    }
}
