/// The reason why an entry left a cache.
public enum RemovalReason: String, Sendable, Hashable {
    /// Evicted to make room under the limit, or because memory had no room for the cache to grow.
    case evicted
    /// The time to live had passed.
    case expired
    /// Released under memory pressure, or purged by tag.
    case purged
    /// The kernel reclaimed the entry's pages.
    case droppedByKernel
    /// Another value was inserted under the key.
    case replaced
    /// Removed by a call.
    case removed
}

/// Counts of a cache's operations since creation.
public struct CacheStatistics: Sendable, Hashable {
    /// Look-ups that found a value.
    public var hits = 0
    /// Look-ups that found no value.
    public var misses = 0
    /// Entries evicted to make room.
    public var evictions = 0
    /// Entries released under pressure or purged by tag.
    public var purged = 0
    /// Entries whose pages the kernel reclaimed.
    public var droppedByKernel = 0
    /// Entries that expired.
    public var expired = 0
    /// Values replaced by another value under the same key.
    public var replaced = 0
    /// Inserts refused because of their cost or for lack of room. Values that were removed or revoked while being
    /// loaded do not count.
    public var rejected = 0
    /// Loads that succeeded. A load of many keys counts once.
    public var loads = 0
    /// Loads that threw, including those of cancelled callers.
    public var loadFailures = 0
    /// Total time of the loads that succeeded.
    public var loadTime = Duration.zero
    /// Sum of the costs of the entries held, in bytes.
    public var byteCount = 0
    /// Number of entries held.
    public var count = 0

    /// Creates statistics with all counts zero.
    public init() {}

    /// Share of look-ups that found a value, in `0...1`; zero before the first look-up.
    public var hitRatio: Double { hits + misses == 0 ? 0 : Double(hits) / Double(hits + misses) }
}

/// Statistics of a cache since creation (`CacheStatistics`).
public struct CacheStatus: Sendable, Hashable, Codable {
    /// Entries in the cache now.
    public var entries: Int
    /// Look-ups that found a value.
    public var hits: Int
    /// Look-ups that found no value.
    public var misses: Int
    /// Entries evicted at the limit.
    public var evictions: Int
    /// Entries removed because their lifetime ended.
    public var expired: Int
    /// Entries purged because memory was requested.
    public var purged: Int
    /// Entries lost because the kernel reclaimed their pages.
    public var droppedByKernel: Int
    /// Values replaced by a newer value.
    public var replaced: Int
    /// Inserts rejected for their cost or for lack of headroom.
    public var rejected: Int
    /// Loads of missing values that succeeded.
    public var loads: Int
    /// Loads that failed.
    public var loadFailures: Int
    /// Total time of successful loads.
    public var loadSeconds: Double

    init(_ statistics: CacheStatistics) {
        (entries, hits, misses) = (statistics.count, statistics.hits, statistics.misses)
        (evictions, expired, purged) = (statistics.evictions, statistics.expired, statistics.purged)
        (droppedByKernel, replaced, rejected) = (statistics.droppedByKernel, statistics.replaced, statistics.rejected)
        (loads, loadFailures, loadSeconds) = (statistics.loads, statistics.loadFailures, statistics.loadTime.inSeconds)
    }

    /// Share of look-ups that found a value, in `0...1`; zero before the first look-up.
    public var hitRatio: Double { hits == 0 && misses == 0 ? 0 : Double(hits) / (Double(hits) + Double(misses)) }
}
