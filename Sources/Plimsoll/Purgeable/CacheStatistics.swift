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
    public var hitRatio: Double {
        // In floating point: the counts of another process may be any numbers.
        hits == 0 && misses == 0 ? 0 : Double(hits) / (Double(hits) + Double(misses))
    }
}

/// As JSON, durations are seconds, and the bytes are left to the status of the purgeable.
extension CacheStatistics: Codable {
    private enum CodingKeys: String, CodingKey {
        case entries, hits, misses, evictions, expired, purged, droppedByKernel, replaced, rejected, loads
        case loadFailures, loadSeconds
    }

    private static let counters: [(CodingKeys, any WritableKeyPath<CacheStatistics, Int> & Sendable)] = [
        (.entries, \.count), (.hits, \.hits), (.misses, \.misses), (.evictions, \.evictions), (.expired, \.expired),
        (.purged, \.purged), (.droppedByKernel, \.droppedByKernel), (.replaced, \.replaced), (.rejected, \.rejected),
        (.loads, \.loads), (.loadFailures, \.loadFailures),
    ]

    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        for (key, path) in Self.counters { self[keyPath: path] = try values.decode(Int.self, forKey: key) }
        loadTime = Duration(untrustedSeconds: try values.decode(Double.self, forKey: .loadSeconds))
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        for (key, path) in Self.counters { try values.encode(self[keyPath: path], forKey: key) }
        try values.encode(loadTime.inSeconds, forKey: .loadSeconds)
    }
}
