#if GRPC
public import GRPCCore
public import Plimsoll
import PlimsollLifecycle
public import PlimsollService

/// Refuses gRPC calls for which there is no memory, least important first. The other calls are served.
///
///     let shedding = LoadSheddingInterceptor(manager) { method, _ in
///         method.method.hasPrefix("Export") ? .sheddable : .normal
///     }
///     try await withGRPCServer(transport: transport, services: [orders], interceptors: [shedding]) { … }
///
/// Make the interceptor the first one: a refused call has then cost nothing. A refusal has the status `unavailable`
/// and, in `grpc-retry-pushback-ms`, the time after which a client with a retry policy tries again. A call counts as
/// running until the response stream has ended, so give a limit room for streams that stay open.
public struct LoadSheddingInterceptor: ServerInterceptor {
    /// Returns the priority of a call from its method and metadata; called for each call, on the call's task.
    public typealias Priority = @Sendable (MethodDescriptor, Metadata) -> RequestPriority
    /// Returns true for a method to serve at any level.
    public typealias Exemption = @Sendable (MethodDescriptor) -> Bool
    /// Returns the most messages that one call of a method may send, 1 or more; `nil` for no bound.
    public typealias MessageLimit = @Sendable (MethodDescriptor) -> Int?

    /// The shedder that decides and counts.
    public let shedder: RequestShedder
    private let priority: Priority
    private let isExempt: Exemption
    private let messageLimit: MessageLimit

    /// Creates an interceptor that sheds according to the manager's level. The counts appear in the JSON of the
    /// manager's `status`, under `admissions`.
    ///
    /// - Parameters:
    ///   - name: name of the shedder in the status.
    ///   - policy: shares to serve at each level.
    ///   - priority: priority of a call; `normal` by default.
    ///   - isExempt: methods that are neither refused nor counted; by default those of gRPC's health service. Such a
    ///     method may stay open for as long as the client does (`Watch`) without taking a place.
    ///   - messageLimit: bound of the messages of a request stream; by default none. A longer stream ends with the
    ///     error `resourceExhausted`, which the handler receives from its messages. Single messages are bounded by the
    ///     transport, at 4 MiB unless configured otherwise.
    /// - Precondition: The policy is valid (`SheddingPolicy.problem`).
    public init(
        _ manager: ResourceManager, name: String = "grpc", policy: SheddingPolicy = SheddingPolicy(),
        priority: @escaping Priority = { _, _ in .normal },
        isExempt: @escaping Exemption = LoadSheddingInterceptor.isHealthCheck,
        messageLimit: @escaping MessageLimit = { _ in nil }
    ) {
        let shedder = RequestShedder(name, policy: policy)
        manager.lifecycle.pausables.add(shedder)
        self.init(shedder, priority: priority, isExempt: isExempt, messageLimit: messageLimit)
    }

    /// Creates an interceptor with a shedder that other code may share, such as a web server in the same process.
    public init(
        _ shedder: RequestShedder, priority: @escaping Priority = { _, _ in .normal },
        isExempt: @escaping Exemption = LoadSheddingInterceptor.isHealthCheck,
        messageLimit: @escaping MessageLimit = { _ in nil }
    ) {
        self.shedder = shedder
        self.priority = priority
        self.isExempt = isExempt
        self.messageLimit = messageLimit
    }

    /// Returns true for the methods of gRPC's health service, `grpc.health.v1.Health`.
    public static func isHealthCheck(_ method: MethodDescriptor) -> Bool {
        method.service.fullyQualifiedService == "grpc.health.v1.Health"
    }

    public func intercept<Input: Sendable, Output: Sendable>(
        request: StreamingServerRequest<Input>, context: ServerContext,
        next:
            @Sendable @concurrent (StreamingServerRequest<Input>, ServerContext) async throws ->
            StreamingServerResponse<Output>
    ) async throws -> StreamingServerResponse<Output> {
        let method = context.descriptor, bounded = bound(request, method)
        if isExempt(method) { return try await next(bounded, context) }
        if let refusal = await shedder.admit(priority(method, request.metadata)) { throw refusal }
        let place = AdmittedRequest(shedder)
        do {
            // A client that is gone cancels the call but not the task, and so has kept its turn in the queue.
            if context.cancellation.isCancelled {
                throw RPCError(code: .cancelled, message: "the call was cancelled while it waited for memory")
            }
            let response = try await next(bounded, context)
            switch response.accepted {
            case .success(let contents): return untilSent(contents, place)
            case .failure:
                place.end()
                return response
            }
        } catch {
            place.end()
            throw error
        }
    }

    /// Returns the response with the end of the place after the last message. A response whose stream never begins
    /// ends the place when it is released.
    private func untilSent<Output>(_ contents: StreamingServerResponse<Output>.Contents, _ place: AdmittedRequest)
        -> StreamingServerResponse<Output>
    {
        StreamingServerResponse(of: Output.self, metadata: contents.metadata) { writer in
            defer { place.end() }
            return try await contents.producer(writer)
        }
    }

    private func bound<Input>(_ request: StreamingServerRequest<Input>, _ method: MethodDescriptor)
        -> StreamingServerRequest<Input>
    {
        guard let most = messageLimit(method) else { return request }
        precondition(most >= 1, "messageLimit: the limit of \(method) is \(most), allowed is 1 or more, or nil")
        let messages = BoundedMessages(base: request.messages, most: most, method: method)
        return StreamingServerRequest(metadata: request.metadata, messages: RPCAsyncSequence(wrapping: messages))
    }
}

/// Makes a refusal the status of a call, also where a handler throws the refusal of `RequestShedder.run`.
extension RequestRefusal: RPCErrorConvertible {
    /// `unavailable`: the refused call has had no effect, and clients and proxies retry calls with this status.
    /// `resourceExhausted` would tell a client that a quota of the client is used up.
    public var rpcErrorCode: RPCError.Code { .unavailable }
    /// The reason, and the time of a retry.
    public var rpcErrorMessage: String { description }
    /// The time of a retry in milliseconds, as `grpc-retry-pushback-ms` (gRFC A6).
    public var rpcErrorMetadata: Metadata { ["grpc-retry-pushback-ms": "\(retryAfterSeconds * 1000)"] }
}
#endif
