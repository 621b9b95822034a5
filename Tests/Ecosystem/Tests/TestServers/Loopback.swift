import Foundation
import Synchronization

/// A port of this machine's loopback.
public enum Loopback {
    /// Returns a port that is free now and that no other call has returned.
    ///
    /// The port is below the range from which the kernel takes ports for connections (`net.ipv4.ip_local_port_range`),
    /// so that no connection takes the port before the server does.
    public static func freePort() -> UInt16 {
        while true {
            let port = UInt16.random(in: 20_000..<32_000)
            guard returned.withLock({ $0.insert(port).inserted }) else { continue }
            let file = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(file) }
            if bind(file, to: port) { return port }
        }
    }

    private static let returned = Mutex<Set<UInt16>>([])

    private static func bind(_ file: Int32, to port: UInt16) -> Bool {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        address.sin_port = port.bigEndian
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.bind(file, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
    }

    /// Connects to `port` with a window so small that little fits. The caller closes the connection.
    public static func connect(to port: UInt16) -> Int32 {
        let file = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in(), window = Int32(4096)
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        address.sin_port = port.bigEndian
        setsockopt(file, SOL_SOCKET, SO_RCVBUF, &window, socklen_t(MemoryLayout<Int32>.size))
        let connected = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.connect(file, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        }
        precondition(file >= 0 && connected == 0, "port \(port) of loopback: \(String(cString: strerror(errno)))")
        return file
    }

    /// Returns true if the other end has closed. Skips all bytes that the other end sent before.
    public static func isOver(_ file: Int32) -> Bool {
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let taken = recv(file, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if taken <= 0 { return taken == 0 || errno != EAGAIN }
        }
    }

    static func listen(backlog: Int32?) -> (file: Int32, port: UInt16) {
        let file = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        precondition(file >= 0 && bind(file, to: 0), "no port of loopback is free: \(String(cString: strerror(errno)))")
        if let backlog { precondition(Glibc.listen(file, backlog) == 0) }
        return (file, port(of: file))
    }

    private static func port(of file: Int32) -> UInt16 {
        var address = sockaddr_in(), size = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(file, $0, &size) }
        }
        return UInt16(bigEndian: address.sin_port)
    }
}

/// A server that accepts connections and answers each chunk that it reads with the same bytes, or never.
public final class PuppetServer: Sendable {
    public let port: UInt16
    private let file: Int32
    private let connections = Mutex<Set<Int32>>([])
    private let accepted = Atomic<Int>(0)

    /// - Parameter answer: The answer to each chunk read; `nil` for silence.
    public init(answering answer: [UInt8]?) {
        (file, port) = Loopback.listen(backlog: 64)
        Thread.detachNewThread { [self] in
            while case let connection = accept(file, nil, nil), connection >= 0 {
                connections.withLock { _ = $0.insert(connection) }
                accepted.add(1, ordering: .relaxed)
                Thread.detachNewThread { self.serve(connection, answer) }
            }
            // Closed by the thread that waits on the descriptor: after the close, another file may get the same number.
            close(file)
        }
    }

    /// Number of accepted connections.
    public var connectionCount: Int { accepted.load(ordering: .relaxed) }

    /// Ends the server and its connections.
    public func stop() {
        shutdown(file, Int32(SHUT_RDWR))
        connections.withLock { connections in for connection in connections { shutdown(connection, Int32(SHUT_RDWR)) } }
    }

    private func serve(_ connection: Int32, _ answer: [UInt8]?) {
        var buffer = [UInt8](repeating: 0, count: 65536)
        while read(connection, &buffer, buffer.count) > 0 {
            if let answer, send(connection, answer, answer.count, Int32(MSG_NOSIGNAL)) <= 0 { break }
        }
        // Under the lock, so that `stop` never shuts down the next file with this number.
        connections.withLock { connections in
            connections.remove(connection)
            close(connection)
        }
    }
}
