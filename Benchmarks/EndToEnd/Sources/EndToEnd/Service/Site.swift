import Hummingbird
import Plimsoll
import PlimsollLifecycle
import PlimsollService
import Synchronization

/// Pictures and small expensive sessions from caches, and requests that take memory while they run.
struct Site: Sendable {
    let pictures: any Contents
    let sessions: any Contents
    let work = Work()
    let made = Made()
    let manager: ResourceManager?

    /// Ids that are allowed.
    static let pictureCount = 20_000, sessionCount = 2_000

    /// Contents made so far.
    final class Made: Sendable {
        // Relaxed: numbers for the summary.
        let pictures = Atomic<Int>(0)
        let sessions = Atomic<Int>(0)
    }

    /// Returns the priority of a request. A session is a log-in, and an upload can come again. The leak stands for
    /// memory that no request asks for.
    static func priority(_ path: String) -> RequestPriority {
        if path.hasPrefix("/upload") || path.hasPrefix("/export") { return .sheddable }
        return path.hasPrefix("/picture") ? .normal : .critical
    }

    func addRoutes(to router: Router<BasicRequestContext>) {
        router.get("/picture/:id") { _, context in
            let id = try Self.number(context.parameters.get("id"), "id", 0..<Self.pictureCount)
            let (bytes, isHit) = try await pictures.bytes(id) { [made] id in
                made.pictures.add(1, ordering: .relaxed)
                return Making.picture(id)
            }
            return Self.answer(bytes, isHit)
        }
        router.get("/session/:id") { _, context in
            let id = try Self.number(context.parameters.get("id"), "id", 0..<Self.sessionCount)
            let (bytes, isHit) = try await sessions.bytes(id) { [made] id in
                made.sessions.add(1, ordering: .relaxed)
                return Making.session(id)
            }
            return Self.answer(bytes, isHit)
        }
        router.post("/upload") { request, _ in
            try await work.upload(Self.bytes(request, "bytes"))
            return "done\n"
        }
        router.post("/export") { request, _ in
            let bytes = try Self.bytes(request, "bytes")
            do {
                if let manager {
                    try await manager.withBackgroundTask("export") { [work] _ in try await work.export(bytes) }
                } else {
                    try await work.export(bytes)
                }
            } catch {
                work.noteStopped()
                throw HTTPError(.serviceUnavailable, message: "\(error)")
            }
            return "done\n"
        }
        router.get("/leak") { request, _ in
            try work.leak(Self.bytes(request, "bytes"), most: Self.bytes(request, "most"))
            return "done\n"
        }
    }

    private static func answer(_ bytes: [UInt8], _ isHit: Bool) -> Response {
        let headers: HTTPFields = [.contentType: "application/octet-stream", .init("x-cache")!: isHit ? "hit" : "miss"]
        return Response(status: .ok, headers: headers, body: .init(byteBuffer: ByteBuffer(bytes: bytes)))
    }

    private static func bytes(_ request: Request, _ name: Substring) throws -> Int {
        try number(request.uri.queryParameters[name].map { String($0) }, name, 0..<(4 << 30))
    }

    private static func number(_ text: String?, _ name: Substring, _ range: Range<Int>) throws -> Int {
        guard let text, let number = Int(text), range.contains(number) else {
            throw HTTPError(
                .badRequest,
                message: "\(name) must be a whole number from \(range.lowerBound) to \(range.upperBound - 1)")
        }
        return number
    }
}
