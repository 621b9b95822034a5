import Synchronization

/// Where changes of the environment come together, and from where they go out: to interceptors, then to derived values, readers and handlers.
///
/// Whoever posts only adds to a slot. One drainer at a time takes net changes out and passes them on: the poster itself as long as nobody
/// intercepts, else a handler thread. Nothing goes out while it is held back (C60).
///
/// Mutable state: all behind one lock, which is held around no user code; `isHeld` is published for readers and handlers as well.
final class Environment: Sendable {
    struct Weak { weak var reader: EnvironmentReader? }

    struct State {
        /// What holds by all that was posted or read.
        var known: [EnvironmentChange.Kind: EnvironmentValue] = [:]
        var inbox = EnvironmentSlots()
        /// Number of the drainer at work; a replaced one finds another number here and leaves.
        var drainer: Int?
        var drains = 0
        var holds = 0
        /// Whether the drainer stands still.
        var isHeld = false

        var readers: [Weak] = []
        var observers: [EnvironmentObserver] = []
        var interceptors: [EnvironmentInterceptor] = []
        var derived: [any Derived] = []
        var slow: [EnvironmentCall] = []
        /// Threads that wait for something to be finished.
        var waiting: [Parker] = []
    }

    let alarms: Alarms
    let threads: HandlerThreads
    /// A handler that takes longer than this is named (C61): the time all observers of an edge share.
    static let budget = Duration.seconds(5)
    let state = Mutex(State())
    /// Whether readers and handlers may take. Acquired and released, so that who sees no hold finds what was put down before.
    private let isHeldFlag = Atomic<Bool>(false)
    let limit: LimitLook
    /// Made with this object, which it tells; set once, in `init`.
    let watch: EnvironmentWatch

    init(source: any PressureSource, alarms: Alarms, threads: HandlerThreads) {
        (self.alarms, self.threads) = (alarms, threads)
        limit = LimitLook { source.wake() }
        let back = Back()
        watch = EnvironmentWatch(
            source: source.environment, alarms: alarms, threads: threads,
            onBaseline: { back.environment?.begin($0, $1) }, onChange: { back.environment?.add($0) }, onChanged: { back.environment?.drain() })
        back.set(self)
    }

    /// The watch's way back to its owner.
    private final class Back: Sendable {
        private struct Owner { weak var environment: Environment? }
        private let owner = Mutex(Owner())
        func set(_ environment: Environment) { owner.withLock { $0.environment = environment } }
        var environment: Environment? { owner.withLock { $0.environment } }
    }

    // MARK: In

    /// Puts `change` down and passes on what may be.
    func post(_ change: EnvironmentChange) {
        if alarms.heartbeat.isLate, let gap = alarms.heartbeat.beat(.environment, next: nil) { alarms.noticed(gap) }
        add(change)
        drain()
    }

    /// What is known of `kind`.
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

    // MARK: Through

    func drain() {
        let (id, isIntercepted): (Int?, Bool) = state.withLock { state in
            guard state.drainer == nil, !state.isHeld, !state.inbox.isEmpty else { return (nil, false) }
            state.drains += 1
            state.drainer = state.drains
            return (state.drains, !state.interceptors.isEmpty)
        }
        guard let id else { return }
        if isIntercepted { threads.run { self.drain(as: id, mayIntercept: true) } } else { drain(as: id, mayIntercept: false) }
    }

    private func drain(as id: Int, mayIntercept: Bool) {
        while true {
            let next: (change: EnvironmentChange?, interceptors: [EnvironmentInterceptor], moves: Bool) = state.withLock { state in
                guard state.drainer == id else { return (nil, [], false) }
                // Somebody who intercepts has come meanwhile, and this thread is the poster's.
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

    /// False if this drainer was replaced meanwhile.
    private func pass(_ change: EnvironmentChange, through interceptors: ArraySlice<EnvironmentInterceptor>, as id: Int) -> Bool {
        var change = change, rest = interceptors
        while let interceptor = rest.popFirst() {
            let (before, others) = (change, rest)
            let began = alarms.heartbeat.running
            let alarm = alarms.set(.deadline, after: Self.budget) { [weak self] in self?.goAround(interceptor, before, others, id) }
            let result = interceptor.call(change)
            alarm.cancel()
            guard state.withLock({ $0.drainer == id }) else { return false }
            let took = alarms.heartbeat.running - began
            if took >= Self.budget { addSlow(EnvironmentCall(interceptor.name, before.kind, took: took, isFinished: true)) }
            guard let result else { return true }
            change = result
        }
        fanOut(change)
        return true
    }

    /// An interceptor has kept a change for too long: it goes on without it.
    private func goAround(
        _ interceptor: EnvironmentInterceptor, _ change: EnvironmentChange, _ rest: ArraySlice<EnvironmentInterceptor>, _ id: Int
    ) {
        let successor: Int? = state.withLock { state in
            guard state.drainer == id else { return nil }
            state.drains += 1
            state.drainer = state.drains
            return state.drains
        }
        guard let successor else { return }
        addSlow(EnvironmentCall(interceptor.name, change.kind, took: Self.budget, isFinished: false))
        threads.run { if self.pass(change, through: rest, as: successor) { self.drain(as: successor, mayIntercept: true) } }
    }

    private func fanOut(_ change: EnvironmentChange) {
        let (readers, observers, derived) = state.withLock { state in
            (state.readers.map(\.reader), state.observers.filter { $0.wants(change.kind) }, state.derived.filter { $0.kinds.contains(change.kind) })
        }
        for value in derived { value.invalidate() }
        for reader in readers { reader?.add(change) }
        for observer in observers {
            observer.add(change)
            serve(observer)
        }
    }

    private func serve(_ observer: EnvironmentObserver) {
        // Whoever ends the hold comes by here afterwards.
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
                        if took >= Self.budget { self.addSlow(EnvironmentCall(observer.name, kind, took: took, isFinished: true)) }
                    }
                })
            finished()
        }
    }

    // MARK: Holding back

    var isHeld: Bool { isHeldFlag.load(ordering: .acquiring) }

    /// Nothing goes out until `release` with the number returned, or with a later one.
    @discardableResult
    func hold() -> Int {
        state.withLock { state in
            state.holds += 1
            state.isHeld = true
            isHeldFlag.store(true, ordering: .releasing)
            return state.holds
        }
    }

    /// Puts what was posted meanwhile into the slots of readers and handlers, on top of what they had not taken before. `release` lets them take it.
    func distribute(_ hold: Int) {
        state.withLock { state in if state.holds == hold { state.isHeld = false } }
        drain()
    }

    /// What was held back goes out, unless it has been held once more since `hold` returned this number.
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
