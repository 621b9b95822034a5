import CPlimsollProcess
import Synchronization

/// A thread that carries out one kind of work on request. A replacement thread takes over if the work gets stuck in
/// a handler.
///
/// Requests coalesce: a request during a run causes one more run.
final class Worker: Sendable {
    private struct State {
        var parker = Parker()
        /// Number of the thread in charge. A replaced thread finds another number here and exits.
        var generation = 0
        var isStopped = false
        /// True if the thread in charge could not be started; the next request tries again.
        var lacksThread = false
        /// Name and begin of the current call into a handler.
        var inside: (name: String, since: Duration)?
    }

    private let state = Mutex(State())
    private let threadName: String
    private let job: @Sendable (Turn) -> Void
    private let launch: Thread.Starter

    /// - Parameters:
    ///   - launch: starts each thread.
    ///   - job: the work. Calls application code only through the `Turn`, and returns when such a call returns
    ///     false.
    init(_ threadName: String, launch: @escaping Thread.Starter = Thread.start, job: @escaping @Sendable (Turn) -> Void)
    {
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

    /// Retries to start a thread that could not be started.
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

        /// Calls `handler` under `name`. Returns false if this thread was replaced meanwhile; the caller must then
        /// return at once and touch no state.
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

    /// Replaces the thread if a handler has run longer than `budget`. Starts a thread that could not be started
    /// before.
    ///
    /// - Returns: the handler's name, or `nil` if no handler is stuck.
    func replaceIfStuck(at now: Duration, budget: Duration) -> String? {
        startIfLacking()
        let (stuck, generation, parker): (String?, Int, Parker) = state.withLock { state in
            guard let inside = state.inside, now - inside.since >= budget else { return (nil, 0, state.parker) }
            state.generation += 1
            state.inside = nil
            // The old thread keeps the old parker, unparked so that the thread exits once the handler returns. The new
            // thread gets a new parker, unparked in case of a request meanwhile.
            state.parker.unpark()
            state.parker = Parker()
            state.parker.unpark()
            return (inside.name, state.generation, state.parker)
        }
        if stuck != nil { startThread(generation, parker) }
        return stuck
    }

    /// Returns the time until `replaceIfStuck` could find a stuck handler; `nil` while no handler runs.
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

/// Starts detached threads, and identifies the current thread.
package enum Thread {
    /// A function that starts threads as `start` does. Tests pass one that refuses.
    package typealias Starter = @Sendable (_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool

    /// Runs `body` on a new thread named `name` (at most 15 bytes) with all signals blocked.
    ///
    /// - Returns: false if the process may start no more threads.
    package static func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
        let box = Unmanaged.passRetained(Body(body))
        let result = plimsoll_thread_start(
            name, { Unmanaged<Body>.fromOpaque($0!).takeRetainedValue().run() }, box.toOpaque())
        if result != 0 { box.release() }
        return result == 0
    }

    private final class Body: Sendable {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    package static var current: UInt { plimsoll_thread_id() }
}

/// A semaphore on which one thread waits until another thread unparks the first. An early `unpark` is remembered.
package final class Parker: Sendable {
    // A pointer to a C structure that guards itself with a mutex and lives as long as this object.
    private nonisolated(unsafe) let parker: OpaquePointer

    package init() { parker = plimsoll_parker_make() }
    deinit { plimsoll_parker_free(parker) }

    /// Waits for `unpark`, without a time limit if `limit` is `nil`. Returns false on timeout.
    @discardableResult
    package func park(atMost limit: Duration? = nil) -> Bool {
        plimsoll_park(parker, limit.map { max(0, $0.inNanoseconds) } ?? -1)
    }

    package func unpark() { plimsoll_unpark(parker) }
}
