#if Hummingbird
import HTTPTypes
public import Hummingbird
public import Plimsoll
import PlimsollLifecycle
public import PlimsollService

/// Answers 503 with `Retry-After` to requests for which there is no memory, least important first. The other requests
/// are served.
///
///     router.add(middleware: LoadSheddingMiddleware(manager) { request, _ in
///         request.uri.path.hasPrefix("/export") ? .sheddable : .normal
///     })
///
/// Add the middleware before any middleware that allocates: a refused request has then cost nothing. A request counts
/// as running until the handler has returned. A request with a streamed body of unknown length counts until the body
/// is sent or dropped.
public struct LoadSheddingMiddleware<Context: RequestContext>: RouterMiddleware {
    /// Returns the priority of a request; called for each request, on the request's task.
    public typealias Priority = @Sendable (Request, Context) -> RequestPriority
    /// Returns true for a request to serve at any level; called only before a refusal.
    public typealias Exemption = @Sendable (Request) -> Bool

    /// The shedder that decides and counts.
    public let shedder: RequestShedder
    private let priority: Priority
    private let isExempt: Exemption

    /// Creates a middleware that sheds according to the manager's level. The counts appear in the JSON
    /// of the manager's `status`, under `admissions`.
    ///
    /// - Parameters:
    ///   - name: name of the shedder in the status.
    ///   - policy: shares to serve at each level.
    ///   - priority: priority of a request; `normal` by default.
    ///   - isExempt: exemption of a request; by default health checks and the pages of `addPlimsollRoutes`.
    /// - Precondition: The policy is valid (`SheddingPolicy.problem`).
    public init(
        _ manager: ResourceManager, name: String = "http", policy: SheddingPolicy = SheddingPolicy(),
        priority: @escaping Priority = { _, _ in .normal },
        isExempt: @escaping Exemption = { AdminPages.isExempt(path: $0.uri.path[...]) }
    ) {
        let shedder = RequestShedder(name, policy: policy)
        manager.lifecycle.pausables.add(shedder)
        self.init(shedder, priority: priority, isExempt: isExempt)
    }

    /// Creates a middleware with a shedder that other code may share.
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
        if let refusal = await shedder.admit(priority(request, context), isExempt: { isExempt(request) }) {
            return Self.answer(refusal)
        }
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

    /// Returns 503 with `Retry-After` (RFC 9110, 10.2.3). The answer must not be cached.
    private static func answer(_ refusal: RequestRefusal) -> Response {
        let headers: HTTPFields = [
            .contentType: "text/plain; charset=utf-8", .cacheControl: "no-store",
            .retryAfter: "\(refusal.retryAfterSeconds)",
        ]
        return Response(
            status: .serviceUnavailable, headers: headers,
            body: ResponseBody(byteBuffer: ByteBuffer(string: "\(refusal)\n")))
    }

    /// Ends the request when the body is sent, or dropped because the client has gone.
    private func untilSent(_ response: Response) -> Response {
        let place = AdmittedRequest(shedder), body = response.body
        return Response(
            status: response.status, headers: response.headers,
            body: ResponseBody { writer in
                defer { place.end() }
                try await body.write(writer)
            })
    }
}
#endif
