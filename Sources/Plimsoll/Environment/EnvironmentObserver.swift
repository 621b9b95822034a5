import Synchronization

/// How long a handler of changes took, or has been at it.
public struct EnvironmentCall: Sendable, Hashable {
    /// The name it was registered by.
    public var name: String
    /// Of what it was told; of the last, if it was told of several.
    public var kind: EnvironmentChange.Kind
    /// Running time it took, so far if it has not returned.
    public var took: Duration
    /// Whether it had returned.
    public var isFinished: Bool

    /// A call of that name.
    public init(_ name: String, _ kind: EnvironmentChange.Kind, took: Duration, isFinished: Bool) {
        self.name = name
        self.kind = kind
        self.took = took
        self.isFinished = isFinished
    }
}

/// One handler of changes, its slots, and the job that serves it: one at a time, on a handler thread.
final class EnvironmentObserver: Sendable {
    private struct State {
        var slots = EnvironmentSlots()
        /// Whether a job is on its way or at work.
        var isScheduled = false
        var inside: (kind: EnvironmentChange.Kind, since: Duration)?
        /// What it took since the last `startRound`.
        var round: EnvironmentCall?
    }

    let name: String
    /// Empty for all.
    let kinds: Set<EnvironmentChange.Kind>
    let gate = CallGate()
    private let body: @Sendable (EnvironmentChange) -> Void
    private let state = Mutex(State())

    init(_ name: String, _ kinds: Set<EnvironmentChange.Kind>, _ body: @escaping @Sendable (EnvironmentChange) -> Void) {
        self.name = name
        self.kinds = kinds
        self.body = body
    }

    func wants(_ kind: EnvironmentChange.Kind) -> Bool { kinds.isEmpty || kinds.contains(kind) }

    func add(_ change: EnvironmentChange) { state.withLock { $0.slots.add(change) } }

    /// Whether a job must be started now: then the caller has `work` run on a handler thread.
    func schedule() -> Bool {
        state.withLock { state in
            guard !state.isScheduled, !state.slots.isEmpty else { return false }
            state.isScheduled = true
            return true
        }
    }

    /// Calls the handler until nothing waits or `isHeld`.
    ///
    /// - Parameters:
    ///   - now: running time.
    ///   - watch: called before each call; what it returns is called after it with how long that took.
    func work(
        isHeld: () -> Bool, now: () -> Duration, watch: (EnvironmentChange.Kind) -> (Duration) -> Void
    ) {
        while true {
            let change: EnvironmentChange? = state.withLock { state in
                if !isHeld(), let change = state.slots.take() {
                    state.inside = (change.kind, now())
                    return change
                }
                state.isScheduled = false
                return nil
            }
            guard let change else { return }
            let finish = watch(change.kind)
            _ = gate.call { body(change) }
            let took = state.withLock { state in
                let took = state.inside.map { now() - $0.since } ?? .zero
                state.inside = nil
                state.round = EnvironmentCall(name, change.kind, took: (state.round?.took ?? .zero) + took, isFinished: true)
                return took
            }
            finish(took)
        }
    }

    /// Whether nothing waits and nothing is being done.
    var isIdle: Bool { state.withLock { !$0.isScheduled && $0.slots.isEmpty } }

    func startRound() { state.withLock { $0.round = nil } }

    /// What it was called for since `startRound`; `nil` if it wasn't.
    func round(at now: Duration) -> EnvironmentCall? {
        state.withLock { state in
            guard let inside = state.inside else { return state.round }
            return EnvironmentCall(name, inside.kind, took: (state.round?.took ?? .zero) + (now - inside.since), isFinished: false)
        }
    }
}

/// One who sees changes before all others.
final class EnvironmentInterceptor: Sendable {
    let name: String
    let gate = CallGate()
    private let body: @Sendable (EnvironmentChange) -> EnvironmentChange?

    init(_ name: String, _ body: @escaping @Sendable (EnvironmentChange) -> EnvironmentChange?) {
        self.name = name
        self.body = body
    }

    /// What it makes of `change`; `change` itself if it is cancelled, or stuck in another call.
    func call(_ change: EnvironmentChange) -> EnvironmentChange? {
        var result: EnvironmentChange? = change
        _ = gate.call { result = body(change) }
        return result
    }
}
