import Plimsoll
import Synchronization

/// A handle to state that is saved and restored until `cancel()`. Dropping the handle does not cancel.
public final class Preserved: Sendable {
    private let item: PreservedItem
    private let remove: @Sendable (PreservedItem) -> Void
    /// Restores the state at once if the process has already launched.
    private let restoreNow: @Sendable (PreservedItem) -> RestoreOutcome?

    init(
        _ item: PreservedItem, restoreNow: @escaping @Sendable (PreservedItem) -> RestoreOutcome?,
        remove: @escaping @Sendable (PreservedItem) -> Void
    ) {
        self.item = item
        self.restoreNow = restoreNow
        self.remove = remove
    }

    /// The name of the state.
    public var name: String { item.name }

    /// Records a change. The next checkpoint appends the change instead of a whole snapshot.
    ///
    /// A change recorded while the snapshot was taken may be applied at restore to a state that already contains the
    /// change. Therefore changes must be idempotent: "x is 5", not "add 5". Without `apply` this method has no
    /// effect, as the whole state is saved anyway. Costs a lock and the copy of a reference.
    public func record(_ delta: [UInt8]) { item.record(delta) }

    /// Saves what has changed. Blocks until the data is on the medium; do not call on the cooperative pool.
    ///
    /// - Throws: The error of the snapshot or the store. The state saved before is then still there.
    public func checkpoint() throws {
        guard !item.isWithin else {
            throw PreservationFailure(
                name: name, reason: "checkpoint() was called from within its own snapshot; call it elsewhere")
        }
        let parker = Parker(), end = Mutex<Result<Void, any Error>?>(nil)
        item.save { failure in
            end.withLock { $0 = failure.map { .failure($0) } ?? .success(()) }
            parker.unpark()
        }
        while true {
            if let result = end.withLock({ $0 }) { return try result.get() }
            parker.park()
        }
    }

    /// Restores this state alone now; `nil` if that was done at launch or by an earlier call. Blocks while reading.
    @discardableResult
    public func restore() -> RestoreOutcome? { restoreNow(item) }

    /// Stops saving and restoring once this method has returned. The store keeps the state unchanged. Waits for a save
    /// in progress. Idempotent.
    public func cancel() {
        remove(item)
        item.cancel()
    }
}
