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
}

/// One connection, used by one thread. Nothing of it blocks but poll(2), until a deadline that holds for the whole of a request, however slowly answers trickle.
final class PostgreSQLConnection {
    private let handle: OpaquePointer

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

    /// Rows of texts that `statement` gives, at most `most` of them, with `parameters` in the place of `$1`, `$2`, ….
    func rows(_ statement: String, _ parameters: [String?], columns: Int32, most: Int, within timeout: Duration) throws(PostgreSQLProblem)
        -> [[String]]
    {
        let deadline = Self.now + timeout
        try send(statement, parameters, until: deadline, timeout)
        var rows: [[String]]?
        while let result = try next(until: deadline, timeout) {
            defer { PQclear(result) }
            switch PQresultStatus(result) {
            case PGRES_COMMAND_OK: rows = rows ?? []
            case PGRES_TUPLES_OK: rows = try Self.rows(of: result, columns: columns, most: most)
            case PGRES_FATAL_ERROR, PGRES_NONFATAL_ERROR, PGRES_BAD_RESPONSE: throw refusal(result)
            default:
                throw PostgreSQLProblem(
                    kind: .nonsense, reason: "an answer of kind \(PQresultStatus(result).rawValue) makes no sense here", endsConnection: true)
            }
        }
        guard let rows else { throw PostgreSQLProblem(kind: .nonsense, reason: "the answer is empty", endsConnection: true) }
        return rows
    }

    private func send(_ statement: String, _ parameters: [String?], until deadline: Duration, _ timeout: Duration) throws(PostgreSQLProblem) {
        // Texts, so that nothing depends on the types of the server's version; bytes are written as hexadecimal digits.
        var copies = parameters.map { $0.map { strdup($0) } }
        defer { for copy in copies { free(copy ?? nil) } }
        let sent = copies.withUnsafeMutableBufferPointer { copies in
            var pointers = copies.map { $0.flatMap { $0 }.map { UnsafePointer($0) } }
            return PQsendQueryParams(handle, statement, Int32(pointers.count), nil, &pointers, nil, nil, 0)
        }
        guard sent == 1 else { throw problem(.unanswered) }
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

    private func refusal(_ result: OpaquePointer) -> PostgreSQLProblem {
        let state = PQresultErrorField(result, Int32(UInt8(ascii: "C"))).map { String(cString: $0) } ?? ""
        // 57014: our own statement_timeout. Class 57 otherwise, and 08: it is going down, or not up yet.
        let kind: TaskHandoffError.Kind =
            state == "57014" ? .unanswered : state.hasPrefix("57") || state.hasPrefix("08") || state.isEmpty ? .unanswered : .refused
        let text = Self.trimmed(PQresultErrorMessage(result))
        return PostgreSQLProblem(
            kind: kind, reason: state.isEmpty ? text : "\(text) (SQLSTATE \(state))", endsConnection: kind != .refused && state != "57014")
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
