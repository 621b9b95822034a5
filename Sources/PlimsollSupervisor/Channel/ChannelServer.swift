import CPlimsollSupervisor
import Glibc
public import PlimsollLinux

/// Where services that know Plimsoll speak with their supervisor: the server side of `$PLIMSOLL_SUPERVISOR`.
///
/// Nothing a service sends can harm another: everybody may connect, and the kernel says who it is; what is kept of it is of fixed size; a unit has a bounded number of connections, and
/// each a bounded rate, beyond which it is not read until it may speak again; a line that can't be read ends the connection. Nobody is waited for in writing.
///
/// Call `turn(at:)` when `file` is readable, and when `nextTurn` has come. One thread at a time may use it.
public final class ChannelServer {
    /// Who is at the other end, by the kernel's word (SO_PEERCRED).
    public struct Peer: Sendable, Hashable {
        /// Of this connection alone; never used again.
        public let id: UInt64
        /// The process that connected.
        public let process: Int32
        public let user: UInt32
        /// What `unitOf` said of it.
        public let unit: String
    }

    public enum Event: Sendable, Hashable {
        /// It has said hello.
        case opened(Peer)
        /// The number is that of the line, for answers.
        case message(Peer, ChildMessage, sequence: UInt64)
        /// Told once for each `opened`.
        case closed(Peer, Closing)
    }

    public enum Closing: Sendable, Hashable {
        /// It said bye.
        case left
        /// It closed without a word: as a rule it has ended.
        case gone
        /// It broke the rules, in this way.
        case refused(SupervisorMessage.Refusal, String)
    }

    /// What was done and what wasn't, since the beginning.
    public struct Counters: Sendable, Hashable {
        public var accepted = 0
        /// Connections closed for a reason of ours.
        public var refused = 0
        public var lines = 0
        /// Lines of verbs that are not known here.
        public var unknown = 0
        /// How often a connection was not read for a while, as it had said too much.
        public var rests = 0
        /// Messages that a connection had no room for.
        public var unsent = 0
    }

    /// Connections at once of all units, and of one.
    public static let maximumConnections = 256, maximumPerUnit = 8
    /// Lines a second that a connection may send, and how many at once: ten times what a link sends that has everything to tell.
    static let rate = 50.0, burst = 200.0
    /// How long who has said too much is not read.
    static let rest = Duration.seconds(1)
    /// The variable that tells services where to connect.
    public static let variable = SupervisorLink.variable

    public let path: String
    public internal(set) var counters = Counters()
    public private(set) var lastRefusal: String?
    /// Readable when there is something for `turn(at:)` to do.
    public var file: Int32 { readiness.file }
    public var connectionCount: Int { connections.count }

    let directory: String
    var listeners: [UInt64: ChannelListener] = [:]
    let readiness: ReadyFiles
    private let unitOf: (_ process: Int32, _ user: UInt32) -> String?
    private(set) var connections: [UInt64: ChannelConnection] = [:]
    private var resting: Set<UInt64> = []
    private(set) var lastID: UInt64 = 0

    /// Listens at `supervisor` in `directory`, which must exist, for any unit.
    ///
    /// - Parameter unitOf: the unit that a process belongs to; `nil` for none of ours, which is not listened to.
    public init(directory: String, unitOf: @escaping (_ process: Int32, _ user: UInt32) -> String?) throws(ChannelError) {
        path = "\(directory)/supervisor"
        self.directory = directory
        self.unitOf = unitOf
        readiness = try ReadyFiles(for: path)
        try open(path, for: nil, .everyone)
    }

    public var environment: [String: String] { [Self.variable: path] }

    /// When a connection or a listening socket that rests is to be read again; `nil` if none rests.
    public var nextTurn: Duration? {
        (resting.compactMap { connections[$0]?.restsUntil } + listeners.values.compactMap(\.restsUntil)).min()
    }

    /// Accepts, reads and takes what has come. Never blocks, and the work of one call is bounded: what is left keeps `file` readable.
    public func turn(at now: Duration) -> [Event] {
        var events: [Event] = []
        for id in resting { if let connection = connections[id], isOver(connection.restsUntil, at: now) { wake(connection, at: now, &events) } }
        for listener in listeners.values where listener.restsUntil != nil && isOver(listener.restsUntil, at: now) { wake(listener) }
        for key in readiness.ready() {
            if let listener = listeners[key] {
                accept(listener, at: now)
            } else if let connection = connections[key] {
                serve(connection, at: now, &events)
            }
        }
        return events
    }

    /// Sends `message`.
    ///
    /// - Returns: false if it could not be sent: the connection is closed, or its service has not read for long.
    @discardableResult
    public func send(_ message: SupervisorMessage, to id: UInt64) -> Bool {
        guard let connection = connections[id] else { return false }
        let isSent = connection.send(message)
        if !isSent { counters.unsent += 1 }
        listen(to: connection)
        return isSent
    }

    // MARK: - Connections

    private func accept(_ listener: ChannelListener, at now: Duration) {
        // No more at once than wait at most: others are served in between.
        for _ in 0..<64 {
            // What can't be closed now must not be accepted, and a crowd has its turn later.
            guard !ForeignCloser.shared.isFull(""), listener.allowance.spend(at: now) else { return rest(listener, at: now) }
            var (process, user): (pid_t, uid_t) = (0, 0)
            let file = plimsoll_accept_local(listener.socket.file, &process, &user)
            guard file >= 0 else {
                // Without a free descriptor the listener would stay readable for nothing.
                if file != -EAGAIN { rest(listener, at: now) }
                return
            }
            lastID += 1
            let unit = unitOf(process, user)
            let peer = Peer(id: lastID, process: process, user: user, unit: unit ?? "")
            let connection = ChannelConnection(peer, file, at: now)
            let isRoom = connections.count < Self.maximumConnections && connections.values.count { $0.peer.unit == unit } < Self.maximumPerUnit
            if unit == nil || (listener.unit != nil && listener.unit != unit) {
                turnAway(connection, .unknownProcess)
            } else if isRoom, readiness.set(file, peer.id) {
                connections[peer.id] = connection
                counters.accepted += 1
            } else {
                turnAway(connection, .tooMany)
            }
        }
    }

    private func turnAway(_ connection: ChannelConnection, _ reason: SupervisorMessage.Refusal) {
        _ = connection.send(.refused(reason))
        counters.refused += 1
        lastRefusal = "process \(connection.peer.process): \(reason.rawValue)"
    }

    /// Ends it. Its file is closed later and elsewhere.
    private func close(_ connection: ChannelConnection, _ closing: Closing, _ events: inout [Event]) {
        if case .refused(let reason, let explanation) = closing {
            turnAway(connection, reason)
            lastRefusal = "process \(connection.peer.process) of \(connection.peer.unit): \(explanation)"
        }
        readiness.remove(connection.stream.file)
        connections[connection.peer.id] = nil
        resting.remove(connection.peer.id)
        if connection.hasGreeted { events.append(.closed(connection.peer, closing)) }
    }

    private func listen(to connection: ChannelConnection) {
        _ = readiness.set(
            connection.stream.file, connection.peer.id, reading: connection.restsUntil == nil, writing: !connection.stream.outbox.isEmpty)
    }

    // MARK: Reading

    private func serve(_ connection: ChannelConnection, at now: Duration, _ events: inout [Event]) {
        if !connection.stream.outbox.isEmpty {
            _ = connection.stream.flush()
            listen(to: connection)
        }
        guard connection.restsUntil == nil else {
            // A connection that is not read is ready for nothing but its end, once all is sent.
            if connection.stream.outbox.isEmpty { close(connection, .gone, &events) }
            return
        }
        guard !ForeignCloser.shared.isFull(connection.peer.unit) else {
            return close(connection, .refused(.malformed, "descriptors that its unit has sent can't be closed"), &events)
        }
        let (arrival, descriptors) = connection.read()
        guard descriptors == 0 else { return close(connection, .refused(.malformed, "\(descriptors) descriptors came with its lines"), &events) }
        switch arrival {
        case .bytes: take(connection, at: now, &events)
        case .nothing: break
        case .gone: close(connection, .gone, &events)
        }
    }

    /// Takes the whole lines that are there.
    private func take(_ connection: ChannelConnection, at now: Duration, _ events: inout [Event]) {
        while connection.stream.hasLine {
            guard connection.spend(at: now) else {
                connection.restsUntil = now + Self.rest
                resting.insert(connection.peer.id)
                counters.rests += 1
                return listen(to: connection)
            }
            do throws(MessageError) {
                guard let line = try connection.stream.nextLine() else { return }
                counters.lines += 1
                let (sequence, message) = try ChildMessage.decode(line)
                let refusal =
                    connection.stream.follows(sequence)
                    ? greet(message, connection, &events) : .refused(.sequence, "line \(sequence) after \(connection.stream.heard)")
                if let refusal { return close(connection, refusal, &events) }
                guard record(message, sequence, connection, &events) else { return }
            } catch {
                return close(connection, .refused(.malformed, error.description), &events)
            }
        }
    }

    /// Looks after hello, first and never again; why the connection is closed, if it is.
    private func greet(_ message: ChildMessage?, _ connection: ChannelConnection, _ events: inout [Event]) -> Closing? {
        guard case .hello(let version) = message else {
            return connection.hasGreeted ? nil : .refused(.noHello, "the first line is no hello")
        }
        guard !connection.hasGreeted else { return .refused(.malformed, "a second hello") }
        guard version == MessageLine.version else { return .refused(.version, "version \(version); \(MessageLine.version) is spoken here") }
        connection.hasGreeted = true
        events.append(.opened(connection.peer))
        return nil
    }

    private func record(_ message: ChildMessage?, _ sequence: UInt64, _ connection: ChannelConnection, _ events: inout [Event]) -> Bool {
        switch message {
        case nil: counters.unknown += 1
        case .hello: break
        case .bye:
            close(connection, .left, &events)
            return false
        case .some(let message): events.append(.message(connection.peer, message, sequence: sequence))
        }
        return true
    }

    // MARK: Resting

    func isOver(_ until: Duration?, at now: Duration) -> Bool {
        // A clock that went far back must not make a rest of years.
        until.map { now >= $0 || $0 - now > Self.rest } ?? true
    }

    private func wake(_ connection: ChannelConnection, at now: Duration, _ events: inout [Event]) {
        connection.restsUntil = nil
        resting.remove(connection.peer.id)
        take(connection, at: now, &events)
        if connections[connection.peer.id] != nil { listen(to: connection) }
    }
}
