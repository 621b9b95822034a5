import Synchronization

/// Something that only one process, or only a process that runs, may hold: a lock, a lease, a listening socket, a session with somebody outside.
///
///     let lease = ExclusiveResource(
///         "leader", kind: .lease, after: ["http"], lease: .seconds(15),
///         release: { try await election.resign() }, reacquire: { epoch in try await election.campaign(epoch) })
///     try lifecycle.exclusive.add(lease)
///     try await lease.withUse { epoch in … ; try lease.check(epoch); try await commit() }
///
/// On the way to the background it is given back: a process that is frozen holding it keeps everybody else waiting, and answers nobody. First those that
/// come `after:`, then this one: new uses are refused, those in flight are waited for, then it is released; at the deadline it is closed by force and named.
/// On the way back it is taken again, in reverse order.
///
/// *Fencing*: each time it may have been another's meanwhile its `epoch` rises: when it is taken again, and after every freeze or sleep of the host. Work that
/// began before finds that `check(_:)` throws, and must not act any more.
public final class ExclusiveResource: Sendable {
    /// What it is.
    public enum Kind: String, Sendable, Hashable, CaseIterable {
        /// A lock that others wait for: flock, fcntl, an advisory lock of a database, a mutex in shared memory.
        case lock
        /// Held for a time only, whatever becomes of this process: leadership, a lease on a shard. After a freeze it counts as lost unless its time says otherwise.
        case lease
        /// A socket that listens. The kernel goes on accepting for a frozen process, into a backlog that nobody serves. Close it by shutdown(2) and close(2): a
        /// child that inherited it would keep it listening.
        case listener
        /// A session with somebody outside that is opened and closed in pairs: a serial line, a GPU context, a licence seat (C53).
        case session
    }

    /// How reports and `after:` name it.
    public let name: String
    /// What it is.
    public let kind: Kind
    /// What is given back before it, because it depends on it, and taken again after it.
    public let releasedAfter: [String]
    /// How long it is held without `renew`, by a time that goes on through freezes and sleep; `nil` if it has no time.
    public let leaseTime: Duration?

    enum Phase { case released, acquiring, held, draining, releasing, stuck }

    struct State {
        var phase: Phase
        var epoch: UInt64 = 1
        /// Grows each time it is taken or given up: what was begun under another number must not touch it (T8).
        var turn: UInt64 = 1
        var uses = 0
        var leasedAt = Duration.zero
        /// Whether it was given back by the way to the background, or lost in a gap, and is to be taken again.
        var wasHeld = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    let state: Mutex<State>
    private let ground = AtomicLazyReference<ExclusiveGround>()
    private let drainBody: (@Sendable (Duration) async throws -> Void)?
    private let releaseBody: @Sendable () async throws -> Void
    let forceBody: (@Sendable () -> Void)?
    private let acquireBody: (@Sendable (UInt64) async throws -> Void)?

    /// - Parameters:
    ///   - name: how reports and `after:` name it; one of a name is registered at a time.
    ///   - kind: what it is.
    ///   - after: names of what is to be given back before it: whatever uses it.
    ///   - lease: how long it is held without `renew`. A lease without a time counts as lost after every freeze or sleep.
    ///   - isHeld: whether it is held when it is added.
    ///   - drain: stops new work and finishes what is under way, within the time it gets. Uses in flight are waited for by themselves.
    ///   - release: gives it back.
    ///   - forceClose: gives it back at once, whatever is under way; called if `release` did not come to its end in time.
    ///   - reacquire: takes it, for that epoch. Without one it stays released.
    public init(
        _ name: String, kind: Kind = .lock, after: [String] = [], lease: Duration? = nil, isHeld: Bool = true,
        drain: (@Sendable (_ timeLeft: Duration) async throws -> Void)? = nil, release: @escaping @Sendable () async throws -> Void,
        forceClose: (@Sendable () -> Void)? = nil, reacquire: (@Sendable (_ epoch: UInt64) async throws -> Void)? = nil
    ) {
        self.name = name
        self.kind = kind
        releasedAfter = after
        leaseTime = lease
        drainBody = drain
        releaseBody = release
        forceBody = forceClose
        acquireBody = reacquire
        state = Mutex(State(phase: isHeld ? .held : .released))
    }

    /// Registered: it stands on that ground now, for good.
    func stand(on ground: ExclusiveGround) {
        let ground = self.ground.storeIfNil(ground)
        state.withLock { $0.leasedAt = ground.boottime }
    }

    // MARK: Looking

    /// Number of the present hold; rises whenever it may have been another's. Hand it to whoever can refuse older ones.
    public var epoch: UInt64 { state.withLock { $0.epoch } }

    /// Whether it is held: not once its lease has run out, even if nobody has noticed.
    public var isHeld: Bool { state.withLock { [.held, .draining, .releasing, .stuck].contains($0.phase) && !hasExpired($0) } }

    /// Whether work that began in `epoch` may still act on it.
    public func isCurrent(_ epoch: UInt64) -> Bool {
        if ground.load()?.isDoubtful ?? false { return false }
        return state.withLock { $0.epoch == epoch && ($0.phase == .held || $0.phase == .draining) && !hasExpired($0) }
    }

    /// Throws unless work that began in `epoch` may still act on it. Call it right before what cannot be undone.
    public func check(_ epoch: UInt64) throws(ExclusiveResourceError) {
        if isCurrent(epoch) { return }
        if ground.load()?.isDoubtful ?? false { throw error(.unsettled) }
        let state = state.withLock { ($0.epoch, hasExpired($0)) }
        if state.0 == epoch { throw error(state.1 ? .leaseExpired : .notHeld) }
        throw error(.stale(epoch: epoch, current: state.0))
    }

    private func hasExpired(_ state: State) -> Bool {
        guard let leaseTime, let ground = ground.load() else { return false }
        return ground.boottime - state.leasedAt >= leaseTime
    }

    private func error(_ reason: ExclusiveResourceError.Reason) -> ExclusiveResourceError { .init(resource: name, reason: reason) }

    // MARK: Using

    /// Runs `body` while it is held. It is not given back before `body` returns, except by force.
    ///
    /// - Parameter body: gets the epoch to `check`.
    /// - Throws: what `body` throws; `ExclusiveResourceError` without running it if it is not held, or in the background.
    public func withUse<Result>(_ body: (_ epoch: UInt64) throws -> Result) throws -> Result {
        let (epoch, turn) = try beginUse()
        defer { endUse(turn) }
        return try body(epoch)
    }

    /// The same for a body that waits.
    public func withUse<Result>(_ body: (_ epoch: UInt64) async throws -> Result) async throws -> Result {
        let (epoch, turn) = try beginUse()
        defer { endUse(turn) }
        return try await body(epoch)
    }

    private func beginUse() throws(ExclusiveResourceError) -> (epoch: UInt64, turn: UInt64) {
        if let ground = ground.load() {
            if ground.isClosed { throw violation(ground) }
            if ground.isDoubtful { throw error(.unsettled) }
        }
        var refusal: ExclusiveResourceError.Reason?
        let begun: (epoch: UInt64, turn: UInt64) = state.withLock { state in
            if state.phase != .held {
                refusal = state.phase == .draining ? .inBackground : .notHeld
            } else if hasExpired(state) {
                refusal = .leaseExpired
            } else {
                state.uses += 1
            }
            return (state.epoch, state.turn)
        }
        guard let refusal else { return begun }
        if refusal == .inBackground, let ground = ground.load() { throw violation(ground) }
        throw error(refusal)
    }

    private func violation(_ ground: ExclusiveGround) -> ExclusiveResourceError {
        let error = error(.inBackground)
        ground.violated(error)
        return error
    }

    private func endUse(_ turn: UInt64) {
        let waiting = state.withLock { state in
            guard state.turn == turn else { return [] as [CheckedContinuation<Void, Never>] }
            state.uses -= 1
            guard state.uses == 0 else { return [] }
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }

    // MARK: Taking

    /// Takes it, in a new epoch; does nothing if it is held.
    ///
    /// - Throws: what `reacquire` throws; `ExclusiveResourceError` in the background, or if it has no `reacquire`.
    public func acquire() async throws {
        if let ground = ground.load(), ground.isClosed { throw violation(ground) }
        try await take()
    }

    /// Runs `body`, which renews the lease with whoever grants it; its time counts from before that.
    public func renew(_ body: () async throws -> Void) async throws {
        let (turn, asked) = (state.withLock { $0.turn }, ground.load()?.boottime ?? .zero)
        try await body()
        state.withLock { if $0.turn == turn { $0.leasedAt = asked } }
    }

    /// The same for who has looked where the process is, or is to look here: a call that comes late, on a busy machine, may find it in the background again.
    func take() async throws {
        guard let acquireBody else { throw error(.cannotBeTaken) }
        let ground = ground.load(), asked = ground?.boottime ?? .zero
        var isTooLate = false
        let begun: (epoch: UInt64, turn: UInt64)? = state.withLock { state in
            // Under the lock: who gives back closes the ground first and then asks each resource, so it finds what we begin or we find the ground closed.
            isTooLate = ground?.isClosed == true
            guard !isTooLate else { return nil }
            guard state.phase == .released || state.phase == .held && hasExpired(state) else { return nil }
            state.phase = .acquiring
            // At once, so that a freeze in the midst of it makes what was being taken stale as well.
            state.epoch += 1
            state.turn += 1
            return (state.epoch, state.turn)
        }
        if isTooLate { throw error(.inBackground) }
        guard let begun else { return }
        do {
            try await acquireBody(begun.epoch)
        } catch {
            state.withLock { if $0.turn == begun.turn { $0.phase = .released } }
            throw error
        }
        let isOurs = state.withLock { state in
            guard state.turn == begun.turn else { return false }
            (state.phase, state.uses, state.leasedAt, state.wasHeld) = (.held, 0, asked, false)
            return true
        }
        // It took so long that the process has gone to the background meanwhile: back with it.
        if !isOurs { try await releaseBody() }
    }

    // MARK: Giving back

    /// Refuses further uses; the number under which it is to be given back, `nil` if there is nothing to give back.
    func beginRelease() -> UInt64? {
        state.withLock { state in
            switch state.phase {
            case .held:
                state.wasHeld = true
                // What has run out is another's already.
                guard !hasExpired(state) else {
                    state.phase = .released
                    return nil
                }
                state.phase = .draining
                return state.turn
            case .acquiring:
                // Whoever is taking it finds another number and gives it back.
                (state.phase, state.wasHeld) = (.released, true)
                state.turn += 1
                return nil
            case .draining, .releasing, .stuck: return state.turn
            case .released: return nil
            }
        }
    }

    /// Drains, waits for the uses in flight, gives it back: once, whoever comes first.
    func release(_ turn: UInt64, timeLeft: @Sendable () -> Duration) async throws {
        var problem: (any Error)?
        do { try await drainBody?(timeLeft()) } catch { problem = error }
        await usesEnded(turn)
        guard advance(turn, from: .draining, to: .releasing) else { return }
        try await releaseBody()
        _ = advance(turn, from: .releasing, to: .released)
        // So late that the process is in front again: what was given back is wanted.
        if let ground = ground.load(), !ground.isClosed, isAwaited { try await take() }
        if let problem { throw problem }
    }

    private func usesEnded(_ turn: UInt64) async {
        await withCheckedContinuation { continuation in
            let isOver = state.withLock { state in
                guard state.turn == turn, state.phase == .draining, state.uses > 0 else { return true }
                state.waiting.append(continuation)
                return false
            }
            if isOver { continuation.resume() }
        }
    }

    private func advance(_ turn: UInt64, from: Phase, to: Phase) -> Bool {
        state.withLock { state in
            guard state.turn == turn, state.phase == from else { return false }
            state.phase = to
            return true
        }
    }

    /// Whoever was giving it back is too late: `forceBody` does it now.
    ///
    /// - Returns: false if it was given back meanwhile.
    func beginForce(_ turn: UInt64) -> Bool {
        let waiting: [CheckedContinuation<Void, Never>]? = state.withLock { state in
            guard state.turn == turn, state.phase != .released else { return nil }
            state.turn += 1
            (state.phase, state.uses) = (.stuck, 0)
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting ?? [] { continuation.resume() }
        return waiting != nil
    }

    func forced() { state.withLock { if $0.phase == .stuck { $0.phase = .released } } }

    // MARK: Gaps

    /// The process did not run for a while: what it held may have been another's meanwhile.
    func gapEnded() {
        state.withLock { state in
            state.epoch += 1
            guard kind == .lease, state.phase == .held, leaseTime == nil || hasExpired(state) else { return }
            (state.phase, state.wasHeld) = (.released, true)
            state.turn += 1
        }
    }

    /// Whether it is to be taken again.
    var isAwaited: Bool { acquireBody != nil && state.withLock { ($0.phase == .released && $0.wasHeld) || ($0.phase == .held && hasExpired($0)) } }
}
