#if canImport(Glibc) && !PLIMSOLL_INERT
import CPlimsollLinux
import Glibc
import Plimsoll

/// The service manager that started this process, reached as in sd_notify(3): datagrams of `KEY=VALUE` lines to
/// `$NOTIFY_SOCKET`.
package struct ServiceManager: Sendable {
    /// The address of the socket; abstract if the first character is `@`.
    package let address: String
    /// Maximum interval between `WATCHDOG=1` messages of this process; `nil` if the service manager doesn't watch.
    package let watchdogInterval: Duration?

    /// Finds the service manager that the environment names; `nil` if there is none.
    ///
    /// - Throws: `ServiceManagerError` if the variable is no address.
    package init?() throws(ServiceManagerError) {
        try self.init { name in getenv(name).map { String(cString: $0) } }
    }

    package init?(environment: (String) -> String?) throws(ServiceManagerError) {
        guard let address = environment("NOTIFY_SOCKET"), !address.isEmpty else { return nil }
        guard address.hasPrefix("/") || address.hasPrefix("@"), address.utf8.count < 108 else {
            throw ServiceManagerError(
                "$NOTIFY_SOCKET is \"\(printable(address, atMost: 120))\"; allowed is an absolute path, or an abstract address that begins with @, of at most 107 bytes"
            )
        }
        self.address = address
        let isMine = environment("WATCHDOG_PID").map { Int32($0) == getpid() } ?? true
        watchdogInterval = environment("WATCHDOG_USEC").flatMap { Int64($0) }.flatMap {
            isMine && $0 > 0 ? .microseconds($0) : nil
        }
    }

    /// Sends `lines`, with open files. Never blocks.
    ///
    /// - Throws: `ServiceManagerError` if the service manager can't be reached, or the queue is full.
    package func notify(_ lines: String..., descriptors: [Int32] = []) throws(ServiceManagerError) {
        let result = Self.send(Array(lines.joined(separator: "\n").utf8), to: address, descriptors)
        guard result < 0 else { return }
        throw ServiceManagerError(
            isBusy: result == -EAGAIN,
            "$NOTIFY_SOCKET \(printable(address, atMost: 120)): \(String(cString: strerror(-result)))")
    }

    /// Sends one datagram; returns 0, or a negative errno.
    package static func send(_ bytes: [UInt8], to address: String, _ descriptors: [Int32] = []) -> Int32 {
        plimsoll_notify(address, bytes, bytes.count, descriptors, Int32(descriptors.count))
    }
}

/// An error of sending to the service manager.
package struct ServiceManagerError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The receiver, and the reason for the failure.
    package var description: String

    /// True if the queue is full: the same call may succeed a moment later.
    package var isBusy: Bool

    init(isBusy: Bool = false, _ description: String) { (self.isBusy, self.description) = (isBusy, description) }
}
#endif
