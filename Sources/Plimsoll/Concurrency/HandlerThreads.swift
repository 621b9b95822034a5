import Synchronization

/// Threads for the application's handlers. Not threads of the cooperative pool, which the work that must stop may
/// have filled (T7).
///
/// A few threads serve calls while they make progress. One more thread stands by while calls wait, and joins if no
/// call was dequeued for a while: the serving threads are then blocked. Ten thousand quick handlers so need few
/// threads, and blocked handlers do not delay the others (T6).
package final class HandlerThreads: TaskExecutor {
    private struct State {
        /// The first `taken` jobs are already dequeued. With ten thousand jobs, moving the rest for each would be
        /// too slow.
        var jobs: [Job?] = []
        var taken = 0
        /// Number of jobs dequeued so far.
        var progress: UInt64 = 0
        var idle: [Parker] = []
        var count = 0
        var hasStandby = false
        /// Tasks of the cooperative pool that serve calls, because no thread could be started.
        var borrowed = 0

        var waiting: Int { jobs.count - taken }

        mutating func next() -> Job? {
            guard taken < jobs.count else { return nil }
            defer {
                jobs[taken] = nil
                taken += 1
                progress += 1
                if taken == jobs.count {
                    jobs.removeAll(keepingCapacity: jobs.count <= 256)
                    taken = 0
                }
            }
            return jobs[taken]
        }
    }

    private enum Job: Sendable {
        case closure(@Sendable () -> Void)
        case task(UnownedJob)
    }

    private let state = Mutex(State())
    private let most: Int
    private let startThread: Thread.Starter
    /// Maximum number of threads borrowed from the cooperative pool.
    private static let mostBorrowed = 4
    /// Number of threads that start without first checking the need.
    private static let eager = 4
    /// Time that a thread stays without work: handlers are rare.
    private static let linger = Duration.seconds(10)

    /// - Parameters:
    ///   - most: maximum number of threads; further handlers wait for a thread.
    ///   - startThread: starts each thread.
    init(most: Int = 256, startThread: @escaping Thread.Starter = Thread.start) {
        self.most = most
        self.startThread = startThread
    }

    /// Number of threads in a call or about to dequeue one, plus calls that wait; zero when idle. For tests.
    package var busy: Int { state.withLock { $0.count - $0.idle.count + $0.waiting } }

    /// Runs a handler that may block.
    package func run(_ body: @escaping @Sendable () -> Void) { add(CollectionOfOne(.closure(body))) }

    /// Runs handlers that may block, in no particular order.
    func run(_ bodies: [@Sendable () -> Void]) { add(bodies.lazy.map { .closure($0) }) }

    /// Runs an asynchronous handler. The handler stays off the cooperative pool except where bound to an actor.
    @discardableResult
    package func run(_ body: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
        Task(executorPreference: self) { @concurrent in await body() }
    }

    package func enqueue(_ job: consuming ExecutorJob) { add(CollectionOfOne(.task(UnownedJob(job)))) }

    private func add(_ jobs: some Collection<Job>) {
        let (woken, starting, standsBy) = state.withLock { state in
            state.jobs.append(contentsOf: jobs.lazy.map { $0 })
            let serving = state.count - state.idle.count
            let wanted = min(jobs.count, max(state.idle.isEmpty ? 0 : 1, Self.eager - serving))
            let woken = state.idle.suffix(wanted)
            state.idle.removeLast(woken.count)
            let starting = max(0, min(wanted - woken.count, most - state.count))
            state.count += starting
            let standsBy = state.waiting > woken.count + starting && !state.hasStandby
            if standsBy { state.hasStandby = true }
            return (woken, starting, standsBy)
        }
        for parker in woken { parker.unpark() }
        var isRefused = false
        for _ in 0..<starting where !startThread("plimsoll-calls", { self.work() }) {
            state.withLock { $0.count -= 1 }
            isRefused = true
        }
        if standsBy { startStandby() } else if isRefused { borrow() }
    }

    /// Serves waiting calls on the cooperative pool, because the process may start no more threads (RLIMIT_NPROC,
    /// pids.max). A blocking handler then occupies a thread of the pool, which is better than never calling the
    /// handler. Each later call tries again to start threads.
    private func borrow() {
        let borrows = state.withLock { state in
            guard state.waiting > 0, state.borrowed < Self.mostBorrowed else { return false }
            state.borrowed += 1
            return true
        }
        if borrows { Task { @concurrent in self.serveOnPool() } }
    }

    private func serveOnPool() {
        while let job = state.withLock({ state in
            let job = state.next()
            if job == nil { state.borrowed -= 1 }
            return job
        }) { perform(job) }
    }

    private func work() {
        let parker = Parker()
        while true {
            let job: Job? = state.withLock { state in
                state.idle.removeAll { $0 === parker }
                if let job = state.next() { return job }
                state.idle.append(parker)
                return nil
            }
            if let job {
                perform(job)
            } else if !parker.park(atMost: Self.linger) {
                let leave = state.withLock { state in
                    guard state.jobs.isEmpty else { return false }
                    state.idle.removeAll { $0 === parker }
                    state.count -= 1
                    return true
                }
                if leave { return }
            }
        }
    }

    // MARK: Stand-by thread

    private func startStandby() {
        if startThread("plimsoll-calls", { self.standBy() }) { return }
        state.withLock { $0.hasStandby = false }
        borrow()
    }

    private func standBy() {
        enum Turn { case leave, wait, serve }
        let parker = Parker()
        var (seen, count) = state.withLock { ($0.progress, $0.count) }
        while true {
            // The wait grows with the number of threads: more threads do not help handlers that only need a
            // processor.
            parker.park(atMost: .milliseconds(max(1, count / 8)))
            let turn: Turn = state.withLock { state in
                if state.waiting == 0 {
                    state.hasStandby = false
                    return .leave
                }
                if state.progress != seen || state.count >= most {
                    (seen, count) = (state.progress, state.count)
                    return .wait
                }
                state.count += 1
                return .serve
            }
            switch turn {
            case .leave: return
            case .wait: continue
            case .serve:
                startStandby()
                return work()
            }
        }
    }

    private func perform(_ job: Job) {
        switch job {
        case .closure(let body): body()
        case .task(let task): task.runSynchronously(on: asUnownedTaskExecutor())
        }
    }
}
