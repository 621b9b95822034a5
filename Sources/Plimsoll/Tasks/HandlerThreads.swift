import Synchronization

/// Threads for the application's handlers: as many as are blocked at once need, up to a bound, and none of the cooperative
/// pool's, which the very work that must stop may have filled (T7).
final class HandlerThreads: TaskExecutor {
    private struct State {
        /// The first `taken` of them are gone: ten thousand at once must not be moved up for each.
        var jobs: [Job?] = []
        var taken = 0
        var idle: [Parker] = []
        var count = 0

        mutating func next() -> Job? {
            guard taken < jobs.count else { return nil }
            defer {
                jobs[taken] = nil
                taken += 1
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

    /// - Parameter most: bound of the number of threads; further handlers wait for one.
    init(most: Int = 64) { self.most = most }

    /// Runs a handler that may block.
    func run(_ body: @escaping @Sendable () -> Void) { add(.closure(body)) }

    /// Runs an asynchronous handler; it stays off the cooperative pool wherever it isn't bound to an actor.
    @discardableResult
    func run(_ body: @escaping @Sendable () async -> Void) -> Task<Void, Never> {
        Task(executorPreference: self) { @concurrent in await body() }
    }

    func enqueue(_ job: consuming ExecutorJob) { add(.task(UnownedJob(job))) }

    private func add(_ job: Job) {
        let (idle, start) = state.withLock { state in
            state.jobs.append(job)
            let idle = state.idle.popLast()
            let start = idle == nil && state.count < most
            if start { state.count += 1 }
            return (idle, start)
        }
        if let idle { idle.unpark() } else if start { startThread() }
    }

    private func startThread() {
        let started = Thread.start("plimsoll-calls") { self.work() }
        if !started { state.withLock { $0.count -= 1 } }
    }

    /// Ends after ten idle seconds: handlers are rare.
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
            } else if !parker.park(atMost: .seconds(10)) {
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

    private func perform(_ job: Job) {
        switch job {
        case .closure(let body): body()
        case .task(let task): task.runSynchronously(on: asUnownedTaskExecutor())
        }
    }
}
