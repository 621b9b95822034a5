#if Spill
import CSpill
import Glibc
import Plimsoll

extension SpillStore {
    /// A memcached server on the network, accessed with libmemcached.
    ///
    /// - Parameters:
    ///   - host: name or address of the server. The system resolves a name, which may exceed the timeouts.
    ///   - mostBytes: largest record, 1,000,000 bytes by default: memcached takes items of 1 MiB (`-I`), including
    ///     the item header.
    public static func memcached(host: String, port: UInt16 = 11211, mostBytes: Int = 1_000_000) -> SpillStore {
        memcached(.host(host, port: port), mostBytes)
    }

    /// A memcached server on this machine, by the path of the socket.
    public static func memcached(socket path: String, mostBytes: Int = 1_000_000) -> SpillStore {
        memcached(.socket(path), mostBytes)
    }

    private static func memcached(_ endpoint: SpillEndpoint, _ most: Int) -> SpillStore {
        let name = "memcached at \(endpoint)"
        return SpillStore(name: name, mostBytes: most) { timeout throws(SpillError) in
            try MemcachedConnection(endpoint, name: name, most: most, within: timeout)
        }
    }
}

/// One connection. libmemcached's timeouts apply to each wait, not to a whole exchange. A separate thread enforces
/// the deadline of look-ups.
private final class MemcachedConnection: SpillConnection {
    private let handle: UnsafeMutablePointer<memcached_st>
    private let name: String
    private var timeout = Duration.zero

    init(_ endpoint: SpillEndpoint, name: String, most: Int, within timeout: Duration) throws(SpillError) {
        self.name = name
        guard let made = memcached_create(nil) else {
            throw SpillError(.unreachable, "\(name): no memory for a connection")
        }
        handle = made
        let added =
            switch endpoint {
            case .host(let host, let port): memcached_server_add(made, host, in_port_t(port))
            case .socket(let path): memcached_server_add_unix_socket(made, path)
            }
        guard added == MEMCACHED_SUCCESS else { throw SpillError(.unreachable, "\(name): \(Self.text(made, added))") }
        // The allocator enforces the size limit of an answer: a server that announces gigabytes gets no memory.
        let limit = UnsafeMutableRawPointer(bitPattern: UInt(2 * min(most, Int.max / 4) + 65536))
        memcached_set_memory_allocators(
            made, { _, size, limit in size <= Int(bitPattern: limit) ? malloc(size) : nil },
            { _, block, _ in free(block) },
            { _, block, size, limit in size <= Int(bitPattern: limit) ? realloc(block, size) : nil },
            { _, count, size, limit in
                let (bytes, overflow) = count.multipliedReportingOverflow(by: size)
                return !overflow && bytes <= Int(bitPattern: limit) ? calloc(count, size) : nil
            }, limit)
        // Use the binary protocol. With the text protocol, libmemcached 1.1.4 aborts the process (an assertion) on an
        // invalid answer to a `set`.
        memcached_behavior_set(made, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, 1)
        // Required for a timeout on the connection attempt.
        memcached_behavior_set(made, MEMCACHED_BEHAVIOR_NO_BLOCK, 1)
        memcached_behavior_set(made, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1)
        // The circuit breaker decides when to retry a server.
        memcached_behavior_set(made, MEMCACHED_BEHAVIOR_SERVER_FAILURE_LIMIT, 0)
        set(timeout)
        // The first request connects. This separates an unreachable server from a server that does not answer.
        let status = memcached_version(made)
        guard status == MEMCACHED_SUCCESS else {
            throw SpillError(.unreachable, "\(name): no connection within \(timeout): \(Self.text(made, status))")
        }
    }

    deinit { memcached_free(handle) }

    func put(_ key: String, _ bytes: [UInt8], age: Duration, within timeout: Duration) throws(SpillError) {
        set(timeout)
        // memcached reads more than 30 days as a date.
        let seconds = min(max(1, age.components.seconds), 30 * 86400)
        let status = bytes.withUnsafeBytes { bytes in
            memcached_set(
                handle, key, key.utf8.count, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count,
                time_t(seconds), 0)
        }
        guard status == MEMCACHED_SUCCESS || status == MEMCACHED_STORED else { throw problem(status, "set") }
    }

    func get(_ key: String, most: Int, within timeout: Duration) throws(SpillError) -> [UInt8]? {
        set(timeout)
        var count = 0, flags: UInt32 = 0, status = MEMCACHED_SUCCESS
        let found = memcached_get(handle, key, key.utf8.count, &count, &flags, &status)
        defer { free(found) }
        if status == MEMCACHED_NOTFOUND { return nil }
        guard status == MEMCACHED_SUCCESS else { throw problem(status, "get") }
        guard count <= most else {
            throw SpillError(.malformed, "\(name): the reply has \(count) bytes, and a record at most \(most)")
        }
        return Array(UnsafeRawBufferPointer(start: found, count: count))
    }

    func remove(_ key: String, within timeout: Duration) throws(SpillError) {
        set(timeout)
        let status = memcached_delete(handle, key, key.utf8.count, 0)
        guard status == MEMCACHED_SUCCESS || status == MEMCACHED_DELETED || status == MEMCACHED_NOTFOUND else {
            throw problem(status, "delete")
        }
    }

    private func set(_ timeout: Duration) {
        guard timeout != self.timeout else { return }
        self.timeout = timeout
        let milliseconds = UInt64(timeout.milliseconds)
        memcached_behavior_set(handle, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, milliseconds)
        memcached_behavior_set(handle, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, milliseconds)
        memcached_behavior_set(handle, MEMCACHED_BEHAVIOR_SND_TIMEOUT, milliseconds * 1000)
        memcached_behavior_set(handle, MEMCACHED_BEHAVIOR_RCV_TIMEOUT, milliseconds * 1000)
    }

    private func problem(_ status: memcached_return_t, _ verb: String) -> SpillError {
        let text = Self.text(handle, status)
        let kind: SpillError.Kind =
            switch status {
            case MEMCACHED_SERVER_ERROR, MEMCACHED_NOTSTORED, MEMCACHED_E2BIG,
                MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE, MEMCACHED_CLIENT_ERROR:
                .refused
            case MEMCACHED_PROTOCOL_ERROR, MEMCACHED_UNKNOWN_READ_FAILURE, MEMCACHED_PARTIAL_READ,
                MEMCACHED_MEMORY_ALLOCATION_FAILURE:
                .malformed
            default: .unanswered
            }
        return SpillError(kind, "\(name): \(verb): \(text)")
    }

    private static func text(_ handle: UnsafeMutablePointer<memcached_st>, _ status: memcached_return_t) -> String {
        let last = memcached_last_error_message(handle).map { String(cString: $0) } ?? ""
        return last.isEmpty ? String(cString: memcached_strerror(handle, status)) : last
    }
}
#endif
