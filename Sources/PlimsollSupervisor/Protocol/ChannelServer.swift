import CPlimsollSupervisor
import Glibc
package import PlimsollLinux

/// The server side of `$PLIMSOLL_SUPERVISOR`: services that know Plimsoll talk to their supervisor here.
///
/// No message of a service can harm another service:
/// - Any process may connect; the kernel identifies the peer.
/// - The state of a connection has a fixed size.
/// - Each unit has a bounded number of connections.
/// - Each connection has a bounded rate. A connection that exceeds the rate is not read until the pause is over.
/// - A malformed line ends the connection.
/// - Writes never block.
///
/// Call `turn(at:)` when `file` is readable, and at `nextTurn`. Only one thread at a time may use a server.
package final class ChannelServer {
    /// The process at the other end, as reported by the kernel (SO_PEERCRED).
    package struct Peer: Sendable, Hashable {
        /// Number of this connection; never reused.
        package let id: UInt64
        package let process: Int32
        package let user: UInt32
        /// The unit that `unitOf` returned for the process.
        package let unit: String
    }

    package enum Event: Sendable, Hashable {
        /// The service has said hello.
        case opened(Peer)
        /// A message and its line number, which answers refer to.
        case message(Peer, ChildMessage, sequence: UInt64)
        /// Reported once for each `opened`.
        case closed(Peer, Closing)
    }

    package enum Closing: Sendable, Hashable {
        /// The service said bye.
        case left
        /// The service closed without saying bye; as a rule the process has ended.
        case gone
        /// The service violated the protocol: the reason and an explanation.
        case refused(SupervisorMessage.Refusal, String)
    }

    /// Counts of finished and refused work since the start.
    package struct Counters: Sendable, Hashable {
        package var accepted = 0
        /// Connections that the server closed on purpose.
        package var refused = 0
        package var lines = 0
        /// Lines with an unknown verb.
        package var unknown = 0
        /// Number of pauses in reading a connection that exceeded its rate.
        package var rests = 0
        /// Messages dropped because the connection's buffer was full.
        package var unsent = 0
    }

    /// Greatest number of connections at once, of all units and of one unit.
    package static let maximumConnections = 256, maximumPerUnit = 8
    /// Lines per second that a connection may send, and lines at once. Ten times the rate of a link that reports
    /// everything.
    static let rate = 50.0, burst = 200.0
    /// Time that a connection is not read after exceeding the rate.
    static let rest = Duration.seconds(1)
    /// The variable that tells services the socket's path.
    package static let variable = SupervisorLink.variable

    package let path: String
    package internal(set) var counters = Counters()
    /// Readable when `turn(at:)` has work to do.
    package var file: Int32 { readiness.file }
    package var connectionCount: Int { connections.count }

    let directory: String
    var listeners: [UInt64: ChannelListener] = [:]
    let readiness: ReadyFiles
    private let unitOf: (_ process: Int32, _ user: UInt32) -> String?
    private(set) var connections: [UInt64: ChannelConnection] = [:]
    private var resting: Set<UInt64> = []
    private(set) var lastID: UInt64 = 0

    /// Listens at `supervisor` in `directory`, which must exist, for any unit.
    ///
    /// - Parameter unitOf: returns the unit of a process; `nil` for a process of no known unit, which is refused.
    package init(directory: String, unitOf: @escaping (_ process: Int32, _ user: UInt32) -> String?)
        throws(ChannelError)
    {
        path = "\(directory)/supervisor"
        self.directory = directory
        self.unitOf = unitOf
        readiness = try ReadyFiles(for: path)
        try open(path, for: nil, .everyone)
    }

    /// Time at which a paused connection or listener is to be read again; `nil` if none is paused.
    package var nextTurn: Duration? {
        (resting.compactMap { connections[$0]?.restsUntil } + listeners.values.compactMap(\.restsUntil)).min()
    }

    /// Accepts connections, reads, and returns the events. Never blocks. The work of one call is bounded; `file`
    /// stays readable while work is left.
    package func turn(at now: Duration) -> [Event] {
        var events: [Event] = []
        for id in resting {
            if let connection = connections[id], isOver(connection.restsUntil, at: now) {
                wake(connection, at: now, &events)
            }
        }
        for listener in listeners.values where listener.restsUntil != nil && isOver(listener.restsUntil, at: now) {
            wake(listener)
        }
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
    /// - Returns: false if the connection is closed, or its buffer is full because the service has not read for long.
    @discardableResult
    package func send(_ message: SupervisorMessage, to id: UInt64) -> Bool {
        guard let connection = connections[id] else { return false }
        let isSent = connection.send(message)
        if !isSent { counters.unsent += 1 }
        listen(to: connection)
        return isSent
    }

    // MARK: - Connections

    private func accept(_ listener: ChannelListener, at now: Duration) {
        // Accept at most one backlog per turn, so that other files are served in between.
        for _ in 0..<64 {
            // Don't accept connections that can't be closed now. When the rate is exceeded, accept the rest later.
            guard !ForeignCloser.shared.isFull(""), listener.allowance.spend(at: now) else {
                return rest(listener, at: now)
            }
            var (process, user): (pid_t, uid_t) = (0, 0)
            let file = plimsoll_accept_local(listener.socket.file, &process, &user)
            guard file >= 0 else {
                // Without a free descriptor the listener would stay readable and cause a busy loop.
                if file != -EAGAIN { rest(listener, at: now) }
                return
            }
            lastID += 1
            let unit = unitOf(process, user)
            let peer = Peer(id: lastID, process: process, user: user, unit: unit ?? "")
            let connection = ChannelConnection(peer, file, at: now)
            let isRoom =
                connections.count < Self.maximumConnections
                && connections.values.count { $0.peer.unit == unit } < Self.maximumPerUnit
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
    }

    /// Ends the connection. The file is closed later, on another thread.
    private func close(_ connection: ChannelConnection, _ closing: Closing, _ events: inout [Event]) {
        if case .refused(let reason, _) = closing { turnAway(connection, reason) }
        readiness.remove(connection.stream.file)
        connections[connection.peer.id] = nil
        resting.remove(connection.peer.id)
        if connection.hasGreeted { events.append(.closed(connection.peer, closing)) }
    }

    /// Closes all connections of a unit that is given up. A service that runs on then does without the supervisor, or
    /// connects again as another unit.
    func disconnect(_ unit: String) {
        var events: [Event] = []
        for connection in connections.values where connection.peer.unit == unit { close(connection, .gone, &events) }
    }

    private func listen(to connection: ChannelConnection) {
        _ = readiness.set(
            connection.stream.file, connection.peer.id, reading: connection.restsUntil == nil,
            writing: !connection.stream.outbox.isEmpty)
    }

    // MARK: Reading

    private func serve(_ connection: ChannelConnection, at now: Duration, _ events: inout [Event]) {
        if !connection.stream.outbox.isEmpty {
            _ = connection.stream.flush()
            listen(to: connection)
        }
        guard connection.restsUntil == nil else {
            // A paused connection with an empty outbox is ready only when the other end has closed.
            if connection.stream.outbox.isEmpty { close(connection, .gone, &events) }
            return
        }
        guard !ForeignCloser.shared.isFull(connection.peer.unit) else {
            return close(
                connection, .refused(.malformed, "descriptors that the unit sent cannot be closed"), &events)
        }
        let (arrival, descriptors) = connection.read()
        guard descriptors == 0 else {
            return close(connection, .refused(.malformed, "\(descriptors) descriptors came with its lines"), &events)
        }
        switch arrival {
        case .bytes: take(connection, at: now, &events)
        case .nothing: break
        case .gone: close(connection, .gone, &events)
        }
    }

    /// Processes the complete lines that have arrived.
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
                    ? greet(message, connection, &events)
                    : .refused(.sequence, "line \(sequence) after \(connection.stream.received)")
                if let refusal { return close(connection, refusal, &events) }
                guard record(message, sequence, connection, &events) else { return }
            } catch {
                return close(connection, .refused(.malformed, error.description), &events)
            }
        }
    }

    /// Handles hello, which must come first and only once. Returns the reason to close the connection; `nil` if there
    /// is none.
    private func greet(_ message: ChildMessage?, _ connection: ChannelConnection, _ events: inout [Event]) -> Closing? {
        guard case .hello(let version) = message else {
            return connection.hasGreeted ? nil : .refused(.noHello, "the first line is not hello")
        }
        guard !connection.hasGreeted else { return .refused(.malformed, "a second hello") }
        guard version == MessageLine.version else {
            return .refused(.version, "version \(version); this supervisor speaks version \(MessageLine.version)")
        }
        connection.hasGreeted = true
        events.append(.opened(connection.peer))
        return nil
    }

    private func record(
        _ message: ChildMessage?, _ sequence: UInt64, _ connection: ChannelConnection, _ events: inout [Event]
    ) -> Bool {
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

    // MARK: Pauses

    func isOver(_ until: Duration?, at now: Duration) -> Bool {
        // If the clock went far back, end the pause at once instead of waiting for years.
        until.map { now >= $0 || $0 - now > Self.rest } ?? true
    }

    private func wake(_ connection: ChannelConnection, at now: Duration, _ events: inout [Event]) {
        connection.restsUntil = nil
        resting.remove(connection.peer.id)
        take(connection, at: now, &events)
        if connections[connection.peer.id] != nil { listen(to: connection) }
    }
}

extension ChannelServer {
    /// Returns true if the connection has sent data that was not read yet, because the connection is paused or time
    /// was short.
    /// Unread data may contradict what the service said before.
    func hasUnread(_ id: UInt64) -> Bool {
        guard let connection = connections[id] else { return false }
        return connection.stream.hasLine || plimsoll_ready(connection.stream.file, POLLIN, 0) != 0
    }
}

/// A token bucket: bounds the burst and the rate of a sender's messages.
struct Allowance {
    private let rate: Double
    private let burst: Double
    private var left: Double
    private var filledAt: Duration

    /// - Parameters:
    ///   - rate: units per second.
    ///   - burst: greatest number of units at once.
    init(rate: Double, burst: Double, at now: Duration) {
        (self.rate, self.burst, left, filledAt) = (rate, burst, burst, now)
    }

    /// Takes one unit. Returns false if none is left.
    mutating func spend(at now: Duration) -> Bool {
        // If the clock has gone back, no units are added or removed.
        let passed = max(.zero, now - filledAt)
        left = min(burst, left + min(3600, passed / .seconds(1)) * rate)
        filledAt = now
        guard left >= 1 else { return false }
        left -= 1
        return true
    }
}
