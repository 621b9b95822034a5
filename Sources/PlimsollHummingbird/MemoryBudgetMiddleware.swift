#if Hummingbird
import HTTPTypes
public import Hummingbird
import Logging
public import Plimsoll

/// Gives each request a budget for its memory, and ends a request that holds too much.
///
///     try await Jemalloc.meterRequests()
///     router.add(middleware: MemoryBudgetMiddleware(limit: .mebibytes(64)))
///
/// A request above its limit is cancelled and answered 413. A request that the rung
/// `PressureAction.cancelLargestRequest(above:)` cancels is answered 503 with `Retry-After`. The name of the budget is
/// the method and the pattern of the route. Buffers of the request's body count as they arrive. Parts of a streamed
/// answer count until the connection has them, so an answer may be longer than the limit.
///
/// Add the middleware behind `LoadSheddingMiddleware`, and before any middleware that allocates. A response whose body
/// has begun ends with the error instead of a status, at its next write.
public struct MemoryBudgetMiddleware<Context: RequestContext>: RouterMiddleware {
    /// Returns the bytes above which a request is cancelled; `nil` for no limit. Called for each request, on the
    /// request's task.
    public typealias Limit = @Sendable (Request, Context) -> ByteCount?

    private let limit: Limit
    private let retryAfterSeconds = 5

    /// Creates a middleware with one limit for all requests.
    ///
    /// - Parameter limit: bytes above which a request is cancelled, not less than 4 MiB to be of use; `nil` to count
    ///   only.
    public init(limit: ByteCount? = nil) { self.init { _, _ in limit } }

    /// Creates a middleware with a limit for each request.
    public init(limit: @escaping Limit) { self.limit = limit }

    @concurrent public func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        let name = request.method.rawValue + " " + (context.endpointPath ?? "unknown route")
        let budget = MemoryBudget(limit: limit(request, context), name: name)
        let charged = Self.charged(request, budget)
        do {
            let response = try await withoutActuallyEscaping(next) { next in
                // The task ends before this function does: nothing escapes, and one task at a time calls `next`.
                nonisolated(unsafe) let next = next
                return try await budget.run { try await next(charged, context) }
            }
            // A body of known length was made by the handler.
            guard response.body.contentLength == nil else {
                budget.end()
                return response
            }
            return Self.metered(response, BudgetScope(budget))
        } catch {
            budget.end()
            guard let excess = error as? MemoryBudgetExceeded, excess.name == budget.name else { throw error }
            context.logger.warning("\(excess)")
            return answer(excess)
        }
    }

    /// Returns the request with a body that is charged. A request that surely has no body stays as it is.
    private static func charged(_ request: Request, _ budget: MemoryBudget) -> Request {
        let length = request.headers[.contentLength]
        let isChunked = request.headers[.transferEncoding] != nil
        let isQuery = request.method == .get || request.method == .head
        if length == "0" || (length == nil && isQuery && !isChunked) { return request }
        var request = request
        let parts = ChargedSequence(
            request.body, to: budget, bytes: { $0.readableBytes }, copy: { ByteBuffer(bytes: $0.readableBytesView) })
        request.body = RequestBody(asyncSequence: parts)
        return request
    }

    /// Returns the response with a body that counts for the budget until the body is sent, or dropped because the
    /// client has gone.
    private static func metered(_ response: Response, _ scope: BudgetScope) -> Response {
        let body = response.body
        return Response(
            status: response.status, headers: response.headers,
            body: ResponseBody { writer in
                defer { scope.end() }
                // Only the call below uses this writer.
                nonisolated(unsafe) let checked = CheckedWriter(
                    base: writer, budget: scope.budget, heldBefore: scope.budget.held)
                try await scope.budget.runInPlace { try await body.write(checked) }
            })
    }

    /// Returns 413 for a request above its limit (RFC 9110, 15.5.14), or 503 with `Retry-After`. The answer must not be
    /// cached.
    private func answer(_ excess: MemoryBudgetExceeded) -> Response {
        var headers: HTTPFields = [.contentType: "text/plain; charset=utf-8", .cacheControl: "no-store"]
        if excess.isForPressure { headers[.retryAfter] = "\(retryAfterSeconds)" }
        return Response(
            status: excess.isForPressure ? .serviceUnavailable : .contentTooLarge, headers: headers,
            body: ResponseBody(byteBuffer: ByteBuffer(string: "\(excess)\n")))
    }
}

/// A writer that ends a response whose request was told to end, and credits the parts that the connection has.
private struct CheckedWriter: ResponseBodyWriter {
    var base: any ResponseBodyWriter
    let budget: MemoryBudget
    /// Bytes held when the body began.
    let heldBefore: ByteCount

    @concurrent mutating func write(_ buffer: ByteBuffer) async throws {
        try budget.check()
        try await base.write(buffer)
        // The event loop frees the part, where the allocator does not count for the budget. NIO rounds storage up to a
        // power of two, and a slice shares a larger one. No more than the body has added, as a part may come from a
        // cache.
        let part = ByteCount(min(buffer.storageCapacity, 2 * buffer.readableBytes))
        budget.credit(min(part, budget.live - heldBefore))
    }

    @concurrent consuming func finish(_ trailingHeaders: HTTPFields?) async throws {
        try budget.check()
        try await base.finish(trailingHeaders)
    }
}
#endif
