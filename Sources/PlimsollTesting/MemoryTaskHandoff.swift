import Plimsoll
public import PlimsollLifecycle
import Synchronization

/// A task hand-over store in memory, for tests. Several managers that share the store act as several replicas.
public final class MemoryTaskHandoff: TaskHandoff {
    private struct Row {
        var offer: TaskHandoffOffer
        var number: Int
        var attempts: Int
        var fence: Int64 = 1
        var owner: String?
        /// Time from which the task may be taken.
        var due: Duration
        var problem: String?
        var isSetAside = false
    }

    private struct State {
        var rows: [String: Row] = [:]
        var last = 0
        var failure: TaskHandoffError?
    }

    private let state = Mutex(State())
    private let now: @Sendable () -> Duration
    public let limits: TaskHandoffLimits
    public var name: String { "memory" }

    /// Creates an empty store.
    ///
    /// - Parameters:
    ///   - limits: limits of the store.
    ///   - clock: clock of the leases; the machine's time by default.
    public init(limits: TaskHandoffLimits = TaskHandoffLimits(), clock: ManualClock? = nil) {
        self.limits = limits
        now = clock?.timekeeper.elapsed ?? Timekeeper.running.elapsed
    }

    /// Makes every call throw `error` from now on; `nil` ends the failures.
    public func fail(with error: TaskHandoffError?) { state.withLock { $0.failure = error } }

    /// Stored checkpoints by task name, in the order of the offers.
    public var checkpoints: [String: [[UInt8]]] {
        state.withLock { state in
            Dictionary(grouping: state.rows.values.sorted { $0.number < $1.number }, by: \.offer.name).mapValues {
                $0.map(\.offer.checkpoint)
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

    private func change(_ claim: TaskHandoffClaim, _ verb: String, _ body: (inout State) -> Void)
        throws(TaskHandoffError)
    {
        try with { state throws(TaskHandoffError) in
            guard let row = state.rows[claim.id], !row.isSetAside, row.owner == claim.owner, row.fence == claim.fence
            else {
                throw .lost(claim, verb, in: name)
            }
            body(&state)
        }
    }

    public func offer(_ offer: TaskHandoffOffer, heldBy owner: String, for lease: Duration)
        async throws(TaskHandoffError) -> TaskHandoffClaim
    {
        if let problem = limits.problem(offer, owner, in: name) { throw problem }
        let due = now() + lease
        return try with { state throws(TaskHandoffError) in
            if state.rows[offer.id] == nil {
                guard state.rows.count < limits.count else {
                    throw TaskHandoffError(
                        .refused,
                        "cannot offer task \"\(offer.name)\" to \(name) because it holds \(limits.count) tasks, which is the limit; retry later"
                    )
                }
                state.last += 1
                state.rows[offer.id] = Row(
                    offer: offer, number: state.last, attempts: offer.attempts, owner: owner, due: due)
            }
            return TaskHandoffClaim(id: offer.id, name: offer.name, owner: owner, fence: 1)
        }
    }

    public func take(_ names: [String], by owner: String, for lease: Duration) async throws(TaskHandoffError)
        -> HandedOffTask?
    {
        let now = now()
        return try with { state throws(TaskHandoffError) in
            let free = state.rows.values.filter { !$0.isSetAside && $0.due <= now && names.contains($0.offer.name) }
                .sorted { $0.number < $1.number }
            for row in free where row.attempts >= limits.attempts { state.rows[row.offer.id]?.isSetAside = true }
            guard var row = free.first(where: { $0.attempts < limits.attempts }) else { return nil }
            row.fence += 1
            row.attempts += 1
            (row.owner, row.due) = (owner, now + lease)
            state.rows[row.offer.id] = row
            let claim = TaskHandoffClaim(id: row.offer.id, name: row.offer.name, owner: owner, fence: row.fence)
            return HandedOffTask(
                claim: claim, checkpoint: row.offer.checkpoint, reason: row.offer.reason, attempt: row.attempts)
        }
    }

    public func renew(_ claim: TaskHandoffClaim, for lease: Duration, checkpoint: [UInt8]?)
        async throws(TaskHandoffError)
    {
        if let problem = limits.problem(checkpoint, of: claim.name, in: name) { throw problem }
        let due = now() + lease
        try change(claim, "renew") { state in
            state.rows[claim.id]?.due = due
            if let checkpoint { state.rows[claim.id]?.offer.checkpoint = checkpoint }
        }
    }

    public func complete(_ claim: TaskHandoffClaim) async throws(TaskHandoffError) {
        try change(claim, "complete") { $0.rows[claim.id] = nil }
    }

    public func release(_ claim: TaskHandoffClaim, checkpoint: [UInt8]?, _ release: TaskHandoffRelease)
        async throws(TaskHandoffError)
    {
        if let problem = limits.problem(checkpoint, of: claim.name, in: name) { throw problem }
        let now = now()
        try change(claim, "release") { state in
            guard var row = state.rows[claim.id] else { return }
            row.owner = nil
            if let checkpoint { row.offer.checkpoint = checkpoint }
            switch release {
            case .expired(let reason):
                // The offer itself was not an attempt.
                row.attempts -= row.fence > 1 ? 1 : 0
                (row.offer.reason, row.due) = (reason, now)
            case .failed(let problem, let after):
                (row.problem, row.due) = (problem, now + after)
                row.isSetAside = row.attempts >= limits.attempts
            }
            state.rows[claim.id] = row
        }
    }

    public func setAside(most: Int) async throws(TaskHandoffError) -> [SetAsideTask] {
        try with { state throws(TaskHandoffError) in
            state.rows.values.filter(\.isSetAside).sorted { $0.number < $1.number }.prefix(most).map { row in
                SetAsideTask(
                    id: row.offer.id, name: row.offer.name, checkpoint: row.offer.checkpoint, attempts: row.attempts,
                    problem: row.problem ?? "taken \(row.attempts) times and never ended")
            }
        }
    }

    public func retry(_ id: String) async throws(TaskHandoffError) -> Bool {
        let now = now()
        return try with { state throws(TaskHandoffError) in
            guard var row = state.rows[id], row.isSetAside else { return false }
            (row.isSetAside, row.attempts, row.due) = (false, 0, now)
            state.rows[id] = row
            return true
        }
    }

    public func census() async throws(TaskHandoffError) -> TaskHandoffCensus {
        let now = now()
        return try with { state throws(TaskHandoffError) in
            let live = state.rows.values.filter { !$0.isSetAside }
            let held = live.count { $0.owner != nil && $0.due > now }
            return TaskHandoffCensus(waiting: live.count - held, held: held, setAside: state.rows.count - live.count)
        }
    }
}
