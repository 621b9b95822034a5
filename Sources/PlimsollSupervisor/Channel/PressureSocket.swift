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
    private let unit: String
    private let isAllowed: (Int32, UInt32) -> Bool
    private var access: SocketAccess
    /// By file.
    private var connections: Set<Int32> = []
    private var level = PressureLevel.normal

    /// Listens at `UNIT.pressure` in `directory`, which must exist.
    ///
    /// - Parameter isAllowed: whether a process, of a user, may listen; the kernel names both. Everybody on the machine may ask.
    public convenience init(
        directory: String, unit: String, isAllowed: @escaping (_ process: Int32, _ user: UInt32) -> Bool = { _, _ in true }
    ) throws(ChannelError) {
        try self.init(directory: directory, unit: unit, access: .everyone, isAllowed: isAllowed)
    }

    init(directory: String, unit: String, access: SocketAccess, isAllowed: @escaping (Int32, UInt32) -> Bool) throws(ChannelError) {
        path = "\(directory)/\(unit).pressure"
        (self.unit, self.isAllowed, self.access) = (unit, isAllowed, access)
        socket = try LocalSocket(.stream, at: path, access: access, of: unit)
        readiness = try ReadyFiles(for: path)
        guard readiness.set(socket.file, UInt64(socket.file)) else { throw ChannelError("waiting for", path, errno: ENOMEM) }
    }

    deinit { ForeignCloser.shared.close(connections, of: unit, isOwnSocket: true) }

    /// Lets `access` reach the socket from now on.
    func admit(_ access: SocketAccess) {
        guard access != self.access, socket.admit(access) else { return }
        self.access = access
    }

    /// Whether connections can't be closed, or no more descriptors be opened: then `turn()` should rest for a while.
    private(set) var isBlocked = false

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
        var taken = -1
        repeat {
            taken = send(connection, notice.utf8Start, notice.utf8CodeUnitCount, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
        } while taken < 0 && errno == EINTR
        // A part of it is a notice as well.
        if taken > 0 { counters.notices += 1 } else { counters.dropped += 1 }
        return taken > 0
    }

    /// Accepts the connections that have come, and lets go of those that have ended. Never blocks; the work of one call is bounded.
    public func turn() {
        isBlocked = false
        for key in readiness.ready() {
            let file = Int32(truncatingIfNeeded: key)
            if file == socket.file { accept() } else { discard(file) }
        }
    }

    private func accept() {
        for _ in 0..<Self.maximumConnections {
            // What can't be closed must not be accepted.
            guard !ForeignCloser.shared.isFull("") else { return isBlocked = true }
            var (pid, user): (pid_t, uid_t) = (0, 0)
            let connection = plimsoll_accept_local(socket.file, &pid, &user)
            guard connection >= 0 else { return isBlocked = connection != -EAGAIN }
            guard isAllowed(pid, user), connections.count < Self.maximumConnections, readiness.set(connection, UInt64(connection)) else {
                ForeignCloser.shared.close(CollectionOfOne(connection), of: "", isOwnSocket: true)
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
        let (count, descriptors) = withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 1) { room in
            let (count, _, descriptors) = ForeignMessage.receive(connection, into: room)
            return (count, descriptors)
        }
        ForeignCloser.shared.close(descriptors, of: unit)
        // The protocol has no descriptors: a connection that sends some has no place here.
        if descriptors.isEmpty, count > 0 || count == -Int(EAGAIN) { return }
        connections.remove(connection)
        readiness.remove(connection)
        ForeignCloser.shared.close(CollectionOfOne(connection), of: unit, isOwnSocket: true)
        counters.closed += 1
    }
}
