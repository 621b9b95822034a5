/// The worth of memory to a cache that shares memory with others: its share, and its misses by size.
package struct WorthStatus: Sendable, Hashable, Codable {
    /// A size of the cache, and the part of the requests that would miss.
    package struct Point: Sendable, Hashable, Codable {
        package var bytes: Int
        package var missRatio: Double

        package init(bytes: Int, missRatio: Double) { (self.bytes, self.missRatio) = (bytes, missRatio) }
    }

    /// The effect of another share. Negative if the share is smaller.
    package struct Change: Sendable, Hashable, Codable {
        /// Hits a second more.
        package var hitsPerSecond: Double
        /// Load time a minute less, in seconds.
        package var savedLoadSecondsPerMinute: Double
    }

    /// Bytes whose effect `more` and `less` tell.
    package static let step = 64 << 20

    /// Bytes that the cache keeps when memory is at its limit.
    package var shareBytes: Int
    /// The share of least cost, towards which the share moves.
    package var targetBytes: Int
    package var requestsPerSecond: Double
    /// Mean time of a load.
    package var loadSeconds: Double
    /// Misses by rising size.
    package var curve: [Point]
    /// The effect of 64 MiB more, and of 64 MiB less or of no memory at all.
    package var more: Change
    package var less: Change

    package init(_ worth: CacheWorth) {
        (shareBytes, targetBytes, requestsPerSecond) = (worth.share, worth.target, worth.requestsPerSecond)
        loadSeconds = worth.loadTime / 1e9
        curve = worth.curve.points.map { Point(bytes: $0.bytes, missRatio: worth.missRatio(at: $0.bytes)) }
        func change(_ bytes: Int) -> Change {
            let hits = worth.hitsPerSecond(from: bytes)
            return Change(hitsPerSecond: hits, savedLoadSecondsPerMinute: hits * worth.loadTime / 1e9 * 60)
        }
        (more, less) = (change(Self.step), change(-Self.step))
    }
}

/// A move of memory from some caches to others.
package struct MoveStatus: Sendable, Hashable, Codable {
    /// A cache whose share changed.
    package struct Change: Sendable, Hashable, Codable {
        package var name: String
        package var beforeBytes: Int
        package var afterBytes: Int
    }

    /// Time of the last step of the move.
    package var atSeconds: Double
    /// Load time that the move is expected to save in the end, as part of the load time that memory can save at all.
    package var savedShare: Double
    /// The shares that changed, those that grew most first.
    package var changes: [Change]

    init(_ move: Divider.Move) {
        (atSeconds, savedShare) = (move.at.inSeconds, move.gain)
        changes = move.changes.map { Change(name: $0.name, beforeBytes: $0.before, afterBytes: $0.after) }
            .filter { $0.beforeBytes != $0.afterBytes }
            .sorted { $0.afterBytes - $0.beforeBytes > $1.afterBytes - $1.beforeBytes }
    }
}
