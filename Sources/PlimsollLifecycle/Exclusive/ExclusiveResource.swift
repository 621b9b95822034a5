import Plimsoll
import Synchronization

/// A resource that only one process, or only a running process, may hold: a lock, a lease, a listening socket, a
/// session with a remote party.
///
///     let lease = ExclusiveResource(
///         "leader", after: ["http"], lease: .seconds(15),
///         release: { try await election.resign() }, reacquire: { epoch in try await election.campaign(epoch) })
///     try lifecycle.exclusive.add(lease)
///     try await lease.withUse { epoch in … ; try lease.check(epoch); try await commit() }
///
/// The resource is released on the way to the background: a frozen process that holds it keeps others waiting and
/// answers no request. The resources named by `after:` are released first, then this one. New uses are refused, uses
/// in flight are waited for, then the resource is released. At the deadline the resource is closed by force and
/// named. On the way back, resources are reacquired in reverse order.
///
/// Typical resources:
/// - A lock that others wait for: flock, fcntl, an advisory lock of a database, a mutex in shared memory.
/// - A lease, held for a limited time independent of this process: leadership, a shard. After a freeze the lease counts
///   as lost, unless the lease time has not run out.
/// - A listening socket. For a frozen process, the kernel goes on accepting connections into a backlog that no thread
///   serves. Close the socket with shutdown(2) and close(2): a child that inherited the socket would keep it listening.
/// - A session with a remote party that is opened and closed in pairs: a serial line, a GPU context, a licence seat
///   (C53).
///
/// *Fencing*: `epoch` rises whenever another process may have held the resource. This happens on reacquisition, after
/// every freeze or host sleep, and when a lease is renewed too late. Work that began earlier finds that `check(_:)`
/// throws, and must not act any more.
public final class ExclusiveResource: Sendable {
    /// The name used in reports and in `after:`.
    public let name: String
    /// Names of the resources that depend on this one. They are released before and reacquired after this resource.
    public let releasedAfter: [String]
    /// The lease time without `renew`, on a clock that runs through freezes and sleep; `nil` if there is no lease, zero
    /// if the time is unknown.
    public let lease: Duration?

    enum Phase { case released, acquiring, held, draining, releasing, stuck }

    struct State {
        var phase: Phase
        var epoch: UInt64 = 1
        /// Increases with each acquisition and loss. Work begun under another number must not touch the resource
        /// (T8).
        var turn: UInt64 = 1
        var uses = 0
        var leasedAt = Duration.zero
        /// True if the resource was released on the way to the background, or lost in a gap, and is to be reacquired.
        var wasHeld = false
        /// True if the way to the background came during an acquisition. What is acquired then is released at once.
        var isAbandoned = false
        /// True if the release under way was late on an earlier way to the background.
        var isLate = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    let state: Mutex<State>
    private let context = AtomicLazyReference<ExclusiveContext>()
    private let drainBody: (@Sendable (Duration) async throws -> Void)?
    private let releaseBody: @Sendable () async throws -> Void
    let forceBody: (@Sendable () -> Void)?
    private let acquireBody: (@Sendable (UInt64) async throws -> Void)?

    /// Creates an exclusive resource.
    ///
    /// - Parameters:
    ///   - name: name used in reports and in `after:`; unique among registered resources.
    ///   - after: names of the resources to release before this one, because they use this one.
    ///   - lease: lease time without `renew`; `nil` for a resource without a lease. With zero the time is unknown, and
    ///     the lease counts as lost after every freeze or sleep.
    ///   - isHeld: true if the resource is held when added.
    ///   - drain: stops new work and finishes work under way, within the given time. Uses in flight are waited for
    ///     separately.
    ///   - release: releases the resource.
    ///   - forceClose: releases the resource at once, even with work under way; called if `release` did not finish in
    ///     time.
    ///   - reacquire: acquires the resource, for the given epoch. Without this closure the resource stays released.
    public init(
        _ name: String, after: [String] = [], lease: Duration? = nil, isHeld: Bool = true,
        drain: (@Sendable (_ timeLeft: Duration) async throws -> Void)? = nil,
        release: @escaping @Sendable () async throws -> Void,
        forceClose: (@Sendable () -> Void)? = nil, reacquire: (@Sendable (_ epoch: UInt64) async throws -> Void)? = nil
    ) {
        self.name = name
        releasedAfter = after
        self.lease = lease
        drainBody = drain
        releaseBody = release
        forceBody = forceClose
        acquireBody = reacquire
        state = Mutex(State(phase: isHeld ? .held : .released))
    }

    /// Attaches the resource to the shared context, permanently. Called on registration.
    func attach(to context: ExclusiveContext) {
        let context = self.context.storeIfNil(context)
        state.withLock { $0.leasedAt = context.boottime }
    }

    // MARK: Reading state

    /// Number of the current hold; rises whenever another process may have held the resource. Pass the number to a
    /// service that can refuse older ones.
    public var epoch: UInt64 { state.withLock { $0.epoch } }

    /// True if the resource is held. False once the lease has run out, even if no thread has noticed.
    public var isHeld: Bool {
        state.withLock { [.held, .draining, .releasing, .stuck].contains($0.phase) && !hasExpired($0) }
    }

    /// Returns true if work that began in `epoch` may still act on the resource.
    public func isCurrent(_ epoch: UInt64) -> Bool {
        if context.load()?.isDoubtful ?? false { return false }
        return state.withLock { $0.epoch == epoch && ($0.phase == .held || $0.phase == .draining) && !hasExpired($0) }
    }

    /// Throws unless work that began in `epoch` may still act on the resource. Call this method right before an
    /// irreversible action.
    public func check(_ epoch: UInt64) throws(ExclusiveResourceError) {
        if isCurrent(epoch) { return }
        if context.load()?.isDoubtful ?? false { throw error(.unverified) }
        let state = state.withLock { ($0.epoch, hasExpired($0)) }
        if state.0 == epoch { throw error(state.1 ? .leaseExpired : .notHeld) }
        throw error(.stale(epoch: epoch, current: state.0))
    }

    private func hasExpired(_ state: State) -> Bool {
        guard let lease, lease > .zero, let context = context.load() else { return false }
        return context.boottime - state.leasedAt >= lease
    }

    private func error(_ reason: ExclusiveResourceError.Reason) -> ExclusiveResourceError {
        .init(resource: name, reason: reason)
    }

    // MARK: Using

    /// Runs `body` while the resource is held. The resource is not released before `body` returns, except by force.
    ///
    /// - Parameter body: receives the epoch to `check`.
    /// - Throws: The error of `body`; `ExclusiveResourceError` without running `body` if the resource is not held, or
    ///   in the background.
    public func withUse<Result>(_ body: (_ epoch: UInt64) throws -> Result) throws -> Result {
        let (epoch, turn) = try beginUse()
        defer { endUse(turn) }
        return try body(epoch)
    }

    /// Runs an asynchronous `body` while the resource is held.
    public func withUse<Result>(_ body: (_ epoch: UInt64) async throws -> Result) async throws -> Result {
        let (epoch, turn) = try beginUse()
        defer { endUse(turn) }
        return try await body(epoch)
    }

    private func beginUse() throws(ExclusiveResourceError) -> (epoch: UInt64, turn: UInt64) {
        if let context = context.load() {
            if context.isClosed { throw violation(context) }
            if context.isDoubtful { throw error(.unverified) }
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
        if refusal == .inBackground, let context = context.load() { throw violation(context) }
        throw error(refusal)
    }

    private func violation(_ context: ExclusiveContext) -> ExclusiveResourceError {
        let error = error(.inBackground)
        context.violated(error)
        return error
    }

    private func endUse(_ turn: UInt64) {
        let waiting = state.withLock { state in
            guard state.turn == turn else { return [] as [CheckedContinuation<Void, Never>] }
            state.uses -= 1
            guard state.uses == 0 else { return [] }
            return exchange(&state.waiting, [])
        }
        for continuation in waiting { continuation.resume() }
    }

    // MARK: Acquiring

    /// Acquires the resource in a new epoch. Does nothing if the resource is held.
    ///
    /// - Throws: The error of `reacquire`; `ExclusiveResourceError` in the background, or if the resource has no
    ///   `reacquire`.
    public func acquire() async throws {
        if let context = context.load(), context.isClosed { throw violation(context) }
        try await take()
    }

    /// Runs `body`, which renews the lease with the grantor. The new lease time counts from before the call.
    ///
    /// If the lease has run out before `body` returns, the renewed hold has a new epoch.
    public func renew(_ body: () async throws -> Void) async throws {
        let (turn, asked) = (state.withLock { $0.turn }, context.load()?.boottime ?? .zero)
        try await body()
        state.withLock { state in
            guard state.turn == turn else { return }
            // Another process may have held the resource after the lease had run out. An acquisition under way has a
            // new epoch already.
            if state.phase != .acquiring, hasExpired(state) { state.epoch += 1 }
            state.leasedAt = asked
        }
    }

    /// Acquires the resource without recording a violation. Checks the ground under the lock, because a late call on
    /// a busy machine may find the process in the background again.
    func take() async throws {
        guard let acquireBody else { throw error(.cannotBeTaken) }
        let context = context.load(), asked = context?.boottime ?? .zero
        var isTooLate = false
        let begun: (epoch: UInt64, turn: UInt64)? = state.withLock { state in
            // Under the lock: the releaser closes the ground first and then visits each resource. Either the releaser
            // finds this acquisition, or this code finds the ground closed.
            isTooLate = context?.isClosed == true
            guard !isTooLate else { return nil }
            guard state.phase == .released || state.phase == .held && hasExpired(state) else { return nil }
            (state.phase, state.isLate) = (.acquiring, false)
            // The epoch rises at once, so that a freeze during the acquisition makes the resource being acquired
            // stale too.
            state.epoch += 1
            state.turn += 1
            return (state.epoch, state.turn)
        }
        if isTooLate { throw error(.inBackground) }
        guard let begun else { return }
        do {
            try await acquireBody(begun.epoch)
        } catch {
            let wasAbandoned = state.withLock { state in
                state.phase = .released
                return exchange(&state.isAbandoned, false)
            }
            guard wasAbandoned, context?.isClosed == false else { throw error }
            return try await take()
        }
        let (wasAbandoned, isLost) = state.withLock { state in
            let wasAbandoned = exchange(&state.isAbandoned, false)
            // Granted before a gap that ended during the call: a lease of unknown time counts as lost.
            let isLost = state.epoch != begun.epoch && lease.map { $0 <= .zero } ?? false
            state.phase = isLost ? .released : wasAbandoned ? .draining : .held
            (state.uses, state.leasedAt, state.wasHeld) = (0, asked, wasAbandoned || isLost)
            return (wasAbandoned, isLost)
        }
        if isLost { return try await take() }
        // The acquisition took so long that the process went to the background meanwhile. The release acquires the
        // resource again if the process is back by then.
        if wasAbandoned { try await release(begun.turn) { .zero } }
    }

    // MARK: Releasing

    /// Refuses further uses. Returns the turn under which to release the resource, or `nil` if there is nothing to
    /// release.
    func beginRelease() -> UInt64? {
        state.withLock { state in
            switch state.phase {
            case .held:
                (state.wasHeld, state.isLate) = (true, false)
                // A lease that has run out may already belong to another process.
                guard !hasExpired(state) else {
                    state.phase = .released
                    return nil
                }
                state.phase = .draining
                return state.turn
            case .acquiring:
                // Until the acquiring task has released the resource, no second acquisition may begin.
                (state.isAbandoned, state.wasHeld) = (true, true)
                return nil
            case .draining, .releasing, .stuck: return state.turn
            case .released: return nil
            }
        }
    }

    /// Drains, waits for the uses in flight, and releases the resource once, even if several tasks try.
    func release(_ turn: UInt64, timeLeft: @Sendable () -> Duration) async throws {
        var problem: (any Error)?
        do { try await drainBody?(timeLeft()) } catch { problem = error }
        await othersEnded(turn)
        guard advance(turn, from: .draining, to: .releasing) else {
            // Another task has begun to release the resource. Not done before that one is.
            await othersEnded(turn)
            if state.withLock({ $0.turn == turn && $0.phase != .released }) { throw error(.notReleased) }
            return
        }
        do { try await releaseBody() } catch {
            // The next release calls the body again.
            _ = advance(turn, from: .releasing, to: .held)
            throw error
        }
        _ = advance(turn, from: .releasing, to: .released)
        // The release ended so late that the process is in front again, and needs the resource.
        if let context = context.load(), !context.isClosed, isAwaited { try await take() }
        if let problem { throw problem }
    }

    /// Waits for the uses in flight, and for a release or a forced close under way.
    private func othersEnded(_ turn: UInt64) async {
        await withCheckedContinuation { continuation in
            let isOver = state.withLock { state in
                let isBusy = state.phase == .draining && state.uses > 0
                guard state.turn == turn, isBusy || state.phase == .releasing || state.phase == .stuck else {
                    return true
                }
                state.waiting.append(continuation)
                return false
            }
            if isOver { continuation.resume() }
        }
    }

    private func advance(_ turn: UInt64, from: Phase, to: Phase) -> Bool {
        let waiting: [CheckedContinuation<Void, Never>]? = state.withLock { state in
            guard state.turn == turn, state.phase == from else { return nil }
            state.phase = to
            return exchange(&state.waiting, [])
        }
        for continuation in waiting ?? [] { continuation.resume() }
        return waiting != nil
    }

    /// Takes over from a release that is too late: `forceBody` releases the resource now.
    ///
    /// - Returns: False if the resource was released meanwhile, or if a forced close is under way.
    func beginForce(_ turn: UInt64) -> Bool {
        let waiting: [CheckedContinuation<Void, Never>]? = state.withLock { state in
            guard state.turn == turn, state.phase != .released, state.phase != .stuck else { return nil }
            state.turn += 1
            (state.phase, state.uses) = (.stuck, 0)
            return exchange(&state.waiting, [])
        }
        for continuation in waiting ?? [] { continuation.resume() }
        return waiting != nil
    }

    /// Records that a way to the background ends before the release or the forced close does.
    func markLate() { state.withLock { if Self.isReleasing($0.phase) { $0.isLate = true } } }

    /// True while a release or a forced close hangs that was late on an earlier way to the background. The task that
    /// began the release also completes it.
    var hangs: Bool { state.withLock { $0.isLate && Self.isReleasing($0.phase) } }

    private static func isReleasing(_ phase: Phase) -> Bool { [.draining, .releasing, .stuck].contains(phase) }

    func forced() { _ = advance(state.withLock { $0.turn }, from: .stuck, to: .released) }

    // MARK: Gaps

    /// Handles a gap, in which the process did not run: another process may have held the resource.
    func gapEnded() {
        state.withLock { state in
            state.epoch += 1
            guard let lease, state.phase == .held, lease <= .zero || hasExpired(state) else { return }
            (state.phase, state.wasHeld) = (.released, true)
            state.turn += 1
        }
    }

    /// True while an acquisition is under way that the way to the background has overtaken.
    var isAbandoned: Bool { state.withLock { $0.isAbandoned } }

    /// True if the resource is to be reacquired.
    var isAwaited: Bool {
        acquireBody != nil
            && state.withLock { ($0.phase == .released && $0.wasHeld) || ($0.phase == .held && hasExpired($0)) }
    }
}
