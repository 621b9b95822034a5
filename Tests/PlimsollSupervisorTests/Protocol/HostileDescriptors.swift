import Glibc
import Plimsoll
import PlimsollLinux
import Synchronization
import TestSupport
import Testing

@testable import PlimsollSupervisor

/// TCP sockets whose last close takes a minute: they linger, and their peer never reads the sent bytes.
///
/// Unchecked: the descriptors' numbers never change; descriptors may be used on any thread.
final class LingeringSockets: @unchecked Sendable {
    private let listener: Int32
    /// Descriptors of one lingering socket.
    private(set) var files: [Int32] = []

    init?(_ count: Int) {
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        var small: Int32 = 4096
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, 4)
        let file = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        setsockopt(file, SOL_SOCKET, SO_SNDBUF, &small, 4)
        let isConnected = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(listener, address, length) == 0 && listen(listener, 8) == 0 && getsockname(listener, address, &length) == 0
                    && connect(file, address, length) == 0
            }
        }
        guard isConnected else { return nil }
        let bytes = [UInt8](repeating: 1, count: 65_536)
        while send(file, bytes, bytes.count, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL)) > 0 {}
        var lingering = linger(l_onoff: 1, l_linger: 60)
        setsockopt(file, SOL_SOCKET, SO_LINGER, &lingering, socklen_t(MemoryLayout<linger>.size))
        files = [file] + (1..<count).map { _ in fcntl(file, F_DUPFD_CLOEXEC, 0) }
    }

    /// Closes this side's descriptors. Fast as long as another process or a message has a copy of one.
    func letGo() {
        for file in files { close(file) }
        files = []
    }

    /// Closes the peer, and with the peer the sockets that linger.
    deinit {
        close(listener)
        letGo()
    }
}

/// Sends `text` with descriptors over a connected stream socket. Returns true if all bytes were sent.
func sendOverStream(_ text: String, _ descriptors: [Int32], over file: Int32) -> Bool {
    let bytes = Array(text.utf8)
    let space = MemoryLayout<cmsghdr>.size + descriptors.count * 4
    return bytes.withUnsafeBytes { bytes in
        withUnsafeTemporaryAllocation(byteCount: (space + 7) & ~7, alignment: 8) { control in
            let header = control.baseAddress!.assumingMemoryBound(to: cmsghdr.self)
            header.pointee.cmsg_len = space
            header.pointee.cmsg_level = SOL_SOCKET
            header.pointee.cmsg_type = Int32(SCM_RIGHTS)
            control.baseAddress!.advanced(by: MemoryLayout<cmsghdr>.size).copyMemory(from: descriptors, byteCount: descriptors.count * 4)
            var part = iovec(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
            return withUnsafeMutablePointer(to: &part) { part in
                var message = msghdr()
                (message.msg_iov, message.msg_iovlen) = (part, 1)
                if !descriptors.isEmpty { (message.msg_control, message.msg_controllen) = (control.baseAddress, control.count) }
                return sendmsg(file, &message, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)) == bytes.count
            }
        }
    }
}

/// Runs `body` on a thread of its own and waits for its end.
///
/// - Returns: false if the thread did not end within `limit`: the thread hangs, and is left behind.
func ends(_ what: String, within limit: Duration = .seconds(20), _ body: @escaping () -> Void) async -> Bool {
    let thread = HandedOver(body)
    guard Thread.start("may-hang", { thread.run() }) else { return false }
    return await until("the end of \(what)", limit: limit) { thread.isOver }
}

/// Unchecked: one thread runs the body, and the test that created this object waits for the body's end.
private final class HandedOver: @unchecked Sendable {
    private let body: () -> Void
    private let over = Atomic(false)
    init(_ body: @escaping () -> Void) { self.body = body }
    /// Acquiring: a thread that sees the end also sees the effects of the body.
    var isOver: Bool { over.load(ordering: .acquiring) }
    func run() {
        body()
        over.store(true, ordering: .releasing)
    }
}
