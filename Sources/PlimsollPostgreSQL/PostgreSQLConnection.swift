#if PostgreSQL
import CPostgreSQL
import Glibc
import Plimsoll
import PlimsollLifecycle

/// A failure of a connection or of the server.
struct PostgreSQLProblem: Error {
    var kind: TaskHandoffError.Kind
    var reason: String
    /// True if the connection cannot be used any more.
    var endsConnection: Bool
    /// True if the same statement may succeed on a retry. Nothing of the statement was done.
    var mayRepeat = false
}

/// One connection, used by one thread. Blocks only in poll(2), until a deadline that covers the whole request, even
/// if the answer arrives slowly.
final class PostgreSQLConnection {
    /// Maximum number of attempts for one statement while the server reports conflicts with other transactions.
    static let mostAttempts = 8

    private let handle: OpaquePointer
    /// Number of statements that were retried after a conflict with another transaction.
    private(set) var repeats = 0

    /// Connects within `timeout`.
    ///
    /// - Parameters:
    ///   - conninfo: connection string of libpq. The system resolves a host name, which may exceed `timeout`; an
    ///     address needs no resolution.
    ///   - first: number of the host to begin with, modulo the number of hosts. libpq goes on to the next host after
    ///     an error, but waits for a silent host until `timeout`. The next attempt must begin with another host.
    init(_ conninfo: String, from first: Int, within timeout: Duration) throws(PostgreSQLProblem) {
        guard let handle = PostgreSQLConnection.begin(conninfo, from: first) else {
            throw PostgreSQLProblem(kind: .unreachable, reason: "no memory for a connection", endsConnection: true)
        }
        self.handle = handle
        // Drop notices: a library does not write to standard error.
        PQsetNoticeProcessor(handle, { _, _ in }, nil)
        let deadline = Self.now + timeout
        var turn = PGRES_POLLING_WRITING
        while turn != PGRES_POLLING_OK {
            guard turn != PGRES_POLLING_FAILED, PQstatus(handle) != CONNECTION_BAD else { throw problem(.unreachable) }
            guard wait(turn == PGRES_POLLING_READING ? POLLIN : POLLOUT, until: deadline) else {
                throw PostgreSQLProblem(
                    kind: .unreachable, reason: "no connection within \(timeout)", endsConnection: true)
            }
            turn = PQconnectPoll(handle)
        }
        guard PQsetnonblocking(handle, 1) == 0 else { throw problem(.unreachable) }
    }

    deinit { PQfinish(handle) }

    /// Begins to connect to the hosts of `conninfo`, host `first` first.
    private static func begin(_ conninfo: String, from first: Int) -> OpaquePointer? {
        // libpq itself reports an invalid text.
        guard first > 0, let options = PQconninfoParse(conninfo, nil) else { return PQconnectStart(conninfo) }
        defer { PQconninfoFree(options) }
        // The text is made of bytes, because a password need not be UTF-8.
        var text: [UInt8] = [], option = options
        while let keyword = option.pointee.keyword {
            if let value = option.pointee.val {
                let isList = ["host", "hostaddr", "port"].contains(String(cString: keyword))
                let part = isList ? rotated(bytes(value), by: first) : bytes(value)
                text += bytes(keyword) + [UInt8(ascii: "="), UInt8(ascii: "'")]
                for byte in part {
                    if byte == UInt8(ascii: "'") || byte == UInt8(ascii: "\\") { text.append(UInt8(ascii: "\\")) }
                    text.append(byte)
                }
                text += [UInt8(ascii: "'"), UInt8(ascii: " ")]
            }
            option += 1
        }
        text.append(0)
        return text.withUnsafeBytes { PQconnectStart($0.baseAddress?.assumingMemoryBound(to: CChar.self)) }
    }

    /// Moves the first `count` parts of a list to the end. All lists of a text have equal lengths, or one part.
    private static func rotated(_ list: [UInt8], by count: Int) -> [UInt8] {
        let comma = UInt8(ascii: ","), parts = list.split(separator: comma, omittingEmptySubsequences: false)
        let first = count % parts.count
        return Array((parts[first...] + parts[..<first]).joined(separator: [comma]))
    }

    private static func bytes(_ text: UnsafePointer<CChar>) -> [UInt8] {
        Array(UnsafeRawBufferPointer(start: text, count: strlen(text)))
    }

    /// Returns at most `most` rows of `statement`, as texts. `parameters` replace `$1`, `$2` and so on.
    ///
    /// The statement is a transaction of its own. A conflict with another transaction (SQLSTATE 40001, 40P01) rolls
    /// the statement back completely, so the statement is retried until `timeout` or `mostAttempts`. After any other
    /// refusal, the connection is ready for the next statement unless the problem ends the connection.
    func rows(_ statement: String, _ parameters: [String?], columns: Int32, most: Int, within timeout: Duration)
        throws(PostgreSQLProblem)
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

    /// Runs the statements of `script`, without parameters, in one transaction. Discards results.
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
        _ statement: String, _ parameters: [String?], columns: Int32, most: Int, until deadline: Duration,
        _ timeout: Duration
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
        guard let rows else {
            throw PostgreSQLProblem(kind: .malformed, reason: "the reply is empty", endsConnection: true)
        }
        return rows
    }

    /// Returns the problem that `result` reports, after reading the rest of the answer. libpq accepts no request
    /// before that.
    private func failure(
        _ status: ExecStatusType, of result: OpaquePointer, until deadline: Duration, _ timeout: Duration
    ) -> PostgreSQLProblem {
        guard [PGRES_FATAL_ERROR, PGRES_NONFATAL_ERROR, PGRES_BAD_RESPONSE].contains(status) else {
            return PostgreSQLProblem(
                kind: .malformed, reason: "unexpected reply of kind \(status.rawValue)",
                endsConnection: true)
        }
        var problem = refusal(result)
        // A connection that will be dropped needs no draining.
        while !problem.endsConnection {
            do throws(PostgreSQLProblem) {
                guard let rest = try next(until: deadline, timeout) else { break }
                // A copy state never ends without further action; no statement of this library begins a copy.
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
        // Send texts, so that nothing depends on the types of the server's version. Bytes are sent as hexadecimal
        // digits.
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
            // If the server sends before it reads, read too: otherwise both sides would wait.
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
        // A server that sends data without end also misses the deadline, although there is always something to read.
        guard Self.now < deadline else { throw late(timeout) }
        return PQgetResult(handle)
    }

    private static func rows(of result: OpaquePointer, columns: Int32, most: Int) throws(PostgreSQLProblem)
        -> [[String]]
    {
        let count = PQntuples(result)
        guard PQnfields(result) == columns, count <= most else {
            throw PostgreSQLProblem(
                kind: .malformed,
                reason:
                    "received \(count) rows of \(PQnfields(result)) columns; expected were at most \(most) rows of \(columns)",
                endsConnection: true)
        }
        return (0..<count).map { row in
            (0..<columns).map { column in
                let start = UnsafeRawPointer(PQgetvalue(result, row, column)),
                    count = Int(PQgetlength(result, row, column))
                return String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
            }
        }
    }

    /// Returns the consequence of a server error for the request and the connection, by SQLSTATE.
    ///
    /// | SQLSTATE | meaning | what follows |
    /// |---|---|---|
    /// | 40001, 40P01 | a conflict with another transaction; fully rolled back | the statement is retried |
    /// | 25006 | the server is read-only: demoted, or a standby | reconnect, perhaps to another server |
    /// | 57014 | `statement_timeout`, or an operator's cancel | an error; the connection stays |
    /// | other 57, 08, none | the server is going down, not up yet, or the connection is broken | an error; reconnect |
    /// | others | the statement was refused | an error; the connection stays |
    private func refusal(_ result: OpaquePointer) -> PostgreSQLProblem {
        let state = PQresultErrorField(result, Int32(UInt8(ascii: "C"))).map { String(cString: $0) } ?? ""
        let text = Self.trimmed(PQresultErrorMessage(result))
        let reason = state.isEmpty ? text : "\(text) (SQLSTATE \(state))"
        switch state {
        case "40001", "40P01":
            return PostgreSQLProblem(kind: .refused, reason: reason, endsConnection: false, mayRepeat: true)
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
        PostgreSQLProblem(kind: .unanswered, reason: "no complete reply within \(timeout)", endsConnection: true)
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
