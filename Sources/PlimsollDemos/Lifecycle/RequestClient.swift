import Plimsoll
import Synchronization

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
