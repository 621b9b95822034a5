import Plimsoll
import PlimsollTesting
import Synchronization

/// The demo's service: thumbnails from a cache, and sessions that live for a while. The code is the same for both
/// kinds of cache.
final class ThumbService: Sendable {
    let thumbs: ByteCache
    let sessions: SessionStore

    init(thumbs: ByteCache, sessionLife: Duration) {
        self.thumbs = thumbs
        sessions = SessionStore(life: sessionLife)
    }

    /// Serves `listener` until the process ends, with a thread for each of a few connections.
    func serve(_ listener: Socket) {
        let thread = PlainThread { [self] in
            while let connection = listener.accepted() {
                let server = PlainThread { [self] in
                    converse(connection)
                    connection.close()
                }
                guard let server else {
                    connection.close()
                    continue
                }
                server.detach()
            }
        }
        thread?.detach()
    }

    private func converse(_ connection: Socket) {
        var received: [UInt8] = [], chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            switch HTTPRequest.parse(received[...]) {
            case .incomplete:
                guard connection.receive(into: &received, chunk: &chunk) else { return }
            case .refused(let status):
                _ = connection.send(HTTPRequest.responseHead(status, length: 0))
                return
            case .request(let request, let length):
                received.removeFirst(length)
                guard answer(request, on: connection), !request.closes else { return }
            }
        }
    }

    private func answer(_ request: HTTPRequest, on connection: Socket) -> Bool {
        if request.path.hasPrefix("/thumb/"), let key = UInt64(request.path.dropFirst("/thumb/".count)) {
            let bytes = thumb(key)
            return connection.send(HTTPRequest.responseHead(200, length: bytes.count), more: true)
                && bytes.withUnsafeBytes { connection.send($0) }
        }
        if request.path == "/session", let id = request.query.flatMap({ UInt64($0) }) {
            sessions.touch(id)
            return connection.send(HTTPRequest.responseHead(200, length: 0))
        }
        return connection.send(HTTPRequest.responseHead(404, length: 0))
    }

    private func thumb(_ key: UInt64) -> [UInt8] {
        if let bytes = thumbs.value(forKey: key) { return bytes }
        let bytes = Thumbnail.render(key)
        thumbs.insert(bytes, forKey: key)
        return bytes
    }
}

/// A picture that costs a little to make: 16 to 128 KiB, always the same for a key.
enum Thumbnail {
    static let sizes = 16 << 10...128 << 10
    static var meanSize: Int { (sizes.lowerBound + sizes.upperBound) / 2 }

    static func render(_ key: UInt64) -> [UInt8] {
        var random = SeededGenerator(seed: key)
        return render(key, byteCount: Int.random(in: sizes, using: &random))
    }

    /// Returns the picture for a key with a given size.
    ///
    /// - Parameter byteCount: size in bytes, rounded down to a multiple of 8.
    static func render(_ key: UInt64, byteCount: Int) -> [UInt8] {
        var random = SeededGenerator(seed: ~key)
        let count = byteCount & ~7
        return [UInt8](unsafeUninitializedCapacity: count) { buffer, written in
            UnsafeMutableRawBufferPointer(buffer).withMemoryRebound(to: UInt64.self) { words in
                for index in words.indices { words[index] = random.next() }
            }
            written = count
        }
    }
}

/// Session data of each client: memory that no cache can release.
final class SessionStore: Sendable {
    static let size = 64 << 10

    private struct State {
        var byID: [UInt64: [UInt8]] = [:]
        /// Ends in order of beginning, which is also the order of ending, as all sessions have the same life.
        var ends: [(id: UInt64, at: Duration)] = []
        var firstAlive = 0
    }

    private let state = Mutex(State())
    private let life: Duration

    init(life: Duration) { self.life = life }

    /// Begins a session with this id unless one exists, and ends expired sessions.
    func touch(_ id: UInt64) {
        let now = SteadyClock.now
        let bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: id | 1), count: Self.size)
        state.withLock { state in
            while state.firstAlive < state.ends.count, state.ends[state.firstAlive].at <= now {
                state.byID[state.ends[state.firstAlive].id] = nil
                state.firstAlive += 1
            }
            if state.firstAlive > 4096 {
                state.ends.removeFirst(state.firstAlive)
                state.firstAlive = 0
            }
            guard state.byID[id] == nil else { return }
            state.byID[id] = bytes
            state.ends.append((id, now + life))
        }
    }

    var count: Int { state.withLock { $0.byID.count } }
}
