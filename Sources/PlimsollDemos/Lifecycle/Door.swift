import Glibc
import Plimsoll
import PlimsollLifecycle
import Synchronization

/// The listener for requests. The life cycle opens and closes the door repeatedly; the port stays the same.
final class Door: Sendable {
    private struct State {
        var listener: Socket?
        var port: UInt16 = 0
    }

    private let state = Mutex(State())
    /// Returns true if a request is answered; else the client is told to retry later.
    private let admits: @Sendable () async -> Bool

    init(admits: @escaping @Sendable () async -> Bool) { self.admits = admits }

    /// Starts listening; does nothing if the door is open.
    ///
    /// - Returns: the port.
    @discardableResult
    func open() throws -> UInt16 {
        let (listener, port): (Socket?, UInt16) = try state.withLock { state in
            guard state.listener == nil else { return (nil, state.port) }
            let (socket, port) = try Socket.listening(port: state.port)
            (state.listener, state.port) = (socket, port)
            return (socket, port)
        }
        guard let listener else { return port }
        let thread = PlainThread { [self] in
            while let connection = listener.accepted() { take(connection) }
            state.withLock { if $0.listener?.descriptor == listener.descriptor { $0.listener = nil } }
            listener.close()
        }
        guard let thread else { throw Failure.failed("cannot start a thread to listen") }
        thread.detach()
        return port
    }

    /// Stops listening. Connections are refused once this method has returned.
    func close() {
        state.withLock { state in
            // Ends listening at once and wakes the thread, which closes the socket. Done under the lock, so that the
            // thread cannot have closed the socket before.
            state.listener?.shutDown()
            state.listener = nil
        }
    }

    /// Handles one request a connection, which the client sends at once.
    private func take(_ connection: Socket) {
        connection.setTimeout(.milliseconds(500))
        var received: [UInt8] = [], chunk = [UInt8](repeating: 0, count: 1024)
        while case .incomplete = HTTPRequest.parse(received[...]) {
            guard connection.receive(into: &received, chunk: &chunk) else { return connection.close() }
        }
        Task {
            let status = await admits() ? 200 : 503
            _ = connection.send(HTTPRequest.responseHead(status, length: 0))
            connection.close()
        }
    }
}

/// Sends requests at an interval and records the outcomes, on a separate thread: a stopped service keeps clients
/// waiting.
final class RequestClient: Sendable {
    private struct State {
        var port: UInt16?
        var requests: [(at: Duration, outcome: LifecycleRecord.Outcome)] = []
        var isOver = false
    }

    private let state = Mutex(State())
    private let period = Duration.milliseconds(200)
    /// Time to wait for an answer.
    static let patience = Duration.milliseconds(180)

    /// Sends requests to this port from now on.
    func ask(at port: UInt16) { state.withLock { $0.port = port } }

    /// Returns the outcomes since the last call, each with the time of the request.
    func taken() -> [(at: Duration, outcome: LifecycleRecord.Outcome)] {
        state.withLock { state in
            defer { state.requests = [] }
            return state.requests
        }
    }

    func stop() { state.withLock { $0.isOver = true } }

    /// Sends requests until `stop()`.
    func run() {
        var due = SteadyClock.now
        while true {
            let (port, isOver) = state.withLock { ($0.port, $0.isOver) }
            if isOver { return }
            if let port {
                let at = SteadyClock.now, outcome = request(port)
                state.withLock { $0.requests.append((at, outcome)) }
            }
            due = max(due + period, SteadyClock.now)
            SteadyClock.sleep(until: due)
        }
    }

    private func request(_ port: UInt16) -> LifecycleRecord.Outcome {
        guard let socket = Socket.connected(to: port, patience: Self.patience) else { return .closed }
        defer { socket.close() }
        guard socket.send("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n") else { return .closed }
        var bytes: [UInt8] = [], chunk = [UInt8](repeating: 0, count: 512)
        while socket.receive(into: &bytes, chunk: &chunk) {
            if let answer = HTTPClient.answer(in: bytes) { return answer.status == 200 ? .answered : .refused }
        }
        return .silent
    }
}
