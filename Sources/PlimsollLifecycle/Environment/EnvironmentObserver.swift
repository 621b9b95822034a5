import Plimsoll
import Synchronization

/// The time that a handler of changes took, or has taken so far.
struct EnvironmentCall: Sendable, Hashable {
    /// The name under which the handler was registered.
    var name: String
    /// The kind of change that was handled; the last one, if there were several.
    var kind: EnvironmentChange.Kind
    /// Running time that the call took, so far if it has not returned.
    var took: Duration
    /// True if the call had returned.
    var isFinished: Bool

    init(_ name: String, _ kind: EnvironmentChange.Kind, took: Duration, isFinished: Bool) {
        self.name = name
        self.kind = kind
        self.took = took
        self.isFinished = isFinished
    }
}

/// A handler of changes, with slots. One job at a time serves them, on a handler thread.
final class EnvironmentObserver: Sendable {
    private struct State {
        var slots = EnvironmentSlots()
        /// True if a job is queued or running.
        var isScheduled = false
        var inside: (kind: EnvironmentChange.Kind, since: Duration)?
        /// The calls since the last `startRound`, with their times added up.
        var round: EnvironmentCall?
    }

    let name: String
    /// The kinds to handle; empty means all.
    let kinds: Set<EnvironmentChange.Kind>
    let gate = CallGate()
    private let body: @Sendable (EnvironmentChange) -> Void
    private let state = Mutex(State())

    init(_ name: String, _ kinds: Set<EnvironmentChange.Kind>, _ body: @escaping @Sendable (EnvironmentChange) -> Void)
    {
        self.name = name
        self.kinds = kinds
        self.body = body
    }

    func wants(_ kind: EnvironmentChange.Kind) -> Bool { kinds.isEmpty || kinds.contains(kind) }

    func add(_ change: EnvironmentChange) { state.withLock { $0.slots.add(change) } }

    /// Returns true if a job must be started now. The caller then runs `work` on a handler thread.
    func schedule() -> Bool {
        state.withLock { state in
            guard !state.isScheduled, !state.slots.isEmpty else { return false }
            state.isScheduled = true
            return true
        }
    }

    /// Calls the handler until no change waits or `isHeld` returns true.
    ///
    /// - Parameters:
    ///   - isHeld: tells whether changes are held back.
    ///   - now: running time.
    ///   - watch: called before each call. The returned closure is called after, with the time taken.
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
                state.round = EnvironmentCall(
                    name, change.kind, took: (state.round?.took ?? .zero) + took, isFinished: true)
                return took
            }
            finish(took)
        }
    }

    /// True if no change waits and no job is queued or running.
    var isIdle: Bool { state.withLock { !$0.isScheduled && $0.slots.isEmpty } }

    func startRound() { state.withLock { $0.round = nil } }

    /// Returns the call since `startRound`, with the total time; `nil` if there was none.
    func round(at now: Duration) -> EnvironmentCall? {
        state.withLock { state in
            guard let inside = state.inside else { return state.round }
            return EnvironmentCall(
                name, inside.kind, took: (state.round?.took ?? .zero) + (now - inside.since), isFinished: false)
        }
    }
}

/// An interceptor, which sees changes before all handlers, readers and derived values.
final class EnvironmentInterceptor: Sendable {
    let name: String
    let gate = CallGate()
    private let body: @Sendable (EnvironmentChange) -> EnvironmentChange?

    init(_ name: String, _ body: @escaping @Sendable (EnvironmentChange) -> EnvironmentChange?) {
        self.name = name
        self.body = body
    }

    /// Returns the replacement for `change`; `nil` drops the change. Returns `change` itself if the interceptor is
    /// cancelled, or is stuck in another call.
    func call(_ change: EnvironmentChange) -> EnvironmentChange? {
        var result: EnvironmentChange? = change
        _ = gate.call { result = body(change) }
        return result
    }
}
