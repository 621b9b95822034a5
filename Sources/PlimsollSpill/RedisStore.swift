#if Spill
import CSpill
import Glibc
import Plimsoll

extension SpillStore {
    /// A Redis server on the network, or a server with the same protocol (Valkey, KeyDB), accessed with hiredis.
    ///
    /// - Parameters:
    ///   - host: name or address of the server. The system resolves a name, which may exceed the timeouts.
    ///   - password: password for `AUTH`; `nil` for none.
    ///   - mostBytes: largest record; 8 MiB by default.
    public static func redis(
        host: String, port: UInt16 = 6379, password: String? = nil, mostBytes: Int = 8 << 20
    ) -> SpillStore {
        redis(.host(host, port: port), password, mostBytes)
    }

    /// A Redis server on this machine, by the path of the socket.
    public static func redis(socket path: String, password: String? = nil, mostBytes: Int = 8 << 20) -> SpillStore {
        redis(.socket(path), password, mostBytes)
    }

    private static func redis(_ endpoint: SpillEndpoint, _ secret: String?, _ most: Int) -> SpillStore {
        let name = "Redis at \(endpoint)"
        return SpillStore(name: name, mostBytes: most) { timeout throws(SpillError) in
            let connection = try RedisConnection(endpoint, name: name, within: timeout)
            if let secret { try connection.authenticate(secret, within: timeout) }
            return connection
        }
    }
}

/// One connection. Reads and writes without blocking, so a deadline covers a whole exchange, even if the answer
/// arrives slowly.
private final class RedisConnection: SpillConnection {
    private let context: UnsafeMutablePointer<redisContext>
    /// Function table of the reader, which keeps this pointer.
    private let functions = UnsafeMutablePointer<redisReplyObjectFunctions>.allocate(capacity: 1)
    private let name: String
    private static let elapsed = Timekeeper.running.elapsed

    init(_ endpoint: SpillEndpoint, name: String, within timeout: Duration) throws(SpillError) {
        self.name = name
        let made =
            switch endpoint {
            case .host(let host, let port): redisConnectNonBlock(host, Int32(port))
            case .socket(let path): redisConnectUnixNonBlock(path)
            }
        guard let made else { throw SpillError(.unreachable, "\(name): no memory for a connection") }
        context = made
        functions.initialize(to: made.pointee.reader.pointee.fn.pointee)
        // No expected answer is an array. An answer that claims a billion elements must cost nothing.
        functions.pointee.createArray = { _, _ in nil }
        made.pointee.reader.pointee.fn = functions
        guard made.pointee.err == 0 else {
            throw SpillError(.unreachable, "\(name): cannot connect: \(Self.text(made))")
        }
        guard wait(POLLOUT, until: Self.elapsed() + timeout) else {
            throw SpillError(.unreachable, "\(name): no connection within \(timeout)")
        }
        var problem: Int32 = 0, size = socklen_t(MemoryLayout<Int32>.size)
        if getsockopt(made.pointee.fd, SOL_SOCKET, SO_ERROR, &problem, &size) != 0 { problem = errno }
        guard problem == 0 else {
            throw SpillError(.unreachable, "\(name): cannot connect: \(String(cString: strerror(problem)))")
        }
    }

    deinit {
        redisFree(context)
        functions.deallocate()
    }

    func authenticate(_ secret: String, within timeout: Duration) throws(SpillError) {
        do throws(SpillError) {
            _ = try exchange([Array("AUTH".utf8), Array(secret.utf8)], most: 64, within: timeout)
        } catch {
            throw SpillError(error.kind == .refused ? .unreachable : error.kind, error.description)
        }
    }

    func put(_ key: String, _ bytes: [UInt8], age: Duration, within timeout: Duration) throws(SpillError) {
        let answer = try exchange(
            [Array("SET".utf8), Array(key.utf8), bytes, Array("PX".utf8), Array(String(age.milliseconds).utf8)],
            most: 64, within: timeout)
        guard answer == .text(Array("OK".utf8)) else {
            throw SpillError(.malformed, "\(name): the reply to SET is not OK")
        }
    }

    func get(_ key: String, most: Int, within timeout: Duration) throws(SpillError) -> [UInt8]? {
        switch try exchange([Array("GET".utf8), Array(key.utf8)], most: most, within: timeout) {
        case .text(let bytes): return bytes
        case .none: return nil
        case .number: throw SpillError(.malformed, "\(name): the reply to GET is a number")
        }
    }

    func remove(_ key: String, within timeout: Duration) throws(SpillError) {
        guard case .number = try exchange([Array("DEL".utf8), Array(key.utf8)], most: 64, within: timeout) else {
            throw SpillError(.malformed, "\(name): the reply to DEL is not a number")
        }
    }

    // MARK: Exchange

    private enum Answer: Equatable {
        case text([UInt8])
        case number(Int64)
        case none
    }

    private func exchange(_ words: [[UInt8]], most: Int, within timeout: Duration) throws(SpillError) -> Answer {
        let deadline = Self.elapsed() + timeout
        try append(words)
        var isWritten: Int32 = 0
        while isWritten == 0 {
            guard redisBufferWrite(context, &isWritten) == REDIS_OK else { throw lost() }
            if isWritten == 0, !wait(POLLOUT, until: deadline) { throw late(timeout) }
        }
        while true {
            var reply: UnsafeMutableRawPointer?
            guard redisGetReplyFromReader(context, &reply) == REDIS_OK else {
                throw SpillError(.malformed, "\(name): the reply is not of Redis' protocol: \(Self.text(context))")
            }
            if let reply {
                defer { freeReplyObject(reply) }
                return try answer(reply.assumingMemoryBound(to: redisReply.self).pointee, most)
            }
            guard context.pointee.reader.pointee.len - 1024 <= most else {
                throw SpillError(
                    .malformed, "\(name): the reply is longer than \(most) bytes, the maximum of a record")
            }
            guard wait(POLLIN, until: deadline) else { throw late(timeout) }
            guard redisBufferRead(context) == REDIS_OK else { throw lost() }
        }
    }

    private func append(_ words: [[UInt8]]) throws(SpillError) {
        let lengths = words.map(\.count)
        let all = words.flatMap { $0 }
        let status = all.withUnsafeBytes { bytes -> Int32 in
            var start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
            var pointers: [UnsafePointer<CChar>?] = []
            for length in lengths {
                pointers.append(start)
                start = start.map { $0 + length }
            }
            return redisAppendCommandArgv(context, Int32(words.count), &pointers, lengths)
        }
        guard status == REDIS_OK else {
            throw SpillError(.refused, "\(name): no memory for a request of \(all.count) bytes")
        }
    }

    private func answer(_ reply: redisReply, _ most: Int) throws(SpillError) -> Answer {
        func bytes() -> [UInt8] { Array(UnsafeRawBufferPointer(start: reply.str, count: reply.len)) }
        switch reply.type {
        case REDIS_REPLY_ERROR:
            throw SpillError(.refused, "\(name) refused: \(String(decoding: bytes().prefix(200), as: UTF8.self))")
        case REDIS_REPLY_STRING, REDIS_REPLY_STATUS:
            guard reply.len <= most else {
                throw SpillError(.malformed, "\(name): the reply has \(reply.len) bytes, and a record at most \(most)")
            }
            return .text(bytes())
        case REDIS_REPLY_INTEGER: return .number(reply.integer)
        case REDIS_REPLY_NIL: return .none
        default: throw SpillError(.malformed, "\(name): unexpected reply of type \(reply.type)")
        }
    }

    private func wait(_ events: Int32, until deadline: Duration) -> Bool {
        while true {
            let left = deadline - Self.elapsed()
            guard left > .zero else { return false }
            var file = pollfd(fd: context.pointee.fd, events: Int16(events), revents: 0)
            let count = poll(&file, 1, left.milliseconds)
            if count > 0 { return true }
            if count == 0 || errno != EINTR { return false }
        }
    }

    private func lost() -> SpillError {
        SpillError(.unanswered, "\(name): the connection was lost: \(Self.text(context))")
    }
    private func late(_ timeout: Duration) -> SpillError {
        SpillError(.unanswered, "\(name): no complete reply within \(timeout)")
    }

    private static func text(_ context: UnsafeMutablePointer<redisContext>) -> String {
        withUnsafeBytes(of: context.pointee.errstr) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }
}
#endif
