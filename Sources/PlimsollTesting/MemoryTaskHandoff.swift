import Plimsoll
public import PlimsollLifecycle
import Synchronization

/// A task hand-over store in memory, for tests. Several managers that share the store act as several replicas.
public final class MemoryTaskHandoff: TaskHandoff {
    private struct Row {
        var work: HandedOffTask
        var number: Int
        /// Time from which the task may be taken.
        var due: Duration
        var isSetAside = false
    }

    private struct State {
        var rows: [String: Row] = [:]
        var last = 0
        var failure: TaskHandoffError?
    }

    private let state = Mutex(State())
    private let now: @Sendable () -> Duration
    public let policy: TaskHandoffPolicy
    public var name: String { "memory" }

    /// Creates an empty store.
    ///
    /// - Parameters:
    ///   - policy: policy of the store.
    ///   - clock: clock of the leases; the machine's time by default.
    public init(policy: TaskHandoffPolicy = TaskHandoffPolicy(), clock: ManualClock? = nil) {
        self.policy = policy
        now = clock?.timekeeper.elapsed ?? Timekeeper.running.elapsed
    }

    /// Makes every call throw `error` from now on; `nil` ends the failures.
    public func fail(with error: TaskHandoffError?) { state.withLock { $0.failure = error } }

    /// Stored checkpoints by task name, in the order of the offers.
    public var checkpoints: [String: [[UInt8]]] {
        state.withLock { state in
            Dictionary(grouping: state.rows.values.sorted { $0.number < $1.number }, by: \.work.name).mapValues {
                $0.map(\.work.checkpoint)
            }
        }
    }

    private func with<Result>(_ body: (inout State) throws(TaskHandoffError) -> Result) throws(TaskHandoffError)
        -> Result
    {
        try state.withLock { state throws(TaskHandoffError) in
            if let failure = state.failure { throw failure }
            return try body(&state)
        }
    }

    private func change(_ work: HandedOffTask, _ verb: String, _ body: (inout State) -> Void)
        throws(TaskHandoffError)
    {
        try with { state throws(TaskHandoffError) in
            guard let row = state.rows[work.id], !row.isSetAside, row.work.owner == work.owner,
                row.work.fence == work.fence
            else {
                throw .lost(work, verb, in: name)
            }
            body(&state)
        }
    }

    public func offer(_ work: HandedOffTask, heldBy owner: String, for lease: Duration)
        async throws(TaskHandoffError) -> HandedOffTask
    {
        if let problem = policy.problem(work, owner, in: name) { throw problem }
        let due = now() + lease
        return try with { state throws(TaskHandoffError) in
            if state.rows[work.id] == nil {
                guard state.rows.count < policy.mostTasks else {
                    throw .refused(
                        "cannot offer task \"\(work.name)\" to \(name) because it holds \(policy.mostTasks) tasks, which is the limit; retry later"
                    )
                }
                state.last += 1
                state.rows[work.id] = Row(work: work.held(by: owner, fence: 1), number: state.last, due: due)
            }
            return work.held(by: owner, fence: 1)
        }
    }

    public func take(_ names: [String], by owner: String, for lease: Duration) async throws(TaskHandoffError)
        -> HandedOffTask?
    {
        let now = now()
        return try with { state throws(TaskHandoffError) in
            let free = state.rows.values.filter { !$0.isSetAside && $0.due <= now && names.contains($0.work.name) }
                .sorted { $0.number < $1.number }
            for row in free where row.work.attempts >= policy.mostAttempts {
                state.rows[row.work.id]?.isSetAside = true
            }
            guard var row = free.first(where: { $0.work.attempts < policy.mostAttempts }) else { return nil }
            row.work = row.work.held(by: owner, fence: row.work.fence + 1)
            row.work.attempts += 1
            row.due = now + lease
            state.rows[row.work.id] = row
            return row.work
        }
    }

    public func renew(_ work: HandedOffTask, for lease: Duration, checkpoint: [UInt8]?)
        async throws(TaskHandoffError)
    {
        if let problem = policy.problem(checkpoint, of: work.name, in: name) { throw problem }
        let due = now() + lease
        try change(work, "renew") { state in
            state.rows[work.id]?.due = due
            if let checkpoint { state.rows[work.id]?.work.checkpoint = checkpoint }
        }
    }

    public func complete(_ work: HandedOffTask) async throws(TaskHandoffError) {
        try change(work, "complete") { $0.rows[work.id] = nil }
    }

    public func release(_ work: HandedOffTask, checkpoint: [UInt8]?, failure: (problem: String, after: Duration)?)
        async throws(TaskHandoffError)
    {
        if let problem = policy.problem(checkpoint, of: work.name, in: name) { throw problem }
        let now = now()
        try change(work, "release") { state in
            guard var row = state.rows[work.id] else { return }
            row.work.owner = ""
            if let checkpoint { row.work.checkpoint = checkpoint }
            if let failure {
                (row.work.problem, row.due) = (failure.problem, now + failure.after)
                row.isSetAside = row.work.attempts >= policy.mostAttempts
            } else {
                // The offer itself was not an attempt.
                row.work.attempts -= row.work.fence > 1 ? 1 : 0
                (row.work.reason, row.due) = (work.reason, now)
            }
            state.rows[work.id] = row
        }
    }

    public func setAside(most: Int) async throws(TaskHandoffError) -> [HandedOffTask] {
        try with { state throws(TaskHandoffError) in
            state.rows.values.filter(\.isSetAside).sorted { $0.number < $1.number }.prefix(max(0, most)).map { row in
                var work = row.work
                work.problem = work.problem ?? "taken \(work.attempts) times and never ended"
                return work
            }
        }
    }

    public func retry(_ id: String) async throws(TaskHandoffError) -> Bool {
        let now = now()
        return try with { state throws(TaskHandoffError) in
            guard var row = state.rows[id], row.isSetAside else { return false }
            (row.isSetAside, row.work.attempts, row.due) = (false, 0, now)
            state.rows[id] = row
            return true
        }
    }

    public func census() async throws(TaskHandoffError) -> (waiting: Int, held: Int, setAside: Int) {
        let now = now()
        return try with { state throws(TaskHandoffError) in
            let live = state.rows.values.filter { !$0.isSetAside }
            let held = live.count { !$0.work.owner.isEmpty && $0.due > now }
            return (waiting: live.count - held, held: held, setAside: state.rows.count - live.count)
        }
    }
}
