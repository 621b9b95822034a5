import Synchronization

/// Runs tasks on the cooperative pool, except while it is paused: then their next steps are kept, in order, and handed over when it goes on.
///
///     let executor = PausableExecutor("tenant-42")
///     manager.lifecycle.pausables.add(executor)
///     await withTaskExecutorPreference(executor) { await serve() }
///
/// A step that runs is not interrupted: a task stops at its next suspension. What is bound to an actor runs where the actor does. While it is paused
/// its tasks learn of nothing, not of their cancellation either, so nothing that the way into the background waits for may run here (T7).
public final class PausableExecutor: TaskExecutor, Quiescable, GatedMember {
    private struct State {
        /// Kept while it is paused, and while they are being handed over, so that none comes before an earlier one.
        var jobs: [UnownedJob] = []
        var isHandingOver = false
    }

    public let name: String
    public let workClass: String?
    let gates = GateSlot()
    private let pausesInBackground: Bool
    private let state = Mutex(State())

    /// An executor that is open until it is in a set that says otherwise.
    ///
    /// - Parameters:
    ///   - name: what it is called in reports.
    ///   - pausesInBackground: whether it is paused in the background too, where what must be finished otherwise goes on.
    ///   - workClass: the class of work it serves; a lease on it keeps it going (`QuiesceSet.lease`).
    public init(_ name: String, pausesInBackground: Bool = false, workClass: String? = nil) {
        self.name = name
        self.pausesInBackground = pausesInBackground
        self.workClass = workClass
    }

    deinit {
        // No step is lost, whatever becomes of its executor.
        for job in state.withLock({ $0.jobs }) { globalConcurrentExecutor.enqueue(ExecutorJob(job)) }
    }

    /// Steps that are kept now.
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
        look()
    }

    func look() {
        let begins = state.withLock { state in
            guard !isPaused, !state.isHandingOver, !state.jobs.isEmpty else { return false }
            state.isHandingOver = true
            return true
        }
        guard begins else { return }
        var jobs: [UnownedJob] = []
        while true {
            jobs = state.withLock { state in
                // Paused again: what is left stays.
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
