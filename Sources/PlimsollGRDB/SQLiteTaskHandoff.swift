#if GRDB
import Foundation
public import GRDB
import Glibc
import Plimsoll
public import PlimsollLifecycle

/// Task hand-over through a SQLite database file, for replicas on one machine: successive runs of a service, or
/// several concurrent processes.
///
/// Leases are measured by the time of day. A clock set forward by more than a lease may have work done twice. All
/// database work runs on GRDB's queue, so no thread of the cooperative pool waits for the disk or for another
/// process's lock.
public final class SQLiteTaskHandoff: TaskHandoff {
    public let policy: TaskHandoffPolicy
    public let name: String

    private let database: any DatabaseWriter
    private let now: @Sendable () -> Duration

    /// Opens or creates a database file for this purpose, private to the owner. The file gets mode 0600, as do the
    /// files beside it (`-wal`, `-shm`). For existing files of this user, the rights of others are removed. Group
    /// rights stay, because a group may share the file on purpose.
    ///
    /// - Parameter busyTimeout: longest wait of a call while another process writes.
    /// - Throws: Errors of GRDB if the file cannot be opened, or the table not created.
    public convenience init(
        path: String, policy: TaskHandoffPolicy = TaskHandoffPolicy(), busyTimeout: Duration = .seconds(2)
    ) throws {
        var configuration = Configuration()
        // GRDB computes the milliseconds as a C `int`.
        let timeout = max(.zero, min(busyTimeout, .seconds(Int32.max / 1000)))
        configuration.busyMode = .timeout(timeout.inSeconds)
        configuration.label = "plimsoll-handoff"
        // With a write-ahead log, readers do not block writers.
        configuration.journalMode = .wal
        Self.keepPrivate(path)
        try self.init(
            DatabaseQueue(path: path, configuration: configuration), name: "SQLite file \(path)", policy: policy)
    }

    /// Creates the file before SQLite does, because SQLite would leave the mode to the umask. SQLite reports any
    /// failure here when it opens the file.
    private static func keepPrivate(_ path: String) {
        // An in-memory database or a URI is not a file of this name.
        if path.isEmpty || path == ":memory:" || path.hasPrefix("file:") { return }
        // Do not open the file: closing any descriptor of the file would release SQLite's locks in this process
        // (POSIX record locks).
        guard mknod(path, S_IFREG | S_IRUSR | S_IWUSR, 0) != 0, errno == EEXIST else { return }
        // SQLite creates the files beside the database with the mode of the database.
        for path in [path, path + "-wal", path + "-shm"] {
            var status = stat()
            guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
                status.st_mode & S_IRWXO != 0
            else {
                continue
            }
            _ = chmod(path, status.st_mode & 0o7770)
        }
    }

    /// Creates the table in an open database. The busy mode of the database bounds the wait for other processes.
    /// Other writes on `database` delay calls.
    ///
    /// - Throws: Errors of GRDB if the table cannot be created.
    public convenience init(
        _ database: any DatabaseWriter, name: String = "SQLite database",
        policy: TaskHandoffPolicy = TaskHandoffPolicy()
    )
        throws
    {
        try self.init(database, name: name, policy: policy) {
            var time = timespec()
            clock_gettime(CLOCK_REALTIME, &time)
            return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
        }
    }

    /// Creates a store with a given clock.
    ///
    /// - Parameter now: the time of day, since 1970.
    package init(
        _ database: any DatabaseWriter, name: String, policy: TaskHandoffPolicy, now: @escaping @Sendable () -> Duration
    ) throws {
        (self.database, self.name, self.policy, self.now) = (database, name, policy, now)
        try database.write { database in
            try database.execute(
                sql: """
                    CREATE TABLE IF NOT EXISTS plimsoll_handoff (
                      number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, checkpoint BLOB NOT NULL, checksum INTEGER NOT NULL,
                      reason TEXT NOT NULL, attempts INTEGER NOT NULL, fence INTEGER NOT NULL, owner TEXT, due INTEGER NOT NULL,
                      set_aside INTEGER NOT NULL DEFAULT 0, problem TEXT);
                    CREATE INDEX IF NOT EXISTS plimsoll_handoff_due ON plimsoll_handoff (set_aside, due);
                    """)
        }
    }

    // MARK: TaskHandoff

    public func offer(_ work: HandedOffTask, heldBy owner: String, for lease: Duration)
        async throws(TaskHandoffError) -> HandedOffTask
    {
        if let problem = policy.problem(work, owner, in: name) { throw problem }
        let due = after(lease), most = policy.mostTasks
        let isThere = try await write("offer task \"\(work.name)\"") { database in
            try database.execute(
                sql: """
                    INSERT INTO plimsoll_handoff (id, name, checkpoint, checksum, reason, attempts, fence, owner, due)
                    SELECT ?, ?, ?, ?, ?, ?, 1, ?, ? WHERE (SELECT COUNT(*) FROM plimsoll_handoff) < ? ON CONFLICT (id) DO NOTHING
                    """,
                arguments: [
                    work.id, work.name, Self.blob(work.checkpoint), Int64(CRC32C.checksum(work.checkpoint)),
                    work.reason.rawValue,
                    work.attempts, owner, due,
                    most,
                ])
            return try Bool.fetchOne(
                database, sql: "SELECT EXISTS (SELECT 1 FROM plimsoll_handoff WHERE id = ?)", arguments: [work.id])
                ?? false
        }
        guard isThere else {
            throw .refused(
                "cannot offer task \"\(work.name)\" to \(name) because it holds \(most) tasks, which is the limit; retry later"
            )
        }
        return work.held(by: owner, fence: 1)
    }

    public func take(_ names: [String], by owner: String, for lease: Duration) async throws(TaskHandoffError)
        -> HandedOffTask?
    {
        guard !names.isEmpty else { return nil }
        let now = after(.zero), due = after(lease), attempts = policy.mostAttempts, most = policy.checkpointLimit.bytes
        let free = "NOT set_aside AND due <= ? AND name IN (\(names.map { _ in "?" }.joined(separator: ", ")))"
        let taken: Result<HandedOffTask?, Damaged> = try await write("take a task") { database in
            let arguments = StatementArguments([now]) + StatementArguments(names)
            try database.execute(
                sql: """
                    UPDATE plimsoll_handoff SET set_aside = 1, owner = NULL, problem = COALESCE(problem, 'taken ' || attempts || ' times and never ended')
                    WHERE \(free) AND attempts >= ?
                    """, arguments: arguments + [attempts])
            let row = try Row.fetchOne(
                database,
                sql: """
                    UPDATE plimsoll_handoff SET owner = ?, due = ?, fence = fence + 1, attempts = attempts + 1
                    WHERE number = (SELECT number FROM plimsoll_handoff WHERE \(free) ORDER BY number LIMIT 1)
                    RETURNING number, id, name, fence, attempts, reason, checksum, checkpoint
                    """, arguments: StatementArguments([owner]) + [due] + arguments)
            guard let row else { return .success(nil) }
            let number: Int64 = row[0]
            guard let id = Self.text(row, 1), let name = Self.text(row, 2),
                let fence = Self.number(row, 3), let attempt = Self.number(row, 4), attempt > 0,
                let reason = ExpirationReason(rawValue: Self.text(row, 5) ?? ""),
                let checkpoint = Self.bytes(row, 7), checkpoint.count <= most,
                Self.number(row, 6) == Int64(CRC32C.checksum(checkpoint))
            else {
                try database.execute(
                    sql:
                        "UPDATE plimsoll_handoff SET set_aside = 1, owner = NULL, checkpoint = x'', problem = 'the checkpoint is damaged' WHERE number = ?",
                    arguments: [number])
                return .failure(Damaged(id: Self.text(row, 1) ?? "row \(number)", name: Self.text(row, 2) ?? ""))
            }
            return .success(
                HandedOffTask(
                    id: id, name: name, checkpoint: checkpoint, reason: reason, attempts: Int(attempt), owner: owner,
                    fence: fence))
        }
        switch taken {
        case .success(let task): return task
        case .failure(let damaged):
            throw .malformed(
                "cannot take task \"\(damaged.name)\" (\(damaged.id)) in \(name) because it is damaged; the task was set aside"
            )
        }
    }

    private struct Damaged: Error {
        var id: String
        var name: String
    }

    public func renew(_ work: HandedOffTask, for lease: Duration, checkpoint: [UInt8]?)
        async throws(TaskHandoffError)
    {
        try await change(work, "renew", checkpoint, "due = ?", [after(lease)])
    }

    public func complete(_ work: HandedOffTask) async throws(TaskHandoffError) {
        let gone = try await write("complete task \"\(work.name)\"") { database in
            try database.execute(
                sql: "DELETE FROM plimsoll_handoff WHERE id = ? AND owner = ? AND fence = ? AND NOT set_aside",
                arguments: [work.id, work.owner, work.fence])
            return database.changesCount
        }
        guard gone == 1 else { throw .lost(work, "complete", in: name) }
    }

    public func release(_ work: HandedOffTask, checkpoint: [UInt8]?, failure: (problem: String, after: Duration)?)
        async throws(TaskHandoffError)
    {
        if let failure {
            try await change(
                work, "release", checkpoint, "owner = NULL, due = ?, problem = ?, set_aside = attempts >= ?",
                [after(failure.after), failure.problem, policy.mostAttempts])
        } else {
            // The offer itself was not an attempt.
            try await change(
                work, "release", checkpoint, "owner = NULL, due = ?, reason = ?, attempts = attempts - (fence > 1)",
                [after(.zero), work.reason.rawValue])
        }
    }

    public func setAside(most: Int) async throws(TaskHandoffError) -> [HandedOffTask] {
        try await write("list tasks that were set aside") { database in
            try Row.fetchAll(
                database,
                sql:
                    "SELECT id, name, checkpoint, attempts, COALESCE(problem, ''), reason FROM plimsoll_handoff WHERE set_aside ORDER BY number LIMIT ?",
                arguments: [max(0, most)]
            ).map { row in
                HandedOffTask(
                    id: Self.text(row, 0) ?? "", name: Self.text(row, 1) ?? "", checkpoint: Self.bytes(row, 2) ?? [],
                    reason: ExpirationReason(rawValue: Self.text(row, 5) ?? "") ?? .operator,
                    attempts: Int(Self.number(row, 3) ?? 0), problem: Self.text(row, 4))
            }
        }
    }

    public func retry(_ id: String) async throws(TaskHandoffError) -> Bool {
        let now = after(.zero)
        return try await write("retry \(id)") { database in
            try database.execute(
                sql: "UPDATE plimsoll_handoff SET set_aside = 0, attempts = 0, due = ? WHERE id = ? AND set_aside",
                arguments: [now, id])
            return database.changesCount == 1
        }
    }

    public func census() async throws(TaskHandoffError) -> (waiting: Int, held: Int, setAside: Int) {
        let now = after(.zero)
        return try await write("count tasks") { database in
            func count(_ condition: String, _ arguments: StatementArguments) throws -> Int {
                try Int.fetchOne(
                    database, sql: "SELECT COUNT(*) FROM plimsoll_handoff WHERE \(condition)", arguments: arguments)
                    ?? 0
            }
            return (
                waiting: try count("NOT set_aside AND (owner IS NULL OR due <= ?)", [now]),
                held: try count("NOT set_aside AND owner IS NOT NULL AND due > ?", [now]),
                setAside: try count("set_aside", [])
            )
        }
    }

    // MARK: Helpers

    /// Returns the time `time` from now, in microseconds since 1970.
    private func after(_ time: Duration) -> Int64 { (now() + time).inNanoseconds / 1000 }

    /// Returns bytes as a blob: SQLite would read an array of bytes as JSON.
    private static func blob(_ bytes: [UInt8]) -> DatabaseValue {
        bytes.withUnsafeBytes { Data($0) }.databaseValue
    }

    // SQLite keeps values of any type in any column, and a subscript of GRDB traps on a value of the wrong type.

    private static func text(_ row: Row, _ index: Int) -> String? { try? row.decode(String.self, atIndex: index) }

    private static func number(_ row: Row, _ index: Int) -> Int64? { try? row.decode(Int64.self, atIndex: index) }

    private static func bytes(_ row: Row, _ index: Int) -> [UInt8]? {
        try? row.withUnsafeData(atIndex: index) { (data: Data?) -> [UInt8] in data.map { Array($0) } ?? [] }
    }

    private func change(
        _ work: HandedOffTask, _ verb: String, _ checkpoint: [UInt8]?, _ assignments: String,
        _ parameters: StatementArguments
    ) async throws(TaskHandoffError) {
        if let problem = policy.problem(checkpoint, of: work.name, in: name) { throw problem }
        let changed = try await write("\(verb) task \"\(work.name)\"") { database in
            try database.execute(
                sql: """
                    UPDATE plimsoll_handoff SET checkpoint = COALESCE(?, checkpoint), checksum = COALESCE(?, checksum), \(assignments)
                    WHERE id = ? AND owner = ? AND fence = ? AND NOT set_aside
                    """,
                arguments: [checkpoint.map { Self.blob($0) }, checkpoint.map { Int64(CRC32C.checksum($0)) }]
                    + parameters
                    + [work.id, work.owner, work.fence])
            return database.changesCount
        }
        guard changed == 1 else { throw .lost(work, verb, in: name) }
    }

    /// Runs `body` in a transaction on the database's queue. Does not use GRDB's async form, because cancelling the
    /// task would end that form.
    private func write<Value: Sendable>(_ verb: String, _ body: @escaping @Sendable (Database) throws -> Value)
        async throws(TaskHandoffError)
        -> Value
    {
        let result: Result<Value, any Error> = await withCheckedContinuation { continuation in
            database.asyncWrite(body) { _, result in continuation.resume(returning: result) }
        }
        do { return try result.get() } catch { throw problem(verb, error) }
    }

    private func problem(_ verb: String, _ error: any Error) -> TaskHandoffError {
        let text = "cannot \(verb) in \(name): "
        guard let error = error as? DatabaseError else { return .refused(text + "\(error)") }
        switch error.resultCode {
        case .SQLITE_BUSY, .SQLITE_LOCKED:
            return .unreachable(
                text
                    + "another connection kept the database locked for longer than the busy timeout; \(error.message ?? "")"
            )
        case .SQLITE_CANTOPEN, .SQLITE_IOERR, .SQLITE_READONLY, .SQLITE_PERM:
            return .unreachable(text + "the file cannot be used: \(error.message ?? "") (\(error.extendedResultCode))")
        case .SQLITE_CORRUPT, .SQLITE_NOTADB:
            return .malformed(text + "the file is damaged: \(error.message ?? "")")
        default: return .refused(text + "\(error.message ?? "") (\(error.extendedResultCode))")
        }
    }
}
#endif
