public import Plimsoll
import Synchronization

/// The progress of work that another replica may have to continue.
public final class HandoffCheckpoint: Sendable {
    /// Name of the task.
    public let name: String
    /// Point to start from: the last saved checkpoint, from this or another replica; `nil` at the very beginning.
    public let start: [UInt8]?
    /// Number of this attempt, from 1 on.
    public let attempt: Int
    /// Fencing token of this claim, for systems that can reject older tokens (`TaskHandoffClaim.fence`); 0 where
    /// the work was begun.
    public let fence: Int64

    private let state: Mutex<(last: [UInt8]?, isNew: Bool)>

    init(_ name: String, start: [UInt8]?, attempt: Int = 1, fence: Int64 = 0) {
        (self.name, self.start, self.attempt, self.fence) = (name, start, attempt, fence)
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

/// The outcome of work that may be handed over.
public enum HandoffOutcome<Result: Sendable>: Sendable {
    /// The work finished.
    case finished(Result)
    /// The work had to stop; another replica continues.
    case handedOff(id: String)
    /// The work had to stop, and the store accepted nothing, for the given reason. The work was handed over through
    /// `BackgroundTask.handOver`, for the sink or the next start of this service. If the reason is `unanswered`,
    /// both may have the work.
    case kept(Handover.Place, because: TaskHandoffError)
}
