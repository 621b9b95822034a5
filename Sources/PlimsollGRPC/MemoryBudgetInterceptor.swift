#if GRPC
public import GRPCCore
public import Plimsoll

/// Gives each gRPC call a budget for its memory, and ends a call that holds too much.
///
///     try await Jemalloc.meterRequests()
///     try await withGRPCServer(transport: transport, services: [orders], interceptors: [shedding, MemoryBudgetInterceptor()]) { … }
///
/// A call above its limit ends with the status `resourceExhausted`. A call that the rung
/// `PressureAction.cancelLargestRequest(above:)` cancels ends with `unavailable` and a time for the retry. The name of
/// the budget is the method. Messages of the response count until the transport has them, so a response stream may be
/// longer than the limit. Put the interceptor behind `LoadSheddingInterceptor`.
public struct MemoryBudgetInterceptor: ServerInterceptor {
    /// Returns the bytes above which a call of a method is cancelled; `nil` for no limit.
    public typealias Limit = @Sendable (MethodDescriptor) -> ByteCount?

    private let limit: Limit

    /// Creates an interceptor with one limit for all calls; `nil` to count only.
    public init(limit: ByteCount? = nil) { self.init { _ in limit } }

    /// Creates an interceptor with a limit for each method.
    public init(limit: @escaping Limit) { self.limit = limit }

    @concurrent public func intercept<Input: Sendable, Output: Sendable>(
        request: StreamingServerRequest<Input>, context: ServerContext,
        next:
            @Sendable @concurrent (StreamingServerRequest<Input>, ServerContext) async throws ->
            StreamingServerResponse<Output>
    ) async throws -> StreamingServerResponse<Output> {
        let method = context.descriptor
        let budget = MemoryBudget(limit: limit(method), name: "\(method)")
        let scope = BudgetScope(budget)
        do {
            // The task ends before this function does, so nothing escapes.
            let response = try await withoutActuallyEscaping(next) { next in
                try await budget.run { try await next(request, context) }
            }
            switch response.accepted {
            case .success(let contents): return untilSent(contents, scope)
            case .failure:
                scope.end()
                // The handler's error may only be the cancellation.
                if let excess = budget.excess { throw excess }
                return response
            }
        } catch {
            scope.end()
            throw error
        }
    }

    /// Returns the response with messages that count for the budget, until the last message.
    private func untilSent<Output>(_ contents: StreamingServerResponse<Output>.Contents, _ scope: BudgetScope)
        -> StreamingServerResponse<Output>
    {
        StreamingServerResponse(of: Output.self, metadata: contents.metadata) { writer in
            defer { scope.end() }
            let writer = RPCWriter(wrapping: CreditingWriter(base: writer))
            return try await scope.budget.run { try await contents.producer(writer) }
        }
    }
}

/// A writer that credits the messages that the transport has. The task allocates the bytes of a message, and the event
/// loop frees them, where the allocator does not count for the budget.
private struct CreditingWriter<Element: Sendable>: RPCWriterProtocol {
    let base: RPCWriter<Element>

    @concurrent func write(_ element: Element) async throws {
        try await MemoryBudget.handingOver { try await base.write(element) }
    }

    @concurrent func write(contentsOf elements: some Sequence<Element>) async throws {
        let elements = Array(elements)
        try await MemoryBudget.handingOver { try await base.write(contentsOf: elements) }
    }
}

/// Makes an exceeded budget the status of a call.
extension MemoryBudgetExceeded: RPCErrorConvertible {
    /// `resourceExhausted` above the limit of the call, which a retry meets again; `unavailable` if memory was short.
    public var rpcErrorCode: RPCError.Code { isForPressure ? .unavailable : .resourceExhausted }
    /// The reason.
    public var rpcErrorMessage: String { description }
    /// The time of a retry in milliseconds, as `grpc-retry-pushback-ms` (gRFC A6); negative for none.
    public var rpcErrorMetadata: Metadata { ["grpc-retry-pushback-ms": isForPressure ? "5000" : "-1"] }
}
#endif
