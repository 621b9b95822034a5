import Synchronization

/// State that is saved and restored, until `cancel()`. Dropping it does not cancel.
public final class Preserved: Sendable {
    private let item: PreservedItem
    private let remove: @Sendable (PreservedItem) -> Void
    /// How it is restored now if the process has launched already.
    private let restoreNow: @Sendable (PreservedItem) -> RestoreOutcome.Result?

    init(
        _ item: PreservedItem, restoreNow: @escaping @Sendable (PreservedItem) -> RestoreOutcome.Result?,
        remove: @escaping @Sendable (PreservedItem) -> Void
    ) {
        self.item = item
        self.restoreNow = restoreNow
        self.remove = remove
    }

    /// The name it is kept under.
    public var name: String { item.name }

    /// Takes note of a change, to be appended by the next checkpoint in the place of a whole snapshot.
    ///
    /// A change may be applied at restore to a state that has it already, if it was recorded while the snapshot was taken: say "x is 5", not "add 5".
    /// Without `apply` it has no effect, as the whole is saved anyway. Costs a lock and the copy of a reference.
    public func record(_ delta: [UInt8]) { item.record(delta) }

    /// Saves now what has changed. Blocks until it is on the medium; not for the cooperative pool.
    ///
    /// - Throws: what the snapshot or the store throws; then the state saved before is still there.
    public func checkpoint() throws {
        guard !item.isWithin else {
            throw PreservationFailure(name: name, reason: "checkpoint() was called from within its own snapshot; call it elsewhere")
        }
        let parker = Parker()
        let ending = Ending()
        item.save { failure in
            ending.finish(failure)
            parker.unpark()
        }
        while !ending.isFinished { parker.park() }
        if let failure = ending.failure { throw failure }
    }

    /// Restores it now, unless that was done at launch or by an earlier call; `nil` then. Blocks for as long as reading takes.
    @discardableResult
    public func restore() -> RestoreOutcome.Result? { restoreNow(item) }

    /// It is neither saved nor restored any more once this has returned, and stays in the store as it is. Idempotent.
    public func cancel() {
        remove(item)
        item.cancel()
    }

    private final class Ending: Sendable {
        private let state = Mutex<(isFinished: Bool, failure: (any Error)?)>((false, nil))

        var isFinished: Bool { state.withLock { $0.isFinished } }
        var failure: (any Error)? { state.withLock { $0.failure } }
        func finish(_ failure: (any Error)?) { state.withLock { $0 = (true, failure) } }
    }
}
