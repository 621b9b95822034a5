/// A purgeable with statistics, like a cache, for a manager's status.
package protocol CountingPurgeable: Purgeable {
    /// Current statistics. Called from any thread, occasionally.
    var statistics: CacheStatistics { get }

    /// Maximum of the held bytes; `nil` for no limit.
    var holdsAtMost: ByteCount? { get }
}

/// A purgeable with a limit that an operator may change at any time through a manager.
package protocol ResizablePurgeable: CountingPurgeable {
    /// Sets the limit, and evicts the excess. Called from any thread.
    func resize(to limit: ByteCount)
}

/// A purgeable of this library that answers without waiting for application code.
package protocol PromptPurgeable: Purgeable {}
