#if Spill
public import Plimsoll

/// Bounds of what waits for a store, and of how long it is waited for.
public struct SpillLimits: Sendable, Hashable {
    /// Bytes that may wait to be written. They are memory that was to be freed, so few: 4 MiB by default.
    public var queuedBytes = ByteCount.mebibytes(4)
    /// Values and removals that may wait.
    public var queuedCount = 1024
    /// How long a look-up waits for the store before the value is loaded instead: a load should take longer than that.
    public var readTimeout = Duration.milliseconds(100)
    /// How long a write may take, connecting included.
    public var writeTimeout = Duration.seconds(1)
    /// How old a value in the store may become.
    public var age = Duration.seconds(3600)
    /// Failures in a row after which the store is left alone.
    public var failures = 3
    /// For how long first; doubled with each further failure.
    public var shortestPause = Duration.milliseconds(100)
    /// For how long at most.
    public var longestPause = Duration.seconds(30)

    /// The defaults.
    public init() {}

    /// What does not make sense; `nil` if all does.
    var problem: String? {
        if queuedBytes < .zero { return "queuedBytes is \(queuedBytes), allowed is 0 or more" }
        if queuedCount < 1 { return "queuedCount is \(queuedCount), allowed is 1 or more" }
        for (name, value) in [("readTimeout", readTimeout), ("writeTimeout", writeTimeout), ("age", age), ("shortestPause", shortestPause)]
        where value < .milliseconds(1) {
            return "\(name) is \(value), allowed is a millisecond or more"
        }
        if failures < 1 { return "failures is \(failures), allowed is 1 or more" }
        if longestPause < shortestPause { return "longestPause is \(longestPause), allowed is shortestPause (\(shortestPause)) or more" }
        return nil
    }
}

/// What came of spilling, counted since the start.
public struct SpillStatistics: Sendable, Hashable {
    /// Values that the store took.
    public var stored = 0
    /// Values that the store took back at a removal's request, or never had.
    public var removed = 0
    /// Look-ups answered by the store.
    public var hits = 0
    /// Look-ups answered by what was still waiting to be written.
    public var queueHits = 0
    /// Look-ups for which the store has nothing.
    public var misses = 0
    /// Look-ups given up at the end of `readTimeout`, or whose connection broke.
    public var unanswered = 0
    /// Look-ups that were not made: the store is left alone for a while, or too many wait already.
    public var skipped = 0
    /// Answers that were not what had been stored: cut short, damaged, forged, of another key, version or generation, or not to be decoded.
    public var damaged = 0
    /// Values pushed out of the queue by younger ones.
    public var dropped = 0
    /// Values not queued, or let go of in the queue: memory was critical or had no room for them.
    public var shed = 0
    /// Values not queued because the store is left alone for a while.
    public var refusedWhileDown = 0
    /// Values larger than the store takes, or than may wait, or that could not be encoded.
    public var unfit = 0
    /// Connections and requests that failed.
    public var failures = 0
    /// How often everything in the store was given up because a removal could not be delivered, or might be undone.
    public var forgotten = 0
    /// What waits to be written, in bytes.
    public var queuedBytes = ByteCount.zero
    /// What waits: values and removals.
    public var queuedCount = 0
    /// Whether the store is being left alone.
    public var isStoreDown = false
    /// What went wrong last; `nil` if nothing did.
    public var lastProblem: String?
}
#endif
