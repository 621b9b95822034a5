import CPlimsollSupervisor
import Glibc
public import Plimsoll

/// The server side of `$MEMORY_PRESSURE_WATCH` for one unit, as a socket: systemd's protocol, in which a service that was not written for Plimsoll hears
/// warnings too (C77).
///
/// Whatever a service can read from its connection is a notice. What it writes (`$MEMORY_PRESSURE_WRITE`) means nothing to a socket, and is thrown away.
/// Nobody is waited for: who does not read has his notices dropped once the kernel's buffer is full, and still finds those before.
///
/// Call `turn()` when `file` is readable. One thread at a time may use it.
public final class PressureSocket {
    /// What was done and what wasn't, since the beginning.
    public struct Counters: Sendable, Hashable {
        public var accepted = 0
        /// Connections closed at once, as there were as many as may be, or they are none of the unit's.
        public var refused = 0
        public var closed = 0
        public var notices = 0
        /// Notices that a connection had no room for.
        public var dropped = 0
    }

    /// A unit's processes; each has a connection. The unit can at most deprive itself.
    public static let maximumConnections = 32

    public let path: String
    public private(set) var counters = Counters()
    /// Readable when there is something for `turn()` to do.
    public var file: Int32 { readiness.file }
    public var connectionCount: Int { connections.count }

    private let socket: LocalSocket
    private let readiness: ReadyFiles
    private let isAllowed: (Int32, UInt32) -> Bool
    /// By file.
    private var connections: Set<Int32> = []
    private var level = PressureLevel.normal

    /// Listens at `UNIT.pressure` in `directory`, which must exist.
    ///
    /// - Parameter isAllowed: whether a process, of a user, may listen; the kernel names both. Everybody on the machine may ask.
    public init(
        directory: String, unit: String, isAllowed: @escaping (_ process: Int32, _ user: UInt32) -> Bool = { _, _ in true }
    ) throws(ChannelError) {
        path = "\(directory)/\(unit).pressure"
        self.isAllowed = isAllowed
        socket = try LocalSocket(.stream, at: path)
        readiness = try ReadyFiles(for: path)
        guard readiness.set(socket.file, UInt64(socket.file)) else { throw ChannelError("waiting for", path, errno: ENOMEM) }
    }

    deinit { for connection in connections { close(connection) } }

    /// The variables that tell the unit's processes where to listen. The second is empty lest the supervisor's own be inherited.
    public var environment: [String: String] { ["MEMORY_PRESSURE_WATCH": path, "MEMORY_PRESSURE_WRITE": ""] }

    /// What is sent for `level`: any byte is a notice to whoever only waits for one; who reads finds the level's name. Nothing for `normal`.
    public static func notice(of level: PressureLevel) -> StaticString? {
        switch level {
        case .normal: nil
        case .warning: "warning\n"
        case .critical: "critical\n"
        }
    }

    /// Tells all connections, and whoever connects from now on. Being out of it can't be told in this protocol, and is only remembered.
    ///
    /// - Returns: how many were told.
    @discardableResult
    public func announce(_ level: PressureLevel) -> Int {
        self.level = level
        return connections.count { tell($0) }
    }

    private func tell(_ connection: Int32) -> Bool {
        guard let notice = Self.notice(of: level) else { return false }
        let taken = send(connection, notice.utf8Start, notice.utf8CodeUnitCount, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
        // A part of it is a notice as well.
        if taken > 0 { counters.notices += 1 } else { counters.dropped += 1 }
        return taken > 0
    }

    /// Accepts who has come, and lets go of who has gone. Never blocks; the work of one call is bounded.
    public func turn() {
        for key in readiness.ready() {
            let file = Int32(truncatingIfNeeded: key)
            if file == socket.file { accept() } else { discard(file) }
        }
    }

    private func accept() {
        for _ in 0..<Self.maximumConnections {
            var (pid, user): (pid_t, uid_t) = (0, 0)
            let connection = plimsoll_accept_local(socket.file, &pid, &user)
            guard connection >= 0 else { return }
            guard isAllowed(pid, user), connections.count < Self.maximumConnections, readiness.set(connection, UInt64(connection)) else {
                close(connection)
                counters.refused += 1
                continue
            }
            connections.insert(connection)
            counters.accepted += 1
            // Memory may be short already when a service comes up.
            if level > .normal { _ = tell(connection) }
        }
    }

    /// Throws away what was written; a writer faster than this is read on at the next turn.
    private func discard(_ connection: Int32) {
        guard connections.contains(connection) else { return }
        let count = withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 1) {
            recv(connection, $0.baseAddress, $0.count, Int32(MSG_DONTWAIT))
        }
        if count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR)) { return }
        connections.remove(connection)
        close(connection)
        counters.closed += 1
    }
}
