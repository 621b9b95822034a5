package import Synchronization

/// A report to a second-level store that an entry has left its cache.
package struct RemovalNotice: Sendable {
    package var reason: RemovalReason
    /// True if the entry left because its content may no longer be true, and not to release its bytes: both memory
    /// pressure and invalidation by tag purge entries.
    package var isInvalid: Bool
    /// `CacheInvalidation.changes` from before the entry left, or less.
    package var changes: UInt64
    /// Time for which the value would have stayed valid.
    package var left: TimeLeft

    package init(reason: RemovalReason, isInvalid: Bool, changes: UInt64, left: TimeLeft) {
        (self.reason, self.isInvalid, self.changes, self.left) = (reason, isInvalid, changes, left)
    }
}

/// Time for which a cached value stays valid; `nil` for ever. Zero or less: the value is no longer valid.
package struct TimeLeft: Sendable, Hashable {
    /// Until the end of the time to live. A use does not change this end.
    package var toLive: Duration?
    /// Until the end of the idle time. A use starts the idle time anew.
    package var toIdle: Duration?

    package init(toLive: Duration? = nil, toIdle: Duration? = nil) { (self.toLive, self.toIdle) = (toLive, toIdle) }

    /// Time until the earlier end; `nil` if there is no end.
    package var shortest: Duration? {
        guard let toLive, let toIdle else { return toLive ?? toIdle }
        return min(toLive, toIdle)
    }

    /// Returns the time left after `elapsed` more; `nil` if the value is no longer valid then.
    package func after(_ elapsed: Duration) -> TimeLeft? {
        let left = TimeLeft(toLive: toLive.map { $0 - elapsed }, toIdle: toIdle.map { $0 - elapsed })
        return left.shortest.map { $0 > .zero } ?? true ? left : nil
    }
}

/// The order of changes of keys and of entries that leave.
package enum CacheInvalidation {
    /// Number of changes that second-level stores have seen. Removal listeners run after the lock, so a notice may come
    /// after a change of the key. The number from before the entry left tells.
    // Relaxed: the locks of the shards order the entries that leave and the changes.
    package static let changes = Atomic<UInt64>(0)
}
