import Plimsoll
import Synchronization

/// The hub for changes of the environment. Changes go to interceptors first, then to derived values, readers and
/// handlers.
///
/// Posting only adds to a slot. One drainer at a time dequeues net changes and passes them on. The drainer is the
/// posting thread while there is no interceptor, otherwise a handler thread. Nothing goes out during a hold (C60).
///
/// Mutable state: all behind one lock, which is never held around user code. `isHeld` is also published for readers and
/// handlers.
final class Environment: Sendable {
    struct Weak {
        let id: UInt64
        weak var reader: EnvironmentReader?
    }

    struct State {
        /// The current value of each kind, as last posted or read.
        var known: [EnvironmentChange.Kind: EnvironmentValue] = [:]
        var inbox = EnvironmentSlots()
        /// Number of the drainer at work. A replaced drainer finds another number here and leaves.
        var drainer: Int?
        var drains = 0
        var holds = 0
        /// True while the drainer is paused.
        var isHeld = false

        var readers: [Weak] = []
        var lastReader: UInt64 = 0
        var observers: [EnvironmentObserver] = []
        var interceptors: [EnvironmentInterceptor] = []
        var derived: [any Derived] = []
        var slow: [EnvironmentCall] = []
        /// Threads to unpark whenever a piece of work has finished.
        var waiting: [Parker] = []
    }

    let alarms: Alarms
    let threads: HandlerThreads
    /// The time after which a handler is reported by name (C61). All observers of an edge share the same time.
    static let budget = Duration.seconds(5)
    let state = Mutex(State())
    /// True while readers and handlers must not dequeue. Released and acquired, so that a thread that sees no hold also
    /// sees the changes added before.
    private let isHeldFlag = Atomic<Bool>(false)
    let limit: LimitCheck
    /// The watch calls back into this object and is made with it. Set once, in `init`.
    let watch: EnvironmentWatch

    init(source: any PressureSource, alarms: Alarms, threads: HandlerThreads) {
        (self.alarms, self.threads) = (alarms, threads)
        limit = LimitCheck { source.wake() }
        let back = Back()
        watch = EnvironmentWatch(
            source: (source as? any EnvironmentProvider)?.environment, alarms: alarms, threads: threads,
            onBaseline: { back.environment?.begin($0, $1) }, onChange: { back.environment?.add($0) },
            onChanged: { back.environment?.drain() })
        back.set(self)
    }

    /// A weak reference from the watch to its owner.
    private final class Back: Sendable {
        private struct Owner { weak var environment: Environment? }
        private let owner = Mutex(Owner())
        func set(_ environment: Environment) { owner.withLock { $0.environment = environment } }
        var environment: Environment? { owner.withLock { $0.environment } }
    }

    // MARK: Posting

    /// Adds `change` to the inbox and drains as far as allowed.
    func post(_ change: EnvironmentChange) {
        if alarms.heartbeat.isLate, let gap = alarms.heartbeat.beat(.environment, next: nil) { alarms.noticed(gap) }
        add(change)
        drain()
    }

    /// Returns the known value of `kind`; `nil` if unknown.
    func known(_ kind: EnvironmentChange.Kind) -> EnvironmentValue? { state.withLock { $0.known[kind] } }

    private func begin(_ kind: EnvironmentChange.Kind, _ value: EnvironmentValue?) {
        state.withLock { state in
            if value == nil || state.known[kind] == nil { state.known[kind] = value }
        }
    }

    private func add(_ change: EnvironmentChange) {
        state.withLock { state in
            var change = change
            if let to = change.to {
                let before = state.known[change.kind]
                change.from = before ?? change.from
                change.to = to.over(before)
                state.known[change.kind] = change.to
            }
            if change.isNet { state.inbox.add(change) }
        }
    }

    // MARK: Draining

    func drain() {
        let (id, isIntercepted): (Int?, Bool) = state.withLock { state in
            guard state.drainer == nil, !state.isHeld, !state.inbox.isEmpty else { return (nil, false) }
            state.drains += 1
            state.drainer = state.drains
            return (state.drains, !state.interceptors.isEmpty)
        }
        guard let id else { return }
        if isIntercepted {
            threads.run { self.drain(as: id, mayIntercept: true) }
        } else {
            drain(as: id, mayIntercept: false)
        }
    }

    private func drain(as id: Int, mayIntercept: Bool) {
        while true {
            let next: (change: EnvironmentChange?, interceptors: [EnvironmentInterceptor], moves: Bool) = state.withLock
            { state in
                guard state.drainer == id else { return (nil, [], false) }
                // An interceptor was added meanwhile, and this is the posting thread.
                if !mayIntercept, !state.interceptors.isEmpty { return (nil, [], true) }
                if !state.isHeld, let change = state.inbox.take() { return (change, state.interceptors, false) }
                state.drainer = nil
                return (nil, [], false)
            }
            if next.moves { return threads.run { self.drain(as: id, mayIntercept: true) } }
            guard let change = next.change else { return finished() }
            guard pass(change, through: next.interceptors[...], as: id) else { return }
        }
    }

    /// Passes `change` through the interceptors and on. Returns false if this drainer was replaced meanwhile.
    private func pass(_ change: EnvironmentChange, through interceptors: ArraySlice<EnvironmentInterceptor>, as id: Int)
        -> Bool
    {
        var change = change, rest = interceptors
        while let interceptor = rest.popFirst() {
            let (before, others) = (change, rest)
            let began = alarms.heartbeat.running
            let alarm = alarms.set(.deadline, after: Self.budget) { [weak self] in
                self?.goAround(interceptor, before, others, id)
            }
            let result = interceptor.call(change)
            alarm.cancel()
            guard state.withLock({ $0.drainer == id }) else { return false }
            let took = alarms.heartbeat.running - began
            if took >= Self.budget {
                addSlow(EnvironmentCall(interceptor.name, before.kind, took: took, isFinished: true))
            }
            guard let result else { return true }
            change = result
        }
        fanOut(change)
        return true
    }

    /// Skips an interceptor that has kept a change for too long: the change goes on without the result.
    private func goAround(
        _ interceptor: EnvironmentInterceptor, _ change: EnvironmentChange, _ rest: ArraySlice<EnvironmentInterceptor>,
        _ id: Int
    ) {
        let successor: Int? = state.withLock { state in
            guard state.drainer == id else { return nil }
            state.drains += 1
            state.drainer = state.drains
            return state.drains
        }
        guard let successor else { return }
        addSlow(EnvironmentCall(interceptor.name, change.kind, took: Self.budget, isFinished: false))
        threads.run {
            if self.pass(change, through: rest, as: successor) { self.drain(as: successor, mayIntercept: true) }
        }
    }

    private func fanOut(_ change: EnvironmentChange) {
        let (readers, observers, derived) = state.withLock { state in
            (
                state.readers.map(\.reader), state.observers.filter { $0.wants(change.kind) },
                state.derived.filter { $0.kinds.contains(change.kind) }
            )
        }
        for value in derived { value.invalidate() }
        for reader in readers { reader?.add(change) }
        for observer in observers {
            observer.add(change)
            serve(observer)
        }
    }

    private func serve(_ observer: EnvironmentObserver) {
        // `release` calls `serve` again when the hold ends.
        guard !isHeld, observer.schedule() else { return }
        let heartbeat = alarms.heartbeat
        threads.run { [self] in
            observer.work(
                isHeld: { isHeld }, now: { heartbeat.running },
                watch: { kind in
                    let alarm = alarms.set(.deadline, after: Self.budget) { [weak self] in
                        self?.addSlow(EnvironmentCall(observer.name, kind, took: Self.budget, isFinished: false))
                    }
                    return { took in
                        alarm.cancel()
                        if took >= Self.budget {
                            self.addSlow(EnvironmentCall(observer.name, kind, took: took, isFinished: true))
                        }
                    }
                })
            finished()
        }
    }

    // MARK: Holding back

    var isHeld: Bool { isHeldFlag.load(ordering: .acquiring) }

    /// Begins a hold: nothing goes out until `release` with the returned number, or with a later one.
    @discardableResult
    func hold() -> Int {
        state.withLock { state in
            state.holds += 1
            state.isHeld = true
            isHeldFlag.store(true, ordering: .releasing)
            return state.holds
        }
    }

    /// Moves changes posted during the hold into the slots of readers and handlers, merged with what waits there. They
    /// can dequeue after `release`.
    func distribute(_ hold: Int) {
        state.withLock { state in if state.holds == hold { state.isHeld = false } }
        drain()
    }

    /// Ends the hold with this number, so that held changes go out. Does nothing if another hold has begun since.
    func release(_ hold: Int) {
        let (readers, observers) = state.withLock { state in
            guard state.holds == hold else { return ([] as [EnvironmentReader?], [] as [EnvironmentObserver]) }
            state.isHeld = false
            isHeldFlag.store(false, ordering: .releasing)
            return (state.readers.map(\.reader), state.observers)
        }
        for reader in readers { reader?.flush() }
        for observer in observers { serve(observer) }
        drain()
    }
}
