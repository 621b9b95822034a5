import Synchronization

/// Asks holders what they hold. Their own code may block: whoever wants to know waits a while, and then makes do with what they said last.
final class HolderPoll: Sendable {
    /// How long others' code is waited for, all of it together.
    static let patience = Duration.seconds(1)
    /// So many threads at most are inside such code for this; until one of them is back, nobody else is asked.
    static let most = 4

    private let alarms: Alarms
    private let threads: HandlerThreads
    // Relaxed: a count on its own; it orders nothing.
    private let asking = Atomic<Int>(0)

    init(alarms: Alarms, threads: HandlerThreads) { (self.alarms, self.threads) = (alarms, threads) }

    /// Has each say what it holds, unless it is being called already.
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

/// What a holder said of itself.
struct HolderAnswer: Sendable {
    var held = ByteCount.zero
    /// `nil` if it has none of the kind.
    var volatileHeld: ByteCount?
    var limit: ByteCount?
    var cache: CacheStatus?
}

/// A holder of this library, none of whose answers waits for anybody else's code.
package protocol PromptPurgeable: Purgeable {}

extension PurgeableCache: PromptPurgeable {}
extension VolatileCache: PromptPurgeable {}
extension PurgeableBuffer: PromptPurgeable {}

extension PurgeableRegistry.Entry {
    fileprivate func ask(at now: Duration) {
        _ = gate.call(at: now) {
            lookAtRate()
            var said = HolderAnswer()
            said.held = ByteCount(min(max(0, purgeable.heldBytes), HolderRound.mostHeld))
            said.volatileHeld = volatile.map { ByteCount(min(max(0, $0.volatileBytes), said.held.bytes)) }
            if let counting = purgeable as? any CountingPurgeable {
                (said.limit, said.cache) = (counting.holdsAtMost, CacheStatus(counting.statistics))
            }
            answer.withLock { [said] in $0 = said }
        }
    }
}
