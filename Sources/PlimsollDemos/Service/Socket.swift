import Glibc

/// A TCP socket on the loopback interface.
struct Socket {
    let descriptor: Int32

    /// Returns a listening socket on `port`; the kernel chooses a port for 0.
    static func listening(port: UInt16 = 0) throws -> (socket: Socket, port: UInt16) {
        let socket = try Socket()
        // Connections of a port that was in use a moment ago linger.
        var reuses: Int32 = 1
        setsockopt(socket.descriptor, SOL_SOCKET, SO_REUSEADDR, &reuses, socklen_t(MemoryLayout<Int32>.size))
        var address = loopback(port: port)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(socket.descriptor, address, length) == 0 && listen(socket.descriptor, 16) == 0
                    && getsockname(socket.descriptor, address, &length) == 0
            }
        }
        guard result else {
            let reason = errno
            socket.close()
            throw Failure.unavailable("cannot listen on 127.0.0.1: \(String(cString: strerror(reason)))")
        }
        return (socket, UInt16(bigEndian: address.sin_port))
    }

    /// Returns a connection to `port`; `nil` if no socket listens there.
    ///
    /// - Parameter patience: timeout of connecting and of each transfer, as a frozen service must not hold clients
    ///   for ever.
    static func connected(to port: UInt16, patience: Duration = .seconds(2)) -> Socket? {
        guard let socket = try? Socket() else { return nil }
        socket.setTimeout(patience)
        var address = loopback(port: port)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(socket.descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 else {
            socket.close()
            return nil
        }
        return socket
    }

    private init() throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else {
            throw Failure.unavailable("cannot make a socket: \(String(cString: strerror(errno)))")
        }
    }

    private init(descriptor: Int32) { self.descriptor = descriptor }

    private static func loopback(port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return address
    }

    /// Sets the timeout of sending and receiving.
    func setTimeout(_ patience: Duration) {
        let (seconds, attoseconds) = patience.components
        var time = timeval(tv_sec: Int(seconds), tv_usec: Int(attoseconds / 1_000_000_000_000))
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
    }

    /// Returns the next connection; `nil` if the socket is unusable.
    func accepted() -> Socket? {
        while true {
            let connection = accept(descriptor, nil, nil)
            if connection >= 0 { return Socket(descriptor: connection) }
            if errno != EINTR && errno != ECONNABORTED { return nil }
        }
    }

    /// Appends received bytes to `bytes`. Returns false at the end of the stream.
    func receive(into bytes: inout [UInt8], chunk: inout [UInt8]) -> Bool {
        while true {
            let count = recv(descriptor, &chunk, chunk.count, 0)
            if count > 0 {
                bytes.append(contentsOf: chunk[..<count])
                return true
            }
            if count == 0 || errno != EINTR { return false }
        }
    }

    /// Sends everything. Returns false if the peer is gone.
    func send(_ bytes: UnsafeRawBufferPointer, more: Bool = false) -> Bool {
        var rest = bytes
        let flags = Int32(MSG_NOSIGNAL) | (more ? Int32(MSG_MORE) : 0)
        while !rest.isEmpty {
            let sent = Glibc.send(descriptor, rest.baseAddress, rest.count, flags)
            if sent < 0 && errno == EINTR { continue }
            if sent <= 0 { return false }
            rest = UnsafeRawBufferPointer(rebasing: rest[sent...])
        }
        return true
    }

    func send(_ text: String, more: Bool = false) -> Bool {
        var text = text
        return text.withUTF8 { send(UnsafeRawBufferPointer($0), more: more) }
    }

    /// Ends transfers in progress on the socket, in other threads too.
    func shutDown() { shutdown(descriptor, Int32(SHUT_RDWR)) }

    func close() { Glibc.close(descriptor) }
}
