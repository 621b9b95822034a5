import Plimsoll
import Synchronization

/// One piece of preserved state: its closures, the changes since the last save, and the queue of savers.
///
/// Saves run one at a time. All requests made during a save share one further save, which covers their changes. The
/// lock guards the state below, and is never held during a call of the application or the store.
final class PreservedItem: Sendable {
    struct Closures: Sendable {
        var snapshot: @Sendable () throws -> [UInt8]
        var restore: @Sendable ([UInt8], Int) throws -> Void
        var apply: (@Sendable ([UInt8], Int) throws -> Void)?
        var reset: (@Sendable () -> Void)?
    }

    typealias Done = @Sendable ((any Error)?) -> Void

    private struct State {
        var closures: Closures?
        var restoring = Restoring.notYet
        var isSaving = false
        /// The thread that saves, or 0.
        var saver: UInt = 0
        var waiting: [Done] = []
        /// The changes recorded since the last save began.
        var pending: [[UInt8]] = []
        var pendingBytes = 0
        /// True if the store holds no whole state that changes could be appended to.
        var needsWhole = true
        /// True if a change was recorded, and dropped, before the store was found to hold a whole state.
        var hasDropped = false
        /// The hash of the whole state in the store; `nil` if changes were appended.
        var lastHash: Int?
        /// The reason to set aside the stored bytes before the next save.
        var asideReason: String?

        mutating func takePending() -> [[UInt8]] {
            defer { (pending, pendingBytes) = ([], 0) }
            return pending
        }

        mutating func putBack(_ deltas: [[UInt8]]) {
            guard !needsWhole else { return }
            pending = deltas + pending
            pendingBytes = pending.reduce(0) { $0 + $1.count }
        }
    }

    private enum Restoring { case notYet, running, done }

    /// The format of a snapshot in the store.
    enum Form: Sendable {
        /// With a header that names the version of the bytes.
        case versioned
        /// Without a header.
        case plain
    }

    let name: String
    let store: any StateStore
    private let version: Int
    private let form: Form
    private let takesChanges: Bool
    private let threads: HandlerThreads
    let gate = CallGate()
    private let state: Mutex<State>

    /// The most bytes of pending changes. Larger changes are dropped and the whole is saved: appending them would
    /// cost as much.
    private static let mostPending = 1 << 20

    init(
        name: String, store: any StateStore, version: Int, form: Form = .versioned, closures: Closures,
        threads: HandlerThreads
    ) {
        self.name = name
        self.store = store
        self.version = version
        self.form = form
        self.threads = threads
        takesChanges = closures.apply != nil
        state = Mutex(State(closures: closures))
    }

    /// Ends all calls into the application, and all saving. Waits for a call or a save in progress, except from within.
    func cancel() {
        let closures = state.withLock { exchange(&$0.closures, nil) }
        gate.close()
        // The closures may hold the last reference to an object of the application, which is released here, outside
        // the lock.
        withExtendedLifetime(closures) {}
    }

    // MARK: - Restoring

    /// Restores the state once; `nil` if restoring is done or in progress.
    ///
    /// - Parameter cleanStartReason: reason to set the stored bytes aside instead; `nil` to restore.
    func restore(cleanStartReason: String?) -> RestoreOutcome.Result? {
        let closures: Closures? = state.withLock { state in
            guard state.restoring == .notYet, let closures = state.closures else { return nil }
            state.restoring = .running
            return closures
        }
        guard let closures else { return nil }
        let result: RestoreOutcome.Result
        if let cleanStartReason {
            result = startClean(cleanStartReason)
        } else {
            do {
                result = try load(closures)
            } catch {
                result = startClean("reading failed: \(error)")
            }
        }
        state.withLock { $0.restoring = .done }
        return result
    }

    private func load(_ closures: Closures) throws -> RestoreOutcome.Result {
        let stored = try store.load(name)
        guard case .state(let base, let joined) = stored else {
            if case .setAside(let reason) = stored { return .cleanStart(reason: reason) }
            return .none
        }
        let changes = joined.compactMap(PreservedState.split)
        guard let (bytes, version) = form == .plain ? (base, version) : PreservedState.unwrap(base),
            changes.count == joined.count
        else {
            return startClean("the data was not saved by `preserve`")
        }
        guard version <= self.version else {
            return startClean("the data has the newer version \(version); this program reads up to \(self.version)")
        }
        if closures.apply == nil, !changes.isEmpty {
            return startClean("the data has appended changes, and this program passes no `apply`")
        }
        var failure: (any Error)?
        let wasCalled = gate.call {
            do {
                try closures.restore(bytes, version)
                for change in changes.joined() { try closures.apply?(change, version) }
            } catch {
                failure = error
                closures.reset?()
            }
        }
        guard wasCalled else { return .none }
        if let failure { return startClean("restoring failed: \(failure)") }
        state.withLock { state in
            // A change that came during the restoring is in no record: only the whole state has the change.
            state.needsWhole = version != self.version || state.hasDropped
            state.lastHash = changes.isEmpty && version == self.version ? PreservedState.hash(base) : nil
        }
        return .restored
    }

    private func startClean(_ reason: String) -> RestoreOutcome.Result {
        do {
            try store.setAside(name, reason: reason)
            return .cleanStart(reason: reason)
        } catch {
            // The bytes stay in place. The next save tries again to set them aside before it overwrites them.
            state.withLock { $0.asideReason = reason }
            return .cleanStart(reason: "\(reason); setting the data aside failed: \(error)")
        }
    }

    // MARK: - Saving

    func record(_ delta: [UInt8]) {
        guard takesChanges else { return }
        let dropped: [[UInt8]] = state.withLock { state in
            guard !state.needsWhole else {
                state.hasDropped = true
                return []
            }
            state.pending.append(delta)
            state.pendingBytes += delta.count
            guard state.pendingBytes > Self.mostPending else { return [] }
            state.needsWhole = true
            return state.takePending()
        }
        withExtendedLifetime(dropped) {}
    }

    /// Saves what has changed. Calls `done` once the data is on the medium or the save has failed, on this thread or
    /// another.
    func save(_ done: @escaping Done) {
        let begins = state.withLock { state in
            state.waiting.append(done)
            return !exchange(&state.isSaving, true)
        }
        if begins { takeTurn() }
    }

    /// True once there may be changes to save. Before restoring, the store holds the whole state.
    var isRestored: Bool { state.withLock { $0.restoring == .done } }

    /// True if the calling thread is within the snapshot of this very item.
    var isWithin: Bool { state.withLock { $0.saver == Thread.current } }

    private func takeTurn() {
        let round = state.withLock { state in
            state.saver = Thread.current
            return exchange(&state.waiting, [])
        }
        var failure: (any Error)?
        do { try write() } catch { failure = error }
        let goesOn = state.withLock { state in
            state.saver = 0
            state.isSaving = !state.waiting.isEmpty
            return state.isSaving
        }
        if goesOn { threads.run { self.takeTurn() } }
        for done in round { done(failure) }
    }

    private func write() throws {
        guard state.withLock({ $0.restoring == .done }) else {
            throw PreservationFailure(
                name: name,
                reason: "the state of an earlier run is not restored yet and would be lost; launch first")
        }
        var result = Swift.Result<Void, any Error>.success(())
        // All of the save, so that the store is left alone once `cancel()` has returned.
        _ = gate.call { result = Swift.Result { try writeChanged() } }
        try result.get()
    }

    private func writeChanged() throws {
        if let reason = state.withLock({ $0.asideReason }) {
            try store.setAside(name, reason: reason)
            state.withLock { $0.asideReason = nil }
        }
        let (closures, pending, needsWhole) = state.withLock { state in
            defer { state.needsWhole = false }
            return (state.closures, state.takePending(), state.needsWhole)
        }
        guard let closures else { return }
        if takesChanges, !needsWhole {
            do {
                if try pending.isEmpty || store.append(PreservedState.join(pending), to: name) {
                    if !pending.isEmpty { state.withLock { $0.lastHash = nil } }
                    return
                }
            } catch {
                state.withLock { $0.putBack(pending) }
                throw error
            }
        }
        do {
            try writeWhole(closures)
        } catch {
            state.withLock { $0.needsWhole = true }
            throw error
        }
    }

    private func writeWhole(_ closures: Closures) throws {
        let state = try closures.snapshot()
        let bytes = form == .plain ? state : PreservedState.wrap(state, version: version)
        let hash = PreservedState.hash(bytes)
        guard self.state.withLock({ $0.lastHash }) != hash else { return }
        self.state.withLock { $0.lastHash = nil }
        try store.write(name, bytes)
        self.state.withLock { $0.lastHash = hash }
    }
}
