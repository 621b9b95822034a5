#if PostgreSQL
import Plimsoll
import PlimsollLifecycle
import Synchronization

/// A worker thread with one connection and a short queue. Lives as long as the owner, and connects on the first
/// request.
final class PostgreSQLWorker: Sendable {
    typealias Work = @Sendable (PostgreSQLConnection) throws(PostgreSQLProblem) -> Void

    struct Job: Sendable {
        var verb: String
        var deadline: Duration
        var work: Work
        var done: @Sendable (TaskHandoffError?) -> Void
    }

    struct State {
        var jobs: [Job] = []
        var breaker: CircuitBreaker
        var statistics = PostgreSQLHandoffStatistics()
        var hasThread = false
        /// Number of failed attempts to connect. Decides with which host of `conninfo` the next attempt begins.
        var failedAttempts = 0
        var isStopped = false
    }

    static let mostWaiting = 256

    let name: String
    private let conninfo: String
    /// Statements that prepare a new connection, in one transaction.
    private let prepare: String
    private let settings: PostgreSQLSettings
    private let state: Mutex<State>
    private let parker = Parker()
    private let time = Timekeeper.running
    private let startThread: Thread.Starter

    init(
        name: String, conninfo: String, settings: PostgreSQLSettings, prepare: String,
        startThread: @escaping Thread.Starter = Thread.start
    ) {
        self.startThread = startThread
        (self.name, self.conninfo, self.settings, self.prepare) = (name, conninfo, settings, prepare)
        // Each failure costs a full timeout, so one failure is enough to open the circuit breaker.
        state = Mutex(
            State(
                breaker: CircuitBreaker(
                    .init(failures: 1, shortest: settings.shortestPause, longest: settings.longestPause))))
    }

    var statistics: PostgreSQLHandoffStatistics { state.withLock { $0.statistics } }

    func rows(_ verb: String, _ statement: String, _ parameters: [String?], columns: Int32, most: Int)
        async throws(TaskHandoffError)
        -> [[String]]
    {
        let result = ResultBox<[[String]]>(), timeout = settings.statementTimeout
        try await run(verb) { connection throws(PostgreSQLProblem) in
            result.put(try connection.rows(statement, parameters, columns: columns, most: most, within: timeout))
        }
        guard let rows = result.value else { throw error(.malformed, verb, "the reply is empty") }
        return rows
    }

    private final class ResultBox<Result: Sendable>: Sendable {
        private let result = Mutex<Result?>(nil)
        var value: Result? { result.withLock { $0 } }
        func put(_ value: Result) { result.withLock { $0 = value } }
    }

    /// Runs `work` on the thread. `work` begins within the statement timeout, or not at all.
    func run(_ verb: String, _ work: @escaping Work) async throws(TaskHandoffError) {
        let problem: TaskHandoffError? = await withCheckedContinuation { continuation in
            let job = Job(verb: verb, deadline: time.elapsed() + settings.statementTimeout, work: work) {
                continuation.resume(returning: $0)
            }
            enum Turn { case added(starts: Bool), full, stopped }
            let turn: Turn = state.withLock { state in
                if state.isStopped { return .stopped }
                if state.jobs.count >= Self.mostWaiting { return .full }
                state.jobs.append(job)
                defer { state.hasThread = true }
                return .added(starts: !state.hasThread)
            }
            switch turn {
            case .added(let starts):
                if starts, !startThread("plimsoll-pq", { [self] in serve() }) {
                    // The next request tries again.
                    refuse("cannot start a thread; check the limit of processes (pids.max, RLIMIT_NPROC)") {
                        $0.hasThread = false
                    }
                }
                parker.unpark()
            case .full:
                job.done(error(.unreachable, verb, "\(Self.mostWaiting) requests wait already, which is the limit"))
            case .stopped: job.done(error(.unreachable, verb, "the store is no longer in use"))
            }
        }
        if let problem { throw problem }
    }

    /// Stops the thread. Waiting jobs get an error.
    func stop() {
        refuse("the store is no longer in use") { $0.isStopped = true }
        parker.unpark()
    }

    /// Runs `change`, and ends waiting jobs with an error.
    private func refuse(_ reason: String, _ change: (inout State) -> Void) {
        let jobs = state.withLock { state in
            change(&state)
            return exchange(&state.jobs, [])
        }
        for job in jobs { job.done(error(.unreachable, job.verb, reason)) }
    }

    private func error(_ kind: TaskHandoffError.Kind, _ verb: String, _ reason: String) -> TaskHandoffError {
        TaskHandoffError(kind, "cannot \(verb) in \(name): \(reason)")
    }

    // MARK: The thread

    private func serve() {
        var connection: PostgreSQLConnection?
        while !state.withLock({ $0.isStopped }) {
            guard let job = state.withLock({ $0.jobs.isEmpty ? nil : $0.jobs.removeFirst() }) else {
                parker.park()
                continue
            }
            job.done(carryOut(job, &connection))
        }
    }

    private func carryOut(_ job: Job, _ connection: inout PostgreSQLConnection?) -> TaskHandoffError? {
        let now = time.elapsed()
        guard now < job.deadline else {
            return noted(error(.unreachable, job.verb, "the request waited longer than \(settings.statementTimeout)"))
        }
        let (mayTry, retryIn) = state.withLock { ($0.breaker.mayTry(at: now), $0.breaker.retryIn(at: now)) }
        guard mayTry else {
            let last = statistics.lastProblem ?? "unknown"
            state.withLock { $0.statistics.skipped += 1 }
            return error(
                .unreachable, job.verb,
                "the store failed recently and is not tried for another \(retryIn); last problem: \(last)")
        }
        do throws(PostgreSQLProblem) {
            let open = if let connection { connection } else { try connect() }
            connection = open
            let repeats = open.repeats
            defer { state.withLock { $0.statistics.repeated += open.repeats - repeats } }
            try job.work(open)
            state.withLock { state in
                state.breaker.succeeded()
                state.statistics.answered += 1
            }
            return nil
        } catch {
            // A server that refuses a request is reachable.
            let isThere = error.kind == .refused || error.kind == .lostClaim || !error.endsConnection
            if error.endsConnection { connection = nil }
            let failed = time.elapsed(), share = Double.random(in: 0.5...1)
            state.withLock { state in
                if isThere { state.breaker.succeeded() } else { state.breaker.failed(at: failed, share: share) }
            }
            return noted(self.error(error.kind, job.verb, error.reason))
        }
    }

    private func noted(_ error: TaskHandoffError) -> TaskHandoffError {
        guard error.kind != .lostClaim else { return error }
        state.withLock { state in
            switch error.kind {
            case .unreachable: state.statistics.unreachable += 1
            case .unanswered: state.statistics.unanswered += 1
            case .refused, .lostClaim: state.statistics.refused += 1
            case .malformed: state.statistics.malformed += 1
            }
            state.statistics.lastProblem = error.description
        }
        return error
    }

    private func connect() throws(PostgreSQLProblem) -> PostgreSQLConnection {
        let connection: PostgreSQLConnection
        do throws(PostgreSQLProblem) {
            let first = state.withLock { $0.failedAttempts }
            connection = try PostgreSQLConnection(conninfo, from: first, within: settings.connectTimeout)
            // A server that refuses this, being a standby for example, is no better than a silent one.
            try connection.run(prepare, within: settings.statementTimeout)
        } catch {
            state.withLock { $0.failedAttempts += 1 }
            throw error
        }
        state.withLock { $0.statistics.connections += 1 }
        return connection
    }
}
#endif
