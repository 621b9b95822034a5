import Synchronization

/// How far work is that another replica may have to go on with.
public final class HandoffCheckpoint: Sendable {
    /// What the task is called.
    public let name: String
    /// Where to begin: what was saved last, here or elsewhere; `nil` at the very beginning.
    public let start: [UInt8]?
    /// The how many-th attempt this is, from 1 on.
    public let attempt: Int
    /// The number of this taking, for what can refuse older ones (`TaskHandoffClaim.fence`); 0 where the work was begun.
    public let fence: Int64

    private let state: Mutex<(last: [UInt8]?, isNew: Bool)>

    init(_ name: String, start: [UInt8]?, attempt: Int = 1, fence: Int64 = 0) {
        (self.name, self.start, self.attempt, self.fence) = (name, start, attempt, fence)
        state = Mutex((start, false))
    }

    /// What comes before this point need not be done again. Kept in memory, and in the store when the work is handed over, or by and by while it is a resumed one.
    public func save(_ bytes: [UInt8]) { state.withLock { $0 = (bytes, true) } }

    /// What was saved last.
    public var last: [UInt8]? { state.withLock { $0.last } }

    /// What was saved since it was last asked for.
    func takeNew() -> [UInt8]? {
        state.withLock { state in
            guard state.isNew else { return nil }
            state.isNew = false
            return state.last
        }
    }

    /// It could not be kept after all.
    func putBack() { state.withLock { $0.isNew = true } }
}

/// What became of work that may be handed over.
public enum HandoffOutcome<Result: Sendable>: Sendable {
    /// It came to its end.
    case finished(Result)
    /// It had to stop; another replica goes on.
    case handedOff(id: String)
    /// It had to stop, and the store took nothing, for that reason: it is handed over by the other way (`BackgroundTask.handOver`), for the sink or the next start
    /// of this service. If the reason is `unanswered`, both may have it.
    case kept(Handover.Place, because: TaskHandoffError)
}
