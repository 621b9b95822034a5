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
    /// What it has done and does. Called from any thread, now and then.
    var statistics: ConcurrencyLimiter.Statistics { get }
}

extension ConcurrencyLimiter: CountingQuiescable {}
