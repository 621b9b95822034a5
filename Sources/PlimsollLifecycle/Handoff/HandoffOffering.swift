import Plimsoll
import Synchronization

/// The expiration of one task whose work may be handed over.
///
/// The work is stored at once, held by this process, and freed when the body has stopped. So the work is not lost
/// if the process ends in between, and no two replicas do the work if the process survives.
final class HandoffOffering: Sendable {
    enum Outcome {
        case handedOff
        /// The store accepted nothing, and the work went the way of `BackgroundTask.handOver`.
        case kept(TaskHandoffError)
    }

    private struct State {
        /// True if the body finished; `nil` while the body runs.
        var isFinished: Bool?
        var outcome: Outcome?
    }

    private let state = Mutex(State())
    private let store: any TaskHandoff
    private let checkpoint: HandoffCheckpoint
    private let owner: String
    /// Ends with true if the body has ended.
    private let bodyEnds = Pause()

    init(_ checkpoint: HandoffCheckpoint, to store: any TaskHandoff, as owner: String) {
        (self.checkpoint, self.store, self.owner) = (checkpoint, store, owner)
    }

    var outcome: Outcome? { state.withLock { $0.outcome } }

    /// Records that the body has returned or thrown.
    func bodyEnded(isFinished: Bool) {
        state.withLock { $0.isFinished = isFinished }
        bodyEnds.end(true)
    }

    /// Expiration handler of the task, cancelled at the end of the grace.
    func handOff(_ task: BackgroundTask, _ reason: ExpirationReason) async {
        if state.withLock({ $0.isFinished }) ?? false { return }
        let bytes = checkpoint.last ?? []
        let offer = HandedOffTask(
            id: checkpoint.id, name: checkpoint.name, checkpoint: bytes, reason: reason,
            attempts: checkpoint.attempt - 1)
        // The lease lasts as long as the body may still run, plus a little for the call that frees the work.
        let lease = (task.timeRemaining ?? .seconds(5)) + .seconds(2)
        do throws(TaskHandoffError) {
            let work = try await store.offer(offer, heldBy: owner, for: lease)
            state.withLock { $0.outcome = .handedOff }
            let hasEnded = await withTaskCancellationHandler {
                await bodyEnds.wait()
            } onCancel: {
                bodyEnds.end(false)
            }
            // Without an end of the body, the remaining run time is unknown: the lease frees the work.
            guard hasEnded else { return }
            if state.withLock({ $0.isFinished }) ?? false {
                try await store.complete(work)
                state.withLock { $0.outcome = nil }
            } else {
                let newest = checkpoint.last
                try await store.release(work, checkpoint: newest == bytes ? nil : newest, failure: nil)
            }
        } catch {
            // Once in the store, the work is available to others at the end of the lease at the latest.
            guard outcome == nil else { return }
            var error = error
            error.description += "; the work is kept\(task.handOver(bytes).map { " in memory only: \($0)" } ?? "")"
            state.withLock { [error] in $0.outcome = .kept(error) }
        }
    }
}

/// The progress of work that another replica may have to continue.
public final class HandoffCheckpoint: Sendable {
    /// Name of the task.
    public let name: String
    /// Identifier of the work in the store.
    public let id: String
    /// Point to start from: the last saved checkpoint, from this or another replica; `nil` at the very beginning.
    public let start: [UInt8]?
    /// Number of this attempt, from 1 on.
    public let attempt: Int
    /// Fencing token of this claim, for systems that can reject older tokens (`HandedOffTask.fence`); 0 where
    /// the work was begun.
    public let fence: Int64

    private let state: Mutex<(last: [UInt8]?, isNew: Bool)>

    init(
        _ name: String, id: String = HandedOffTask.newID(), start: [UInt8]?, attempt: Int = 1, fence: Int64 = 0
    ) {
        (self.name, self.id, self.start, self.attempt, self.fence) = (name, id, start, attempt, fence)
        state = Mutex((start, false))
    }

    /// Saves a checkpoint: work before this point need not be repeated. The checkpoint is kept in memory. The store
    /// receives the checkpoint when the work is handed over, and periodically while resumed work runs.
    public func save(_ bytes: [UInt8]) { state.withLock { $0 = (bytes, true) } }

    /// The last saved checkpoint.
    public var last: [UInt8]? { state.withLock { $0.last } }

    /// Takes the checkpoint saved since the last call; `nil` if there is none.
    func takeNew() -> [UInt8]? {
        state.withLock { state in
            guard state.isNew else { return nil }
            state.isNew = false
            return state.last
        }
    }

    /// Marks the checkpoint as new again after a failed write.
    func putBack() { state.withLock { $0.isNew = true } }
}
