#if PostgreSQL
import CPostgreSQL
import Glibc
import Plimsoll

/// What went wrong between a connection and its server.
struct PostgreSQLProblem: Error {
    var kind: TaskHandoffError.Kind
    var reason: String
    /// Whether nothing more can be asked over this connection.
    var endsConnection: Bool
    /// Whether the same statement may succeed when the server is asked once more: nothing of it was done.
    var mayRepeat = false
}

/// One connection, used by one thread. Nothing of it blocks but poll(2), until a deadline that holds for the whole of a request, however slowly answers trickle.
final class PostgreSQLConnection {
    /// The most times that one statement is sent while the server reports a conflict with another transaction.
    static let mostAttempts = 8

    private let handle: OpaquePointer
    /// The number of statements that were sent once more after a conflict with another transaction.
    private(set) var repeats = 0

    /// Connects within `timeout`.
    ///
    /// - Parameter conninfo: as for libpq. A host's name is resolved by the system, which may take longer; an address isn't.
    init(_ conninfo: String, within timeout: Duration) throws(PostgreSQLProblem) {
        guard let handle = PQconnectStart(conninfo) else {
            throw PostgreSQLProblem(kind: .unreachable, reason: "no memory for a connection", endsConnection: true)
        }
        self.handle = handle
        // Notices go nowhere: a library doesn't write to the standard error.
        PQsetNoticeProcessor(handle, { _, _ in }, nil)
        let deadline = Self.now + timeout
        var turn = PGRES_POLLING_WRITING
        while turn != PGRES_POLLING_OK {
            guard turn != PGRES_POLLING_FAILED, PQstatus(handle) != CONNECTION_BAD else { throw problem(.unreachable) }
            guard wait(turn == PGRES_POLLING_READING ? POLLIN : POLLOUT, until: deadline) else {
                throw PostgreSQLProblem(kind: .unreachable, reason: "no connection within \(timeout)", endsConnection: true)
            }
            turn = PQconnectPoll(handle)
        }
        guard PQsetnonblocking(handle, 1) == 0 else { throw problem(.unreachable) }
    }

    deinit { PQfinish(handle) }

    /// Returns the rows of texts that `statement` gives, at most `most` of them, with `parameters` in the place of `$1`, `$2`, ….
    ///
    /// The statement is a transaction of its own. A conflict with another transaction (SQLSTATE 40001, 40P01) undoes all of it, so it is sent again until
    /// `timeout` or `mostAttempts` is reached. After any other refusal the connection is ready for the next statement, unless the problem ends it.
    func rows(_ statement: String, _ parameters: [String?], columns: Int32, most: Int, within timeout: Duration) throws(PostgreSQLProblem)
        -> [[String]]
    {
        let deadline = Self.now + timeout
        var attempt = 1
        while true {
            do throws(PostgreSQLProblem) {
                return try rowsOnce(statement, parameters, columns: columns, most: most, until: deadline, timeout)
            } catch {
                guard error.mayRepeat, attempt < Self.mostAttempts, Self.now < deadline else { throw error }
                attempt += 1
                repeats += 1
            }
        }
    }

    /// Carries out the statements of `script`, without parameters, in one transaction. What they return is dropped.
    func run(_ script: String, within timeout: Duration) throws(PostgreSQLProblem) {
        let deadline = Self.now + timeout
        guard PQsendQuery(handle, script) == 1 else { throw problem(.unanswered) }
        try flush(until: deadline, timeout)
        while let result = try next(until: deadline, timeout) {
            defer { PQclear(result) }
            switch PQresultStatus(result) {
            case PGRES_COMMAND_OK, PGRES_TUPLES_OK: break
            case let status: throw failure(status, of: result, until: deadline, timeout)
            }
        }
    }

    private func rowsOnce(
        _ statement: String, _ parameters: [String?], columns: Int32, most: Int, until deadline: Duration, _ timeout: Duration
    ) throws(PostgreSQLProblem) -> [[String]] {
        try send(statement, parameters)
        try flush(until: deadline, timeout)
        var rows: [[String]]?
        while let result = try next(until: deadline, timeout) {
            defer { PQclear(result) }
            switch PQresultStatus(result) {
            case PGRES_COMMAND_OK: rows = rows ?? []
            case PGRES_TUPLES_OK: rows = try Self.rows(of: result, columns: columns, most: most)
            case let status: throw failure(status, of: result, until: deadline, timeout)
            }
        }
        guard let rows else { throw PostgreSQLProblem(kind: .nonsense, reason: "the answer is empty", endsConnection: true) }
        return rows
    }

    /// Returns the problem that `result` reports, once the rest of the answer has been taken: libpq accepts no request before that.
    private func failure(_ status: ExecStatusType, of result: OpaquePointer, until deadline: Duration, _ timeout: Duration) -> PostgreSQLProblem {
        guard [PGRES_FATAL_ERROR, PGRES_NONFATAL_ERROR, PGRES_BAD_RESPONSE].contains(status) else {
            return PostgreSQLProblem(
                kind: .nonsense, reason: "an answer of kind \(status.rawValue) makes no sense here", endsConnection: true)
        }
        var problem = refusal(result)
        // A connection that is dropped needs no draining.
        while !problem.endsConnection {
            do throws(PostgreSQLProblem) {
                guard let rest = try next(until: deadline, timeout) else { break }
                // The state of a copy never ends by itself; no statement of ours begins one.
                let isCopy = [PGRES_COPY_IN, PGRES_COPY_OUT, PGRES_COPY_BOTH].contains(PQresultStatus(rest))
                PQclear(rest)
                problem.endsConnection = isCopy
            } catch {
                problem.endsConnection = true
            }
        }
        return problem
    }

    private func send(_ statement: String, _ parameters: [String?]) throws(PostgreSQLProblem) {
        // Texts, so that nothing depends on the types of the server's version; bytes are written as hexadecimal digits.
        var copies = parameters.map { $0.map { strdup($0) } }
        defer { for copy in copies { free(copy ?? nil) } }
        let sent = copies.withUnsafeMutableBufferPointer { copies in
            var pointers = copies.map { $0.flatMap { $0 }.map { UnsafePointer($0) } }
            return PQsendQueryParams(handle, statement, Int32(pointers.count), nil, &pointers, nil, nil, 0)
        }
        guard sent == 1 else { throw problem(.unanswered) }
    }

    private func flush(until deadline: Duration, _ timeout: Duration) throws(PostgreSQLProblem) {
        while true {
            let left = PQflush(handle)
            if left == 0 { return }
            // A server that sends before it reads is read, or both would wait.
            guard left == 1, wait(POLLIN | POLLOUT, until: deadline), PQconsumeInput(handle) == 1 else {
                throw left == 1 && Self.now >= deadline ? late(timeout) : problem(.unanswered)
            }
        }
    }

    private func next(until deadline: Duration, _ timeout: Duration) throws(PostgreSQLProblem) -> OpaquePointer? {
        while PQisBusy(handle) == 1 {
            guard wait(POLLIN, until: deadline) else { throw late(timeout) }
            guard PQconsumeInput(handle) == 1 else { throw problem(.unanswered) }
        }
        // A server that answers without an end is late too, though there is always something to read.
        guard Self.now < deadline else { throw late(timeout) }
        return PQgetResult(handle)
    }

    private static func rows(of result: OpaquePointer, columns: Int32, most: Int) throws(PostgreSQLProblem) -> [[String]] {
        let count = PQntuples(result)
        guard PQnfields(result) == columns, count <= most else {
            throw PostgreSQLProblem(
                kind: .nonsense, reason: "\(count) rows of \(PQnfields(result)) columns came back, expected were \(most) at most of \(columns)",
                endsConnection: true)
        }
        return (0..<count).map { row in
            (0..<columns).map { column in
                let start = UnsafeRawPointer(PQgetvalue(result, row, column)), count = Int(PQgetlength(result, row, column))
                return String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
            }
        }
    }

    /// Returns what the server's error means for the request and the connection, by its SQLSTATE.
    ///
    /// | SQLSTATE | meaning | what follows |
    /// |---|---|---|
    /// | 40001, 40P01 | a conflict with another transaction: all of it was undone | the statement is sent again |
    /// | 25006 | the server only reads: it was demoted, or is a standby | reconnect, perhaps to another server |
    /// | 57014 | `statement_timeout`, or an operator's cancel | an error; the connection stays |
    /// | other 57, 08, none | the server is going down, not up yet, or the connection is broken | an error; reconnect |
    /// | others | the statement was refused | an error; the connection stays |
    private func refusal(_ result: OpaquePointer) -> PostgreSQLProblem {
        let state = PQresultErrorField(result, Int32(UInt8(ascii: "C"))).map { String(cString: $0) } ?? ""
        let text = Self.trimmed(PQresultErrorMessage(result))
        let reason = state.isEmpty ? text : "\(text) (SQLSTATE \(state))"
        switch state {
        case "40001", "40P01": return PostgreSQLProblem(kind: .refused, reason: reason, endsConnection: false, mayRepeat: true)
        case "25006": return PostgreSQLProblem(kind: .unreachable, reason: reason, endsConnection: true)
        case "57014": return PostgreSQLProblem(kind: .unanswered, reason: reason, endsConnection: false)
        case _ where state.isEmpty || state.hasPrefix("57") || state.hasPrefix("08"):
            return PostgreSQLProblem(kind: .unanswered, reason: reason, endsConnection: true)
        default: return PostgreSQLProblem(kind: .refused, reason: reason, endsConnection: false)
        }
    }

    private func problem(_ kind: TaskHandoffError.Kind) -> PostgreSQLProblem {
        PostgreSQLProblem(kind: kind, reason: Self.trimmed(PQerrorMessage(handle)), endsConnection: true)
    }

    private func late(_ timeout: Duration) -> PostgreSQLProblem {
        PostgreSQLProblem(kind: .unanswered, reason: "no whole answer within \(timeout)", endsConnection: true)
    }

    private static func trimmed(_ text: UnsafePointer<CChar>?) -> String {
        let text = text.map { String(cString: $0) } ?? ""
        return String(text.prefix(400)).split(whereSeparator: \.isNewline).joined(separator: "; ")
    }

    private func wait(_ events: Int32, until deadline: Duration) -> Bool {
        while true {
            let left = deadline - Self.now
            guard left > .zero else { return false }
            var file = pollfd(fd: PQsocket(handle), events: Int16(events), revents: 0)
            let count = poll(&file, 1, Int32(max(1, min(left, .seconds(86400)).inNanoseconds / 1_000_000)))
            if count > 0 { return true }
            if count == 0 || errno != EINTR { return Self.now < deadline && count < 0 }
        }
    }

    private static let start = SuspendingClock().now
    private static var now: Duration { start.duration(to: SuspendingClock().now) }
}
#endif
