import Synchronization

/// The status of a registered purgeable.
package struct HolderStatus: Sendable, Hashable, Codable {
    /// Name of the purgeable; not necessarily unique.
    package var name: String
    /// Group path, names joined by slashes; empty for none.
    package var group: String
    /// Tags given at registration.
    package var tags: [String]
    /// `trivial`, `cheap`, `expensive` or `precious`.
    package var rebuildCost: String
    /// True if the purgeable is asked under pressure.
    package var releasesUnderPressure: Bool
    package var heldBytes: Int
    /// Held bytes in volatile pages, which the kernel may reclaim; `nil` if the purgeable has no volatile memory.
    package var volatileBytes: Int?
    /// Limit in bytes; `nil` for none, or if the limit is not known.
    package var limitBytes: Int?
    /// Observed rebuild time in nanoseconds a byte; `nil` if not known.
    package var rebuildNanosecondsPerByte: Double?
    /// Cache statistics; `nil` if the purgeable keeps none.
    package var cache: CacheStatistics?
    /// The cache's share and miss curve; `nil` if memory is not divided by worth, or the curve is not known.
    package var worth: WorthStatus?
    /// Time for which the purgeable's code has not returned from a call, if a second or more. The other numbers are
    /// then those of the last answer.
    package var unansweredSeconds: Double?
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
        worth = entry.worth.withLock { $0 }.map { WorthStatus($0) }
        let inside = max(entry.gate.timeInside(at: now), entry.statusGate.timeInside(at: now))
        unansweredSeconds = inside < PurgeablePoll.patience ? nil : inside.inSeconds
    }
}

/// Asks purgeables for their status. Application code may block: a caller waits a limited time, and then uses the
/// last answers.
final class PurgeablePoll: Sendable {
    /// Total time to wait for application code.
    static let patience = Duration.seconds(1)
    /// Maximum number of threads inside application code for polls. While all are busy, a poll skips application
    /// code.
    static let most = 4

    private let alarms: Alarms
    private let threads: HandlerThreads
    // Relaxed: an independent count that orders no other memory access.
    private let asking = Atomic<Int>(0)

    init(alarms: Alarms, threads: HandlerThreads) { (self.alarms, self.threads) = (alarms, threads) }

    /// Asks each purgeable for its status, unless a call into that purgeable is under way.
    func ask(_ entries: [PurgeableRegistry.Entry]) {
        let time = alarms.time
        for entry in entries where entry.isPrompt { entry.ask(at: time.elapsed()) }
        let others = entries.filter { !$0.isPrompt }
        guard !others.isEmpty else { return }
        guard asking.add(1, ordering: .relaxed).newValue <= Self.most else {
            asking.subtract(1, ordering: .relaxed)
            return
        }
        let round: @Sendable () -> Void = { [self] in
            for entry in others { entry.ask(at: time.elapsed()) }
            asking.subtract(1, ordering: .relaxed)
        }
        _ = BoundedCalls.run(blocking: [round], within: Self.patience, alarms: alarms, threads: threads)
    }
}

extension PurgeableRegistry.Entry {
    fileprivate func ask(at now: Duration) {
        // Code that does not return from another call would block this thread as well.
        guard !gate.isBusy else { return }
        _ = statusGate.call(at: now) {
            readRate()
            var said = HolderAnswer()
            said.held = ByteCount(min(max(0, purgeable.heldBytes), ReleasePass.mostHeld))
            held.store(said.held.bytes, ordering: .relaxed)
            said.volatileHeld = volatile.map { ByteCount(min(max(0, $0.volatileBytes), said.held.bytes)) }
            if let counting = purgeable as? any CountingPurgeable {
                (said.limit, said.cache) = (counting.holdsAtMost, counting.statistics)
            }
            answer.withLock { [said] in $0 = said }
        }
    }
}
