import Glibc
import PlimsollLinux

/// A socket that links connect to. Each unit has one; another serves all units that the supervisor did not start.
final class ChannelListener {
    let socket: LocalSocket
    /// The only unit that may connect; `nil` for any.
    let unit: String?
    var access: SocketAccess
    /// End of the pause in accepting; `nil` while connections are accepted.
    var restsUntil: Duration?
    var allowance = Allowance(rate: 50, burst: 128, at: .zero)

    init(_ socket: LocalSocket, unit: String?, access: SocketAccess) {
        (self.socket, self.unit, self.access) = (socket, unit, access)
    }
}

extension ChannelServer {
    /// Lower bound of the listeners' keys. Numbers of connections stay below.
    private static let firstKey = UInt64(1) << 63
    /// Time that a listener pauses when connections come too fast or can't be closed.
    private static let listenerRest = Duration.milliseconds(100)

    /// The path of a unit's own socket. Stays the same across supervisors: units that a former supervisor started
    /// know the path already.
    func path(of unit: String) -> String { "\(directory)/\(unit).link" }

    /// The variable that tells the unit's processes the socket's path.
    func environment(of unit: String) -> [String: String] { [Self.variable: path(of: unit)] }

    /// Listens for links of one unit on a socket for that unit alone.
    func listen(for unit: String, _ access: SocketAccess) throws(ChannelError) {
        try open(path(of: unit), for: unit, access)
    }

    func stopListening(for unit: String) {
        for (key, listener) in listeners where listener.unit == unit {
            readiness.remove(listener.socket.file)
            listeners[key] = nil
        }
    }

    /// Restricts the unit's own socket to `access` from now on.
    func admit(_ access: SocketAccess, for unit: String) {
        for listener in listeners.values where listener.unit == unit && listener.access != access {
            if listener.socket.admit(access) { listener.access = access }
        }
    }

    func open(_ path: String, for unit: String?, _ access: SocketAccess) throws(ChannelError) {
        let socket = try LocalSocket(.stream, at: path, access: access, of: unit ?? "")
        let key = Self.firstKey + UInt64(socket.file)
        guard readiness.set(socket.file, key) else { throw ChannelError("waiting for", path, errno: ENOMEM) }
        listeners[key] = ChannelListener(socket, unit: unit, access: access)
    }

    func rest(_ listener: ChannelListener, at now: Duration) {
        listener.restsUntil = now + Self.listenerRest
        counters.rests += 1
        _ = readiness.set(listener.socket.file, Self.firstKey + UInt64(listener.socket.file), reading: false)
    }

    func wake(_ listener: ChannelListener) {
        listener.restsUntil = nil
        _ = readiness.set(listener.socket.file, Self.firstKey + UInt64(listener.socket.file))
    }
}

/// The connection of one service, with a token bucket.
final class ChannelConnection {
    let peer: ChannelServer.Peer
    var stream: LineStream
    var hasGreeted = false
    /// End of the pause in reading; `nil` while the connection is read.
    var restsUntil: Duration?

    private var allowance: Allowance

    init(_ peer: ChannelServer.Peer, _ file: Int32, at now: Duration) {
        self.peer = peer
        stream = LineStream(file)
        allowance = Allowance(rate: ChannelServer.rate, burst: ChannelServer.burst, at: now)
    }

    deinit { ForeignCloser.shared.close(CollectionOfOne(stream.file), of: peer.unit, isOwnSocket: true) }

    /// Takes a token for one more line. Returns false if none is left.
    func spend(at now: Duration) -> Bool { allowance.spend(at: now) }

    /// Reads the bytes that have arrived. Lines carry no descriptors, so any that came along are closed on another
    /// thread.
    func read() -> (arrival: LineStream.Arrival, descriptors: Int) {
        var descriptors: [Int32] = []
        let arrival = stream.read { file, room in
            let (count, _, files) = ForeignMessage.receive(file, into: room)
            descriptors = files
            return count
        }
        ForeignCloser.shared.close(descriptors, of: peer.unit)
        return (arrival, descriptors.count)
    }

    func send(_ message: SupervisorMessage) -> Bool { stream.send { message.encoded($0) } }
}
