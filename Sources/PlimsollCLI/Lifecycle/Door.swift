import Glibc
import Plimsoll
import Synchronization

/// The place where requests come in: opened and closed as often as the life cycle wants, on the port it had first.
final class Door: Sendable {
    private struct State {
        var listener: Socket?
        var port: UInt16 = 0
    }

    private let state = Mutex(State())
    /// Whether a request is answered; if not it is told to come later.
    private let admits: @Sendable () async -> Bool

    init(admits: @escaping @Sendable () async -> Bool) { self.admits = admits }

    /// Listens; does nothing if it does.
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
        guard let thread else { throw Failure.failed("no thread could be started to listen") }
        thread.detach()
        return port
    }

    /// From when it returns connections are refused.
    func close() {
        state.withLock { state in
            // Ends listening at once and wakes the thread, which closes it; under the lock, so that it can't have done so before.
            state.listener?.shutDown()
            state.listener = nil
        }
    }

    /// One request a connection, which its sender sends at once.
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
