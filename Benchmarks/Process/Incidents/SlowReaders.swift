import Glibc
import PlimsollDemos

/// Answers sent to slow clients and not yet read: TCP connections over the loopback with full buffers.
final class SlowReaders {
    private let listener: Int32
    private var address = sockaddr_in()
    private var pairs: [(server: Int32, client: Int32)] = []
    private let answer: [UInt8]

    var count: Int { pairs.count }

    /// Creates a listener.
    ///
    /// - Parameter size: bytes of an answer.
    init(size: Int) throws {
        answer = [UInt8](repeating: 1, count: size)
        // Each connection needs two descriptors: raise the limit as far as allowed.
        var files = rlimit()
        if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0 {
            files.rlim_cur = files.rlim_max
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
        }
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | O_CLOEXEC, 0)
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(listener, address, length) == 0 && listen(listener, 64) == 0
                    && getsockname(listener, address, &length) == 0
            }
        }
        guard result else {
            throw Failure.failed("cannot make a socket on the loopback: \(String(cString: strerror(errno)))")
        }
    }

    deinit {
        while !pairs.isEmpty { receiveOne() }
        close(listener)
    }

    /// Sends one more answer that is not read.
    func answerOne() throws {
        let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | O_CLOEXEC, 0)
        let isConnected = withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(client, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        let server = isConnected ? accept(listener, nil, nil) : -1
        guard server >= 0 else {
            let reason = String(cString: strerror(errno))
            close(client)
            throw Failure.failed("cannot connect over the loopback: \(reason)")
        }
        _ = send(server, answer, answer.count, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL))
        pairs.append((server, client))
    }

    /// Ends the oldest connection, as if the client had read the answer.
    func receiveOne() {
        guard !pairs.isEmpty else { return }
        let (server, client) = pairs.removeFirst()
        // Unread data is discarded with the connection.
        close(client)
        close(server)
    }
}
