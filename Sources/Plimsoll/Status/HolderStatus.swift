import Synchronization

/// Something registered that can let go of memory.
public struct HolderStatus: Sendable, Hashable, Codable {
    /// Its name; others may have the same.
    public var name: String
    /// The group it belongs to, names joined by slashes; empty for none.
    public var group: String
    /// The tags it was registered with.
    public var tags: [String]
    /// `trivial`, `cheap`, `expensive` or `precious`.
    public var rebuildCost: String
    /// Whether it is asked under pressure.
    public var releasesUnderPressure: Bool
    /// Bytes it holds.
    public var heldBytes: Int
    /// Of them in pages that the kernel may take; `nil` if it has none of the kind.
    public var volatileBytes: Int?
    /// Its limit; `nil` for none, or one that isn't known.
    public var limitBytes: Int?
    /// Nanoseconds to make a byte of it again, as observed; `nil` if that isn't known.
    public var rebuildNanosecondsPerByte: Double?
    /// What it has counted; `nil` if it doesn't count.
    public var cache: CacheStatus?
    /// For how long its own code has not returned from a call, if that is a second or more; the numbers are those it told last.
    public var unansweredSeconds: Double?
}

/// What a cache has counted since it was made (`CacheStatistics`).
public struct CacheStatus: Sendable, Hashable, Codable {
    /// Held now.
    public var entries: Int
    /// Look-ups that found a value.
    public var hits: Int
    /// Look-ups that found none.
    public var misses: Int
    /// Entries that left for others, at the limit.
    public var evictions: Int
    /// Entries that left as their time was over.
    public var expired: Int
    /// Entries that left as memory was asked for.
    public var purged: Int
    /// Entries whose pages the kernel took.
    public var droppedByKernel: Int
    /// Values that another took the place of.
    public var replaced: Int
    /// Inserts that were refused for their cost or for want of room.
    public var rejected: Int
    /// Loads of missing values that brought one.
    public var loads: Int
    /// Loads that failed.
    public var loadFailures: Int
    /// Time that successful loads took together.
    public var loadSeconds: Double

    init(_ statistics: CacheStatistics) {
        (entries, hits, misses) = (statistics.count, statistics.hits, statistics.misses)
        (evictions, expired, purged) = (statistics.evictions, statistics.expired, statistics.purged)
        (droppedByKernel, replaced, rejected) = (statistics.droppedByKernel, statistics.replaced, statistics.rejected)
        (loads, loadFailures, loadSeconds) = (statistics.loads, statistics.loadFailures, statistics.loadTime.inSeconds)
    }

    /// Share of look-ups that found a value, in `0...1`; zero before the first.
    public var hitRatio: Double { hits == 0 && misses == 0 ? 0 : Double(hits) / (Double(hits) + Double(misses)) }
}

extension HolderStatus {
    /// What `entry` said last; before it said anything, what it held when it was last asked for memory.
    init(_ entry: PurgeableRegistry.Entry, at now: Duration) {
        let said = entry.answer.withLock { $0 } ?? HolderAnswer(held: ByteCount(entry.held.load(ordering: .relaxed)))
        name = entry.name
        group = entry.place.group.joined(separator: "/")
        tags = entry.place.tags
        rebuildCost = "\(entry.rebuildCost)"
        releasesUnderPressure = entry.isReleasable
        (heldBytes, volatileBytes, limitBytes, cache) = (said.held.bytes, said.volatileHeld?.bytes, said.limit?.bytes, said.cache)
        // A holder may tell any number; JSON has none for this one.
        rebuildNanosecondsPerByte = entry.lastRate.flatMap { $0.isFinite ? $0 : nil }
        let inside = entry.gate.timeInside(at: now)
        unansweredSeconds = inside < HolderPoll.patience ? nil : inside.inSeconds
    }
}
