import Plimsoll
import PlimsollLifecycle
import PlimsollTesting
import Synchronization

/// Load on the service, derived from the limit: the caches alone would outgrow the limit, the sessions alone never
/// do.
struct TrafficPlan: Equatable {
    var thumbsPerSecond: Double
    var sessionsPerSecond: Double
    var sessionLife: Duration
    var keyCount: Int

    static let connections = 4
    static let skew = 0.7

    /// Creates a plan.
    ///
    /// - Parameters:
    ///   - limit: limit of each service's group.
    ///   - seconds: length of the demo.
    init(limit: ByteCount, seconds: Double) {
        // Distinct values worth the limit within a quarter of the time, if a third of the requests are for new keys.
        let values = Double(limit.bytes) / Double(Thumbnail.meanSize)
        thumbsPerSecond = min(4000, max(50, values / (seconds * 0.25) / 0.33))
        // Sessions level off at 55 % of the limit after three quarters of the time: by then the caches have had to
        // shrink.
        sessionLife = .seconds(seconds * 0.75)
        sessionsPerSecond = Double(limit.bytes) * 0.55 / Double(SessionStore.size) / (seconds * 0.75)
        keyCount = max(1000, Int(values * 10))
    }

    /// Requests per second on each connection.
    var perConnection: Double { (thumbsPerSecond + sessionsPerSecond) / Double(Self.connections) }
    /// Share of requests that are for sessions.
    var sessionShare: Double { sessionsPerSecond / (thumbsPerSecond + sessionsPerSecond) }
}

/// Clients of one service. The same seed produces the same requests in the same order.
final class Traffic: Sendable {
    private let served = Atomic<Int>(0)
    private let isStopped = Atomic<Bool>(false)
    private let plan: TrafficPlan
    private let zipf: Zipf
    private let port: UInt16

    init(plan: TrafficPlan, port: UInt16) {
        self.plan = plan
        self.port = port
        zipf = Zipf(count: plan.keyCount, skew: TrafficPlan.skew)
    }

    /// Number of requests answered with status 200.
    var servedCount: Int { served.load(ordering: .relaxed) }

    /// Starts the clients. Join the threads after `stop()`.
    func start() -> [PlainThread] {
        (1...TrafficPlan.connections).compactMap { connection in PlainThread { [self] in run(seed: UInt64(connection)) }
        }
    }

    /// Stops the clients; each finishes the current request.
    func stop() { isStopped.store(true, ordering: .relaxed) }

    private var goesOn: Bool { !isStopped.load(ordering: .relaxed) }

    private func run(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var session = seed << 32
        let gap = Duration.seconds(1 / plan.perConnection)
        var due = SteadyClock.now
        var client = HTTPClient(port: port)
        while goesOn {
            let isSession = Double.random(in: 0..<1, using: &random) < plan.sessionShare
            session += 1
            let target = isSession ? "/session?\(session)" : "/thumb/\(zipf.next(using: &random))"
            guard client.get(target) else {
                client.close()
                return
            }
            served.wrappingAdd(1, ordering: .relaxed)
            due += gap
            let now = SteadyClock.now
            // A service that fell behind gets requests at the same rate, without a burst to catch up.
            if due < now - .milliseconds(200) { due = now }
            SteadyClock.sleep(until: due)
        }
        client.close()
    }
}

/// A keep-alive connection that sends a request and reads the whole answer.
struct HTTPClient {
    private let port: UInt16
    private let patience: Duration
    private var socket: Socket?
    private var bytes: [UInt8] = []
    private var chunk = [UInt8](repeating: 0, count: 65536)

    /// Creates a client.
    ///
    /// - Parameter patience: timeout as in `Socket.connected`.
    init(port: UInt16, patience: Duration = .seconds(2)) { (self.port, self.patience) = (port, patience) }

    /// Returns true if the answer has status 200. False means that the service is gone or does not answer.
    mutating func get(_ target: String) -> Bool {
        if let status = ask(target) { return status == 200 }
        // The answer may still come, and would be mistaken for the answer to the next request.
        close()
        return false
    }

    /// Returns the status of the complete answer; `nil` if none came.
    private mutating func ask(_ target: String) -> Int? {
        if socket == nil { socket = Socket.connected(to: port, patience: patience) }
        guard let socket, socket.send("GET \(target) HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") else { return nil }
        bytes.removeAll(keepingCapacity: true)
        while true {
            if let answer = Self.answer(in: bytes), bytes.count >= answer.headLength + answer.bodyLength {
                return answer.status
            }
            guard socket.receive(into: &bytes, chunk: &chunk) else { return nil }
        }
    }

    mutating func close() {
        socket?.close()
        socket = nil
    }

    /// Returns status and lengths of the answer whose head starts `bytes`; `nil` if the head is incomplete.
    static func answer(in bytes: [UInt8]) -> (status: Int, headLength: Int, bodyLength: Int)? {
        guard let end = HTTPHead.length(in: bytes.prefix(512)) else { return nil }
        let lines = String(decoding: bytes[..<end], as: UTF8.self).split(separator: "\r\n")
        guard let words = lines.first?.split(separator: " "), words.count >= 2, let status = Int(words[1]),
            let length = lines.first(where: { $0.hasPrefix("Content-Length: ") }).flatMap({
                Int($0.dropFirst("Content-Length: ".count))
            })
        else { return nil }
        return (status, end, length)
    }
}
