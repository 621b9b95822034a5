import Synchronization

/// A thread that carries out one kind of work when asked, and that can be replaced if the work gets stuck in a handler.
///
/// Requests coalesce: one made while the work runs makes it run once more.
final class Worker: Sendable {
    private struct State {
        var parker = Parker()
        /// Number of the thread in charge; a replaced one finds another number here and leaves.
        var generation = 0
        var isStopped = false
        /// The thread in charge could not be started: requests try again.
        var lacksThread = false
        /// When the present call into a handler began, and whose it is.
        var inside: (name: String, since: Duration)?
    }

    private let state = Mutex(State())
    private let threadName: String
    private let job: @Sendable (Turn) -> Void
    private let launch: Thread.Starter

    /// - Parameters:
    ///   - launch: starts each thread.
    ///   - job: the work. It calls into the application only through its `Turn`, and returns when a call says so.
    init(_ threadName: String, launch: @escaping Thread.Starter = Thread.start, job: @escaping @Sendable (Turn) -> Void) {
        self.threadName = threadName
        self.launch = launch
        self.job = job
    }

    func start() { startThread(0, state.withLock { $0.parker }) }

    func stop() {
        state.withLock { state in
            state.isStopped = true
            return state.parker
        }.unpark()
    }

    func request() {
        startIfLacking()
        state.withLock { $0.parker }.unpark()
    }

    /// Tries again to start a thread that could not be started.
    private func startIfLacking() {
        let (lacks, generation, parker) = state.withLock { state in
            defer { state.lacksThread = false }
            return (state.lacksThread && !state.isStopped, state.generation, state.parker)
        }
        if lacks { startThread(generation, parker) }
    }

    /// One run of the work by one thread.
    struct Turn {
        fileprivate let worker: Worker
        fileprivate let generation: Int

        /// Calls a handler of that name; false if this thread was replaced meanwhile: then return at once and touch nothing.
        func call(_ name: String, at now: Duration, _ handler: () -> Void) -> Bool {
            worker.state.withLock { $0.inside = (name, now) }
            handler()
            return worker.state.withLock { state in
                guard state.generation == generation else { return false }
                state.inside = nil
                return true
            }
        }
    }

    /// Replaces the thread if a handler has kept it longer than `budget`, and starts one that could not be started before.
    ///
    /// - Returns: the handler's name, or `nil` if nothing is stuck.
    func replaceIfStuck(at now: Duration, budget: Duration) -> String? {
        startIfLacking()
        let (stuck, generation, parker): (String?, Int, Parker) = state.withLock { state in
            guard let inside = state.inside, now - inside.since >= budget else { return (nil, 0, state.parker) }
            state.generation += 1
            state.inside = nil
            // The old thread keeps its parker; the new one gets its own, with the request that may have been made meanwhile.
            state.parker = Parker()
            state.parker.unpark()
            return (inside.name, state.generation, state.parker)
        }
        if stuck != nil { startThread(generation, parker) }
        return stuck
    }

    /// Time until `replaceIfStuck` could find something; `nil` while no handler runs.
    func timeUntilStuck(at now: Duration, budget: Duration) -> Duration? {
        state.withLock { $0.inside.map { max(.zero, budget - (now - $0.since)) } }
    }

    private func startThread(_ generation: Int, _ parker: Parker) {
        let started = launch(threadName) { [self] in
            while true {
                parker.park()
                let goOn = state.withLock { !$0.isStopped && $0.generation == generation }
                guard goOn else { return }
                job(Turn(worker: self, generation: generation))
            }
        }
        if !started { state.withLock { if $0.generation == generation { $0.lacksThread = true } } }
    }
}
