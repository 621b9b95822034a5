import Synchronization

/// One piece of preserved state: its closures, what has changed since it was saved, and whose turn it is to save it.
///
/// Whoever saves it does so alone; those who ask meanwhile are served together by one more turn, which sees what they saw. The lock guards the
/// state below and is never held in a call of the application's or of the store's.
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
        /// Changes recorded since the last turn began.
        var pending: [[UInt8]] = []
        var pendingBytes = 0
        /// Whether the store lacks what changes could be added to.
        var needsWhole = true
        /// Of the whole that the store holds, if nothing was added to it.
        var lastHash: Int?
        /// Why what the store holds must be moved out of the way before anything is saved.
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

    /// How the bytes of a snapshot lie in the store.
    enum Form: Sendable {
        /// After a header that names the version that wrote them.
        case versioned
        /// As they are.
        case plain
    }

    let name: String
    let store: any StateStore
    private let version: Int
    private let form: Form
    private let takesChanges: Bool
    private let threads: HandlerThreads
    private let gate = CallGate()
    private let state: Mutex<State>

    /// Changes of more bytes than this are dropped, and the whole is saved instead: an append of them would cost as much.
    private static let mostPending = 1 << 20

    init(name: String, store: any StateStore, version: Int, form: Form = .versioned, closures: Closures, threads: HandlerThreads) {
        self.name = name
        self.store = store
        self.version = version
        self.form = form
        self.threads = threads
        takesChanges = closures.apply != nil
        state = Mutex(State(closures: closures))
    }

    /// Nothing of the application's is called any more once this has returned; a call in progress is waited for, except from within it.
    func cancel() {
        let closures = state.withLock { state in
            defer { state.closures = nil }
            return state.closures
        }
        gate.close()
        // They may hold the last reference to something of the application's, which goes here, outside the lock.
        withExtendedLifetime(closures) {}
    }

    // MARK: - Restoring

    /// Brings the state back, once; `nil` if that was done or is being done.
    ///
    /// - Parameter cleanStartReason: if not `nil`, what is kept is set aside instead.
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
                result = startClean("it could not be read: \(error)")
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
        guard let (bytes, version) = form == .plain ? (base, version) : PreservedState.unwrap(base), changes.count == joined.count else {
            return startClean("it was not saved by `preserve`")
        }
        guard version <= self.version else {
            return startClean("it is from a newer version: \(version), and this program reads up to \(self.version)")
        }
        if closures.apply == nil, !changes.isEmpty { return startClean("changes were added to it, and this program gives no `apply`") }
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
        if let failure { return startClean("restoring it failed: \(failure)") }
        state.withLock { state in
            state.needsWhole = version != self.version
            state.lastHash = changes.isEmpty && version == self.version ? PreservedState.hash(base) : nil
        }
        return .restored
    }

    private func startClean(_ reason: String) -> RestoreOutcome.Result {
        do {
            try store.setAside(name, reason: reason)
            return .cleanStart(reason: reason)
        } catch {
            // It stays where it is, and is tried again before anything is written over it.
            state.withLock { $0.asideReason = reason }
            return .cleanStart(reason: "\(reason); it could not be set aside: \(error)")
        }
    }

    // MARK: - Saving

    func record(_ delta: [UInt8]) {
        guard takesChanges else { return }
        let dropped: [[UInt8]] = state.withLock { state in
            guard !state.needsWhole else { return [] }
            state.pending.append(delta)
            state.pendingBytes += delta.count
            guard state.pendingBytes > Self.mostPending else { return [] }
            state.needsWhole = true
            return state.takePending()
        }
        withExtendedLifetime(dropped) {}
    }

    /// Saves what has changed; `done` is called once that is on the medium, or has failed, on this thread or another.
    func save(_ done: @escaping Done) {
        let begins = state.withLock { state in
            state.waiting.append(done)
            defer { state.isSaving = true }
            return !state.isSaving
        }
        if begins { takeTurn() }
    }

    /// Whether there may be something to save: until then the store has all there is.
    var isRestored: Bool { state.withLock { $0.restoring == .done } }

    /// Whether the calling thread is within the snapshot of this very item.
    var isWithin: Bool { state.withLock { $0.saver == Thread.current } }

    private func takeTurn() {
        let round = state.withLock { state in
            state.saver = Thread.current
            defer { state.waiting = [] }
            return state.waiting
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
            throw PreservationFailure(name: name, reason: "what an earlier run left has not been restored yet, and would be lost; launch first")
        }
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
        var snapshot = Swift.Result<[UInt8], any Error>.success([])
        guard gate.call({ snapshot = Swift.Result { try closures.snapshot() } }) else { return }
        let state = try snapshot.get()
        let bytes = form == .plain ? state : PreservedState.wrap(state, version: version)
        let hash = PreservedState.hash(bytes)
        guard self.state.withLock({ $0.lastHash }) != hash else { return }
        self.state.withLock { $0.lastHash = nil }
        try store.write(name, bytes)
        self.state.withLock { $0.lastHash = hash }
    }
}
