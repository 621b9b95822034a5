#if PostgreSQL
import Plimsoll
public import PlimsollLifecycle

/// Time limits and table name of a hand-over store in PostgreSQL.
struct PostgreSQLSettings: Sendable, Hashable {
    var connectTimeout: Duration
    var statementTimeout: Duration
    var shortestPause: Duration
    var longestPause: Duration
    var table: String

    /// Describes the first invalid setting; `nil` if all are valid.
    var problem: String? {
        for (name, value) in [
            ("connectTimeout", connectTimeout), ("statementTimeout", statementTimeout),
            ("shortestPause", shortestPause),
        ]
        where value < .milliseconds(1) {
            return "\(name) is \(value), allowed is a millisecond or more"
        }
        if longestPause < shortestPause {
            return "longestPause is \(longestPause), allowed is shortestPause (\(shortestPause)) or more"
        }
        let isName =
            !table.isEmpty && table.utf8.count <= 50
            && table.utf8.allSatisfy { $0 == 95 || (48...57).contains($0) || (97...122).contains($0) }
        if !isName || (table.utf8.first.map { (48...57).contains($0) } ?? true) {
            return "table is \"\(table)\", allowed are 1 to 50 lowercase letters, digits and _, the first not a digit"
        }
        return nil
    }
}

/// Counts of a store's connection since the start.
public struct PostgreSQLHandoffStatistics: Sendable, Hashable {
    /// Connections made.
    public var connections = 0
    /// Requests answered.
    public var answered = 0
    /// Requests for which there was no connection.
    public var unreachable = 0
    /// Requests without an answer in time, or with a broken connection.
    public var unanswered = 0
    /// Requests that the server refused.
    public var refused = 0
    /// Requests with an invalid answer.
    public var malformed = 0
    /// Statements retried after a conflict with another transaction.
    public var repeated = 0
    /// Requests skipped because the server had just failed.
    public var skipped = 0
    /// Description of the last problem; `nil` if there was none.
    public var lastProblem: String?
}

/// Task hand-over through a PostgreSQL server (9.5 or later), for replicas on any number of machines.
///
/// Replicas claim work with `FOR UPDATE SKIP LOCKED`, so no replica waits for another. Only the server's clock
/// measures leases. All requests run on one dedicated thread with one connection. The connection is made on first
/// use, and again after a failure, with exponential back-off. Each request ends within the time limit.
///
/// A refusal by the server is an error of one request; the next request uses the same connection. Three refusals are
/// special:
///
/// - A conflict with another transaction (SQLSTATE 40001, 40P01): the statement is retried.
/// - A read-only server (25006; demoted, or a standby): the error is `.unreachable`, and the next request reconnects.
///   Name all servers and `target_session_attrs=read-write` in `conninfo`.
/// - A statement that the server cancelled (57014): the error is `.unanswered`.
///
/// Behind PgBouncer in transaction mode, give the store a database user, and so a pool, of its own.
/// `statement_timeout` and `client_min_messages` are settings of the server session, which such a pool shares among
/// clients.
public final class PostgreSQLTaskHandoff: TaskHandoff {
    public let policy: TaskHandoffPolicy
    public let name: String

    private let worker: PostgreSQLWorker
    private let table: String

    /// Creates a store that connects on first use.
    ///
    /// - Parameters:
    ///   - conninfo: connection string of libpq: `"host=10.0.0.5 dbname=jobs user=export"` or a URI. An address
    ///     avoids the resolver, which no time limit bounds.
    ///   - name: name of the server in errors; by default without secrets of `conninfo`.
    ///   - policy: limits of the store, and the policy for resuming work.
    ///   - table: name of the table: letters, digits and `_`. Created if missing.
    ///   - connectTimeout: longest time to connect. After a failed attempt, the next one begins with the next host of
    ///     `conninfo`.
    ///   - statementTimeout: longest time for a statement, and longest time for a statement to wait in the queue. The
    ///     server ends a statement a tenth earlier, and after 24 days at the latest (`statement_timeout`).
    ///   - shortestPause: back-off after a failure; doubled with each further failure.
    ///   - longestPause: longest back-off.
    /// - Precondition: The time limits are a millisecond or more, and the table has such a name.
    public init(
        _ conninfo: String, name: String = "PostgreSQL", policy: TaskHandoffPolicy = TaskHandoffPolicy(),
        table: String = "plimsoll_handoff", connectTimeout: Duration = .seconds(2),
        statementTimeout: Duration = .seconds(2), shortestPause: Duration = .milliseconds(100),
        longestPause: Duration = .seconds(10)
    ) {
        let settings = PostgreSQLSettings(
            connectTimeout: connectTimeout, statementTimeout: statementTimeout, shortestPause: shortestPause,
            longestPause: longestPause, table: table)
        if let problem = settings.problem { preconditionFailure("PostgreSQLTaskHandoff: \(problem)") }
        (self.policy, self.name, self.table) = (policy, "\(name), table \(table)", table)
        // A tenth less than the client's limit, so that the server's own refusal arrives in time and leaves the
        // connection usable. The server's own setting is a 32-bit number of milliseconds.
        let timeout = max(1, min(settings.statementTimeout.inNanoseconds / 1_000_000 * 9 / 10, Int64(Int32.max)))
        worker = PostgreSQLWorker(
            name: self.name, conninfo: conninfo, settings: settings,
            // One message, so one transaction: a pooler such as PgBouncer in transaction mode assigns each
            // transaction to any session. A session lock might be released in another session than the one that took
            // the lock.
            prepare: """
                set statement_timeout = \(timeout);
                set client_min_messages = error;
                -- Replicas start together, and "if not exists" does not keep two of them apart.
                select pg_advisory_xact_lock(\(Self.lock));
                create table if not exists \(table) (
                  number bigserial primary key, id text not null unique, name text not null, checkpoint bytea not null, checksum bigint not null,
                  reason text not null, attempts integer not null, fence bigint not null, owner text, due timestamptz not null,
                  set_aside boolean not null default false, problem text);
                create index if not exists \(table)_due on \(table) (set_aside, due)
                """)
    }

    deinit { worker.stop() }

    /// An arbitrary number, unlikely to be used by other programs.
    private static let lock = 0x506c_696d_736f

    /// Counts of the connection.
    public var statistics: PostgreSQLHandoffStatistics { worker.statistics }

    // MARK: TaskHandoff

    public func offer(_ work: HandedOffTask, heldBy owner: String, for lease: Duration)
        async throws(TaskHandoffError) -> HandedOffTask
    {
        if let problem = policy.problem(work, owner, in: name) { throw problem }
        let inserted = try await worker.rows(
            "offer task \"\(work.name)\"",
            """
            with new as (
              insert into \(table) (id, name, checkpoint, checksum, reason, attempts, fence, owner, due)
              select $1, $2, decode($3, 'hex'), $4::bigint, $5, $6::integer, 1, $7, clock_timestamp() + $8::float8 * interval '1 second'
              where (select count(*) from (select 1 from \(table) limit $9::bigint) lying) < $9::bigint
              on conflict (id) do nothing returning id)
            select (select count(*) from new) + (select count(*) from \(table) where id = $1)
            """,
            [
                work.id, work.name, Self.digits(work.checkpoint), "\(CRC32C.checksum(work.checkpoint))",
                work.reason.rawValue,
                "\(work.attempts)", owner,
                "\(lease.inSeconds)", "\(policy.mostTasks)",
            ], columns: 1, most: 1)
        guard inserted.first?.first != "0" else {
            throw .refused(
                "cannot offer task \"\(work.name)\" to \(name) because it holds \(policy.mostTasks) tasks, which is the limit; retry later"
            )
        }
        return work.held(by: owner, fence: 1)
    }

    public func take(_ names: [String], by owner: String, for lease: Duration) async throws(TaskHandoffError)
        -> HandedOffTask?
    {
        // One parameter for each name: the text form of an array would need quoting.
        let list = names.indices.map { "$\($0 + 4)" }.joined(separator: ", ")
        guard !names.isEmpty else { return nil }
        let free = "not set_aside and due <= clock_timestamp() and name in (\(list))"
        let found = try await worker.rows(
            "take a task",
            """
            with poison as (
              update \(table) set set_aside = true, owner = null, problem = coalesce(problem, 'taken ' || attempts || ' times and never ended')
              where number in (select number from \(table) where \(free) and attempts >= $3::integer limit 10 for update skip locked)),
            next as (
              select number from \(table) where \(free) and attempts < $3::integer order by number limit 1 for update skip locked)
            update \(table) t set owner = $1, fence = fence + 1, attempts = attempts + 1, due = clock_timestamp() + $2::float8 * interval '1 second'
            from next where t.number = next.number
            returning t.id, t.name, t.fence, t.attempts, t.reason, t.checksum, encode(t.checkpoint, 'hex')
            """, [owner, "\(lease.inSeconds)", "\(policy.mostAttempts)"] + names, columns: 7, most: 1)
        guard let row = found.first else { return nil }
        guard let fence = Int64(row[2]), let attempt = Int(row[3]), attempt > 0, let checkpoint = Self.bytes(row[6]),
            names.contains(row[1]),
            checkpoint.count <= policy.checkpointLimit.bytes, row[5] == "\(CRC32C.checksum(checkpoint))",
            let reason = ExpirationReason(rawValue: row[4])
        else {
            _ = try? await worker.rows(
                "set a damaged task aside",
                "update \(table) set set_aside = true, owner = null, checkpoint = '', problem = 'the checkpoint is damaged' where id = $1",
                [row[0]], columns: 0, most: 0)
            throw .malformed(
                "cannot take task \"\(row[1].prefix(40))\" (\(row[0].prefix(40))) in \(name) because it is damaged; the task was set aside"
            )
        }
        return HandedOffTask(
            id: row[0], name: row[1], checkpoint: checkpoint, reason: reason, attempts: attempt, owner: owner,
            fence: fence)
    }

    public func renew(_ work: HandedOffTask, for lease: Duration, checkpoint: [UInt8]?)
        async throws(TaskHandoffError)
    {
        try await change(
            work, "renew", checkpoint, "due = clock_timestamp() + $6::float8 * interval '1 second'",
            ["\(lease.inSeconds)"])
    }

    public func complete(_ work: HandedOffTask) async throws(TaskHandoffError) {
        let gone = try await worker.rows(
            "complete task \"\(work.name)\"",
            "delete from \(table) where id = $1 and owner = $2 and fence = $3::bigint and not set_aside returning 1",
            [work.id, work.owner, "\(work.fence)"],
            columns: 1, most: 1)
        guard gone.count == 1 else { throw .lost(work, "complete", in: name) }
    }

    public func release(_ work: HandedOffTask, checkpoint: [UInt8]?, failure: (problem: String, after: Duration)?)
        async throws(TaskHandoffError)
    {
        if let failure {
            try await change(
                work, "release", checkpoint,
                """
                owner = null, due = clock_timestamp() + $6::float8 * interval '1 second', problem = $7, set_aside = attempts >= $8::integer
                """,
                ["\(failure.after.inSeconds)", failure.problem.filter { $0 != "\0" }, "\(policy.mostAttempts)"])
        } else {
            // The offer itself was not an attempt.
            try await change(
                work, "release", checkpoint,
                "owner = null, due = clock_timestamp(), reason = $6, attempts = attempts - case when fence > 1 then 1 else 0 end",
                [work.reason.rawValue])
        }
    }

    public func setAside(most: Int) async throws(TaskHandoffError) -> [HandedOffTask] {
        let most = max(0, min(most, policy.mostTasks))
        let found = try await worker.rows(
            "list tasks that were set aside",
            """
            select id, name, attempts, coalesce(problem, ''), encode(checkpoint, 'hex'), reason from \(table) where set_aside order by number limit $1::bigint
            """, ["\(most)"], columns: 6, most: most)
        return found.map {
            HandedOffTask(
                id: $0[0], name: $0[1], checkpoint: Self.bytes($0[4]) ?? [],
                reason: ExpirationReason(rawValue: $0[5]) ?? .operator, attempts: Int($0[2]) ?? 0, problem: $0[3])
        }
    }

    public func retry(_ id: String) async throws(TaskHandoffError) -> Bool {
        try await worker.rows(
            "retry \(id)",
            "update \(table) set set_aside = false, attempts = 0, due = clock_timestamp() where id = $1 and set_aside returning 1",
            [id], columns: 1,
            most: 1
        ).count == 1
    }

    public func census() async throws(TaskHandoffError) -> (waiting: Int, held: Int, setAside: Int) {
        let found = try await worker.rows(
            "count tasks",
            """
            select count(*) filter (where not set_aside and (owner is null or due <= clock_timestamp())),
              count(*) filter (where not set_aside and owner is not null and due > clock_timestamp()), count(*) filter (where set_aside) from \(table)
            """, [], columns: 3, most: 1)
        let numbers = found.first?.compactMap { Int($0) } ?? []
        guard numbers.count == 3 else {
            throw .malformed("cannot count tasks in \(name) because \(found) are not three numbers")
        }
        return (numbers[0], numbers[1], numbers[2])
    }

    // MARK: Helpers

    /// Changes the row of a valid claim. The parameters `$1` to `$5` are used here.
    private func change(
        _ work: HandedOffTask, _ verb: String, _ checkpoint: [UInt8]?, _ assignments: String, _ parameters: [String]
    ) async throws(TaskHandoffError) {
        if let problem = policy.problem(checkpoint, of: work.name, in: name) { throw problem }
        let changed = try await worker.rows(
            "\(verb) task \"\(work.name)\"",
            """
            update \(table) set checkpoint = coalesce(decode($4, 'hex'), checkpoint), checksum = coalesce($5::bigint, checksum), \(assignments)
            where id = $1 and owner = $2 and fence = $3::bigint and not set_aside returning 1
            """,
            [
                work.id, work.owner, "\(work.fence)", checkpoint.map { Self.digits($0) },
                checkpoint.map { "\(CRC32C.checksum($0))" },
            ]
                + parameters, columns: 1,
            most: 1)
        guard changed.count == 1 else { throw .lost(work, verb, in: name) }
    }

    private static func digits(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(unsafeUninitializedCapacity: 2 * bytes.count) { buffer in
            for (index, byte) in bytes.enumerated() {
                (buffer[2 * index], buffer[2 * index + 1]) = (digits[Int(byte >> 4)], digits[Int(byte & 15)])
            }
            return 2 * bytes.count
        }
    }

    private static func bytes(_ digits: String) -> [UInt8]? {
        func value(_ digit: UInt8) -> UInt8? {
            switch digit {
            case 48...57: digit - 48
            case 97...102: digit - 87
            default: nil
            }
        }
        let digits = Array(digits.utf8)
        guard digits.count % 2 == 0 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 2)
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let high = value(digits[index]), let low = value(digits[index + 1]) else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }
}
#endif
