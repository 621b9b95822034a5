import CPlimsollSupervisor
import Glibc
package import Plimsoll

/// The server side of `$MEMORY_PRESSURE_WATCH` for one unit, as a socket. With this protocol of systemd, services
/// that were not written for Plimsoll receive warnings too (C77).
///
/// Any byte that a service reads from its connection is a notice. Bytes that the service writes
/// (`$MEMORY_PRESSURE_WRITE`) have no meaning on a socket and are discarded. Writes never block: when the kernel's
/// buffer of a slow reader is full, further notices are dropped, and the reader still finds the earlier ones.
///
/// Call `turn()` when `file` is readable. Only one thread at a time may use a socket.
package final class PressureSocket {
    /// Counts of finished and refused work since the start.
    package struct Counters: Sendable, Hashable {
        package var accepted = 0
        /// Connections closed at once, beyond the maximum or from processes outside the unit.
        package var refused = 0
        package var closed = 0
        package var notices = 0
        /// Notices dropped because the connection's buffer was full.
        package var dropped = 0
    }

    /// Greatest number of connections; each process of the unit has one. A unit that exhausts them harms only itself.
    package static let maximumConnections = 32

    package let path: String
    package private(set) var counters = Counters()
    /// Readable when `turn()` has work to do.
    package var file: Int32 { readiness.file }
    package var connectionCount: Int { connections.count }

    private let socket: LocalSocket
    private let readiness: ReadyFiles
    private let unit: String
    private let isAllowed: (Int32, UInt32) -> Bool
    private var access = SocketAccess.everyone
    private var connections: Set<Int32> = []
    private var level = PressureLevel.normal

    /// Listens at `UNIT.pressure` in `directory`, which must exist.
    ///
    /// - Parameter isAllowed: returns true if a process of a user may connect, as the kernel reports them. Any
    ///   process on the machine may try.
    package init(
        directory: String, unit: String,
        isAllowed: @escaping (_ process: Int32, _ user: UInt32) -> Bool = { _, _ in true }
    ) throws(ChannelError) {
        path = "\(directory)/\(unit).pressure"
        (self.unit, self.isAllowed) = (unit, isAllowed)
        socket = try LocalSocket(.stream, at: path, access: access, of: unit)
        readiness = try ReadyFiles(for: path)
        guard readiness.set(socket.file, UInt64(socket.file)) else {
            throw ChannelError("waiting for", path, errno: ENOMEM)
        }
    }

    deinit { ForeignCloser.shared.close(connections, of: unit, isOwnSocket: true) }

    /// Restricts the socket to `access` from now on.
    func admit(_ access: SocketAccess) {
        guard access != self.access, socket.admit(access) else { return }
        self.access = access
    }

    /// True if connections can't be closed, or no more descriptors can be opened. Pause before the next `turn()`
    /// then.
    private(set) var isBlocked = false

    /// The variables that tell the unit's processes the socket's path. The second is empty so that the supervisor's
    /// own value is not inherited.
    package var environment: [String: String] { ["MEMORY_PRESSURE_WATCH": path, "MEMORY_PRESSURE_WRITE": ""] }

    /// Returns the bytes sent for `level`; `nil` for `normal`. Any byte is a notice. A reader of the text finds the
    /// name of the level.
    package static func notice(of level: PressureLevel) -> StaticString? {
        switch level {
        case .normal: nil
        case .warning: "warning\n"
        case .critical: "critical\n"
        }
    }

    /// Notifies all present connections, and each later one when it is accepted. The protocol has no message for the
    /// end of pressure, so `normal` is only remembered.
    ///
    /// - Returns: number of connections notified.
    @discardableResult
    package func announce(_ level: PressureLevel) -> Int {
        self.level = level
        return connections.count { notify($0) }
    }

    private func notify(_ connection: Int32) -> Bool {
        guard let notice = Self.notice(of: level) else { return false }
        var taken = -1
        repeat {
            taken = send(
                connection, notice.utf8Start, notice.utf8CodeUnitCount, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
        } while taken < 0 && errno == EINTR
        // A partial write is a notice as well.
        if taken > 0 { counters.notices += 1 } else { counters.dropped += 1 }
        return taken > 0
    }

    /// Accepts new connections and closes those that have ended. Never blocks. The work of one call is bounded.
    package func turn() {
        isBlocked = false
        for key in readiness.ready() {
            let file = Int32(truncatingIfNeeded: key)
            if file == socket.file { accept() } else { discard(file) }
        }
    }

    private func accept() {
        for _ in 0..<Self.maximumConnections {
            // Don't accept connections that can't be closed.
            guard !ForeignCloser.shared.isFull("") else { return isBlocked = true }
            var (pid, user): (pid_t, uid_t) = (0, 0)
            let connection = plimsoll_accept_local(socket.file, &pid, &user)
            guard connection >= 0 else { return isBlocked = connection != -EAGAIN }
            guard isAllowed(pid, user), connections.count < Self.maximumConnections,
                readiness.set(connection, UInt64(connection))
            else {
                ForeignCloser.shared.close(CollectionOfOne(connection), of: "", isOwnSocket: true)
                counters.refused += 1
                continue
            }
            connections.insert(connection)
            counters.accepted += 1
            // Memory may be short already when a service starts.
            if level > .normal { _ = notify(connection) }
        }
    }

    /// Discards the bytes written by a service. If more are left, the next turn reads them.
    private func discard(_ connection: Int32) {
        guard connections.contains(connection) else { return }
        let (count, descriptors) = withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 1) { room in
            let (count, _, descriptors) = ForeignMessage.receive(connection, into: room)
            return (count, descriptors)
        }
        ForeignCloser.shared.close(descriptors, of: unit)
        // The protocol has no descriptors. Close a connection that sends some.
        if descriptors.isEmpty, count > 0 || count == -Int(EAGAIN) { return }
        connections.remove(connection)
        readiness.remove(connection)
        ForeignCloser.shared.close(CollectionOfOne(connection), of: unit, isOwnSocket: true)
        counters.closed += 1
    }
}
