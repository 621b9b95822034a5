import Plimsoll
import Synchronization

/// Runs tasks on the cooperative pool, except while paused. While paused, the next steps of the tasks are queued in
/// order, and handed over on resume.
///
///     let executor = PausableExecutor("tenant-42")
///     manager.lifecycle.pausables.add(executor)
///     await withTaskExecutorPreference(executor) { await serve() }
///
/// A running step is not interrupted: a task stops at its next suspension. Code bound to an actor runs where the
/// actor does. While the executor is paused, tasks receive no events, not even their cancellation. Therefore the way
/// into the background must not wait for any work that runs here (T7).
public final class PausableExecutor: TaskExecutor, Quiescable, GatedMember {
    private struct State {
        /// The queued jobs, while paused and during handover, so that no job overtakes an earlier one.
        var jobs: [UnownedJob] = []
        var isHandingOver = false
    }

    public let name: String
    public let workClass: String?
    let gates = GateSlot()
    private let pausesInBackground: Bool
    private let state = Mutex(State())

    /// Creates an executor that is open until a set pauses the executor.
    ///
    /// - Parameters:
    ///   - name: name used in reports.
    ///   - pausesInBackground: true to pause in the background too, where by default work that must be finished goes
    ///     on.
    ///   - workClass: class of work that the executor serves. A lease on the class keeps the executor going
    ///     (`QuiesceSet.lease`).
    public init(_ name: String, pausesInBackground: Bool = false, workClass: String? = nil) {
        self.name = name
        self.pausesInBackground = pausesInBackground
        self.workClass = workClass
    }

    deinit {
        // No step is lost when the executor is deallocated.
        for job in state.withLock({ $0.jobs }) { globalConcurrentExecutor.enqueue(ExecutorJob(job)) }
    }

    /// Number of queued steps.
    public var waiting: Int { state.withLock { $0.jobs.count } }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let passes = state.withLock { state in
            guard isPaused || state.isHandingOver || !state.jobs.isEmpty else { return true }
            state.jobs.append(job)
            return false
        }
        if passes { globalConcurrentExecutor.enqueue(ExecutorJob(job)) }
    }

    public func quiesce(to extent: QuiesceExtent) {
        gates.follow(extent)
        poll()
    }

    func poll() {
        let begins = state.withLock { state in
            guard !isPaused, !state.isHandingOver, !state.jobs.isEmpty else { return false }
            state.isHandingOver = true
            return true
        }
        guard begins else { return }
        var jobs: [UnownedJob] = []
        while true {
            jobs = state.withLock { state in
                // Paused again: keep the remaining jobs.
                guard !isPaused, !state.jobs.isEmpty else {
                    state.isHandingOver = false
                    return []
                }
                let taken = state.jobs
                state.jobs = []
                return taken
            }
            if jobs.isEmpty { return }
            for job in jobs { globalConcurrentExecutor.enqueue(ExecutorJob(job)) }
        }
    }

    private var isPaused: Bool {
        let extent = gates.current.extent
        return extent.isPaused || pausesInBackground && extent.profile == .background
    }
}
