import CPlimsollLinux
import Glibc
import Plimsoll

/// The service manager that started this process, as sd_notify(3) speaks to it: datagrams of `KEY=VALUE` lines to `$NOTIFY_SOCKET`.
public struct ServiceManager: Sendable {
    /// The address of its socket; abstract if it begins with `@`.
    public let address: String
    /// How often it wants to hear `WATCHDOG=1` of this process at least; `nil` if it doesn't watch.
    public let watchdogInterval: Duration?

    /// The one that the environment names; `nil` if there is none.
    ///
    /// - Throws: `ServiceManagerError` if the variable is no address.
    public init?() throws(ServiceManagerError) {
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
        watchdogInterval = environment("WATCHDOG_USEC").flatMap { Int64($0) }.flatMap { isMine && $0 > 0 ? .microseconds($0) : nil }
    }

    /// Says `lines` to it, with open files.
    ///
    /// - Throws: `ServiceManagerError` if it can't be reached. Its queue being full is one of the reasons: this never blocks.
    public func tell(_ lines: String..., descriptors: [Int32] = []) throws(ServiceManagerError) {
        let result = Self.send(Array(lines.joined(separator: "\n").utf8), to: address, descriptors)
        guard result < 0 else { return }
        throw ServiceManagerError(
            isBusy: result == -EAGAIN, "$NOTIFY_SOCKET \(printable(address, atMost: 120)): \(String(cString: strerror(-result)))")
    }

    /// Sends one datagram; 0, or a negative errno.
    package static func send(_ bytes: [UInt8], to address: String, _ descriptors: [Int32] = []) -> Int32 {
        plimsoll_notify(address, bytes, bytes.count, descriptors, Int32(descriptors.count))
    }
}

/// The service manager can't be told.
public struct ServiceManagerError: Error, Sendable, Hashable, CustomStringConvertible {
    /// Whom, and why not.
    public var description: String

    /// Its queue is full: the same may succeed a moment later.
    public var isBusy: Bool

    init(isBusy: Bool = false, _ description: String) { (self.isBusy, self.description) = (isBusy, description) }
}
