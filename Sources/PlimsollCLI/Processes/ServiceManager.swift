import Glibc

/// The service manager that started this process, if one did.
enum ServiceManager {
    /// Tells it that the service is ready, as `Type=notify` waits for: sd_notify(3), whose protocol is a datagram to `$NOTIFY_SOCKET`.
    ///
    /// - Returns: what went wrong; `nil` also where nobody asks to be told.
    @discardableResult
    static func tellReady(at path: String? = getenv("NOTIFY_SOCKET").map { String(cString: $0) }) -> String? {
        guard let path, !path.isEmpty else { return nil }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else { return "$NOTIFY_SOCKET is too long: \(printable(path))" }
        // An abstract address begins with a null byte, which is written as "@".
        if bytes[0] == UInt8(ascii: "@") { bytes[0] = 0 }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        let length = socklen_t(MemoryLayout<sockaddr_un>.offset(of: \.sun_path)! + bytes.count)
        let socket = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(socket) }
        let message = Array("READY=1".utf8)
        let sent = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { sendto(socket, message, message.count, Int32(MSG_NOSIGNAL), $0, length) }
        }
        return sent < 0 ? "$NOTIFY_SOCKET \(printable(path)): \(String(cString: strerror(errno)))" : nil
    }
}
