#if Hummingbird
import HTTPTypes
public import Hummingbird
public import Plimsoll
public import PlimsollService

/// Answers 503 with `Retry-After` to requests that there is no memory for, least important first, so that the others are served.
///
///     router.add(middleware: LoadSheddingMiddleware(manager) { request, _ in
///         request.uri.path.hasPrefix("/export") ? .sheddable : .normal
///     })
///
/// Put it before whatever allocates: what is refused here has cost nothing yet. A request counts as running until its handler has returned, and one whose body is
/// streamed at unknown length until that body is sent or dropped.
public struct LoadSheddingMiddleware<Context: RequestContext>: RouterMiddleware {
    /// What a request is worth; called for each, on its task.
    public typealias Priority = @Sendable (Request, Context) -> RequestPriority
    /// Whether a request is served whatever the level; called before a refusal only.
    public typealias Exemption = @Sendable (Request) -> Bool

    /// What decides, and counts.
    public let shedder: RequestShedder
    private let priority: Priority
    private let isExempt: Exemption

    /// Sheds as the manager's level asks. Its counts are among the manager's `status.admissions`.
    ///
    /// - Parameters:
    ///   - name: what it is called there.
    ///   - policy: how much of what is served at which level.
    ///   - priority: by default every request is `normal`.
    ///   - isExempt: by default checks of health and the pages of `addPlimsollRoutes`.
    /// - Precondition: the policy makes sense (`SheddingPolicy.problem`).
    public init(
        _ manager: ResourceManager, name: String = "http", policy: SheddingPolicy = SheddingPolicy(),
        priority: @escaping Priority = { _, _ in .normal },
        isExempt: @escaping Exemption = { AdminPages.isExempt(path: $0.uri.path[...]) }
    ) {
        let shedder = RequestShedder(name, policy: policy)
        manager.lifecycle.pausables.add(shedder)
        self.init(shedder, priority: priority, isExempt: isExempt)
    }

    /// Sheds by a shedder that others may ask too.
    public init(
        _ shedder: RequestShedder, priority: @escaping Priority = { _, _ in .normal },
        isExempt: @escaping Exemption = { AdminPages.isExempt(path: $0.uri.path[...]) }
    ) {
        self.shedder = shedder
        self.priority = priority
        self.isExempt = isExempt
    }

    public func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        if let refusal = await shedder.admit(priority(request, context), isExempt: { isExempt(request) }) { return Self.answer(refusal) }
        do {
            let response = try await next(request, context)
            if response.body.contentLength == nil { return untilSent(response) }
            shedder.end()
            return response
        } catch {
            shedder.end()
            throw error
        }
    }

    /// 503, with when to come again (RFC 9110, 10.2.3), which nobody may keep.
    private static func answer(_ refusal: RequestRefusal) -> Response {
        let headers: HTTPFields = [
            .contentType: "text/plain; charset=utf-8", .cacheControl: "no-store", .retryAfter: "\(refusal.retryAfterSeconds)",
        ]
        return Response(status: .serviceUnavailable, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(string: "\(refusal)\n")))
    }

    /// Ends when the body is let go of: sent, or dropped because nobody wants it any more.
    private final class Running: Sendable {
        let shedder: RequestShedder
        init(_ shedder: RequestShedder) { self.shedder = shedder }
        deinit { shedder.end() }
    }

    private func untilSent(_ response: Response) -> Response {
        let running = Running(shedder), body = response.body
        return Response(
            status: response.status, headers: response.headers,
            body: ResponseBody { writer in
                try await body.write(writer)
                withExtendedLifetime(running) {}
            })
    }
}
#endif
