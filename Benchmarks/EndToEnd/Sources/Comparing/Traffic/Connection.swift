import CEpoll
import Glibc

/// A keep-alive connection to the server on loopback, one request at a time, that never blocks.
struct Connection {
    private(set) var file: Int32 = -1
    /// Index of the arrival that waits for its answer; `nil` while idle.
    var request: Int?
    /// Seconds of the load's clock at which the request was sent.
    var sentAt = 0.0
    var answer = Answer()
    private var isConnecting = false
    private var unsent: [UInt8] = []

    /// Outcome of an attempt to read or write.
    enum Outcome { case goesOn, answered, closed, refused }

    /// Connects under `key`.
    ///
    /// - Returns: `refused` if the port is closed.
    mutating func open(port: UInt16, epoll: Int32, key: UInt32) -> Outcome {
        file = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard file >= 0 else { return .refused }
        var on: Int32 = 1
        setsockopt(file, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(file, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 || errno == EINPROGRESS else {
            close()
            return .refused
        }
        isConnecting = result != 0
        guard e2e_epoll_add(epoll, file, key, isConnecting ? 1 : 0) == 0 else {
            close()
            return .refused
        }
        return .goesOn
    }

    /// Sends a request, or keeps the request until the connection stands.
    mutating func send(_ text: String) -> Outcome {
        answer = Answer()
        unsent = Array(text.utf8)
        return isConnecting ? .goesOn : flush()
    }

    /// Continues with the operations that are ready.
    mutating func proceed(epoll: Int32, key: UInt32) -> Outcome {
        if isConnecting {
            var problem: Int32 = 0, size = socklen_t(MemoryLayout<Int32>.size)
            getsockopt(file, SOL_SOCKET, SO_ERROR, &problem, &size)
            if problem != 0 { return .refused }
            isConnecting = false
            _ = e2e_epoll_read_only(epoll, file, key)
            return unsent.isEmpty ? .goesOn : flush()
        }
        return receive()
    }

    mutating func close() {
        if file >= 0 { Glibc.close(file) }
        self = Connection()
    }

    /// Sends the kept request. A request is shorter than an empty socket's buffer, so all of it is sent at once, or
    /// none.
    private mutating func flush() -> Outcome {
        let sent = Glibc.send(file, unsent, unsent.count, Int32(MSG_NOSIGNAL))
        defer { unsent = [] }
        return sent == unsent.count ? .goesOn : .closed
    }

    private mutating func receive() -> Outcome {
        withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 16) { buffer in
            while true {
                let count = recv(file, buffer.baseAddress, buffer.count, 0)
                if count < 0, errno == EAGAIN || errno == EINTR { return .goesOn }
                guard count > 0, request != nil else { return .closed }
                answer.read(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
                if answer.isMalformed { return .closed }
                if answer.isComplete { return .answered }
            }
        }
    }
}
