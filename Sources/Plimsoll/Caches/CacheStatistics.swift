/// Why an entry left a cache.
public enum RemovalReason: String, Sendable, Hashable {
    /// To make room under the cache's limit, or because memory had none for it to grow.
    case evicted
    /// Its time to live had passed.
    case expired
    /// Released under memory pressure, or purged by tag.
    case purged
    /// The kernel took its pages.
    case droppedByKernel
    /// Another value came under its key.
    case replaced
    /// Somebody removed it.
    case removed
}

/// What a cache has done since it was made.
public struct CacheStatistics: Sendable, Hashable {
    /// Look-ups that found a value.
    public var hits = 0
    /// Look-ups that did not.
    public var misses = 0
    /// Entries that left to make room.
    public var evictions = 0
    /// Entries released under pressure or purged by tag.
    public var purged = 0
    /// Entries whose pages the kernel took.
    public var droppedByKernel = 0
    /// Entries that left because their time had passed.
    public var expired = 0
    /// Values that left because another came under their key.
    public var replaced = 0
    /// Inserts that were refused: for their cost, or for want of room. What is not kept because it was removed or revoked while it was loaded is not among them.
    public var rejected = 0
    /// Loads that made a value, or values, if they were asked for many at once.
    public var loads = 0
    /// Loads that threw, those of cancelled callers included.
    public var loadFailures = 0
    /// How long the loads that made something took together.
    public var loadTime = Duration.zero
    /// Sum of the costs of the entries held, in bytes.
    public var byteCount = 0
    /// Number of entries held.
    public var count = 0

    /// Nothing done yet.
    public init() {}

    /// Share of look-ups that found a value, in `0...1`; zero before the first.
    public var hitRatio: Double { hits + misses == 0 ? 0 : Double(hits) / Double(hits + misses) }
}
