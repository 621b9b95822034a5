#if Spill
public import Plimsoll

/// Bounds of the queue for a store, and timeouts.
public struct SpillLimits: Sendable, Hashable {
    /// Longest queue, in bytes. Queued values occupy memory that was to be freed, so the bound is small: 4 MiB by
    /// default.
    public var queuedBytes = ByteCount.mebibytes(4)
    /// Longest queue, in values and removals.
    public var queuedCount = 1024
    /// Longest wait of a look-up for the store before the value is loaded instead. A load should take longer than
    /// this.
    public var readTimeout = Duration.milliseconds(100)
    /// Longest time of a write, including the connection attempt.
    public var writeTimeout = Duration.seconds(1)
    /// Longest age of a value in the store. Values with less time left are kept only that long.
    public var age = Duration.seconds(3600)
    /// Consecutive failures after which the circuit breaker opens.
    public var failures = 3
    /// First back-off; doubled with each further failure.
    public var shortestPause = Duration.milliseconds(100)
    /// Longest back-off.
    public var longestPause = Duration.seconds(30)

    /// Creates the default limits.
    public init() {}

    /// Describes the first invalid limit; `nil` if all are valid.
    var problem: String? {
        if queuedBytes < .zero { return "queuedBytes is \(queuedBytes), allowed is 0 or more" }
        if queuedCount < 1 { return "queuedCount is \(queuedCount), allowed is 1 or more" }
        for (name, value) in [
            ("readTimeout", readTimeout), ("writeTimeout", writeTimeout), ("age", age),
            ("shortestPause", shortestPause),
        ]
        where value < .milliseconds(1) {
            return "\(name) is \(value), allowed is a millisecond or more"
        }
        if failures < 1 { return "failures is \(failures), allowed is 1 or more" }
        if longestPause < shortestPause {
            return "longestPause is \(longestPause), allowed is shortestPause (\(shortestPause)) or more"
        }
        return nil
    }
}

/// Counts of spilling since the start.
public struct SpillStatistics: Sendable, Hashable {
    /// Values that the store accepted.
    public var stored = 0
    /// Values that the store removed on request, or never had.
    public var removed = 0
    /// Look-ups answered by the store.
    public var hits = 0
    /// Look-ups answered from the queue.
    public var queueHits = 0
    /// Look-ups without a value in the store.
    public var misses = 0
    /// Look-ups that reached `readTimeout`, or lost the connection.
    public var unanswered = 0
    /// Look-ups that were skipped: the circuit breaker is open, or too many look-ups wait already.
    public var skipped = 0
    /// Answers that differ from the stored value: cut short, damaged, forged, of another key, version or generation,
    /// or not decodable.
    public var damaged = 0
    /// Values dropped from the queue in favour of newer values.
    public var dropped = 0
    /// Values not queued, or dropped from the queue, because memory was critical or had no room.
    public var shed = 0
    /// Values not queued because the circuit breaker is open.
    public var refusedWhileDown = 0
    /// Values larger than the store or the queue accepts, values that could not be encoded, and values that expired
    /// before they were written.
    public var unfit = 0
    /// Connections and requests that failed.
    public var failures = 0
    /// Number of times that all values in the store were invalidated because a removal could not be delivered, or
    /// might be undone.
    public var forgotten = 0
    /// Bytes in the queue.
    public var queuedBytes = ByteCount.zero
    /// Values and removals in the queue.
    public var queuedCount = 0
    /// True while the circuit breaker is open.
    public var isStoreDown = false
    /// Description of the last problem; `nil` if there was none.
    public var lastProblem: String?
}
#endif
