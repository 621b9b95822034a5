import Synchronization

/// Asks purgeables for their status. Application code may block: a caller waits a limited time, and then uses the
/// last answers.
final class HolderPoll: Sendable {
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
        _ = gate.call(at: now) {
            lookAtRate()
            var said = HolderAnswer()
            said.held = ByteCount(min(max(0, purgeable.heldBytes), HolderRound.mostHeld))
            said.volatileHeld = volatile.map { ByteCount(min(max(0, $0.volatileBytes), said.held.bytes)) }
            if let counting = purgeable as? any CountingPurgeable {
                (said.limit, said.cache) = (counting.holdsAtMost, counting.statistics)
            }
            answer.withLock { [said] in $0 = said }
        }
    }
}
