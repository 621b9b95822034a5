import Synchronization

/// The status of a registered purgeable.
public struct HolderStatus: Sendable, Hashable, Codable {
    /// Name of the purgeable; not necessarily unique.
    public var name: String
    /// Group path, names joined by slashes; empty for none.
    public var group: String
    /// Tags given at registration.
    public var tags: [String]
    /// `trivial`, `cheap`, `expensive` or `precious`.
    public var rebuildCost: String
    /// True if the purgeable is asked under pressure.
    public var releasesUnderPressure: Bool
    /// Held bytes.
    public var heldBytes: Int
    /// Held bytes in volatile pages, which the kernel may reclaim; `nil` if the purgeable has no volatile memory.
    public var volatileBytes: Int?
    /// Limit in bytes; `nil` for none, or if the limit is not known.
    public var limitBytes: Int?
    /// Observed rebuild time in nanoseconds a byte; `nil` if not known.
    public var rebuildNanosecondsPerByte: Double?
    /// Cache statistics; `nil` if the purgeable keeps none.
    public var cache: CacheStatistics?
    /// Time for which the purgeable's code has not returned from a call, if a second or more. The other numbers are
    /// then those of the last answer.
    public var unansweredSeconds: Double?
}

extension HolderStatus {
    /// Creates a status from the last answer of `entry`. Without an answer, the held bytes are those of the last
    /// request for memory.
    init(_ entry: PurgeableRegistry.Entry, at now: Duration) {
        let said = entry.answer.withLock { $0 } ?? HolderAnswer(held: ByteCount(entry.held.load(ordering: .relaxed)))
        name = entry.name
        group = entry.place.group.joined(separator: "/")
        tags = entry.place.tags
        rebuildCost = "\(entry.rebuildCost)"
        releasesUnderPressure = entry.isReleasable
        (heldBytes, volatileBytes, limitBytes, cache) = (
            said.held.bytes, said.volatileHeld?.bytes, said.limit?.bytes, said.cache
        )
        // A purgeable may return any number; JSON cannot express infinity.
        rebuildNanosecondsPerByte = entry.lastRate.flatMap { $0.isFinite ? $0 : nil }
        let inside = entry.gate.timeInside(at: now)
        unansweredSeconds = inside < HolderPoll.patience ? nil : inside.inSeconds
    }
}
