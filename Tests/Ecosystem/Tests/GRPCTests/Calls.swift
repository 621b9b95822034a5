import GRPCCore
import GRPCInProcessTransport
import Plimsoll
import Synchronization
import TestServers
import Testing

#if HTTP2
import GRPCNIOTransportHTTP2Posix
#endif

/// Messages that are bytes, so that no test needs protobuf.
struct Bytes: MessageSerializer, MessageDeserializer {
    func serialize<Whole: GRPCContiguousBytes>(_ message: [UInt8]) throws -> Whole {
        // As the allocator counts the bytes of a message.
        MemoryBudget.current?.charge(ByteCount(message.count))
        return Whole(message)
    }
    func deserialize<Whole: GRPCContiguousBytes>(_ bytes: Whole) throws -> [UInt8] { bytes.withUnsafeBytes { Array($0) } }
}

extension MethodDescriptor {
    /// The method of that full name, such as `shop.Orders/Get`.
    init(_ name: String) {
        let parts = name.split(separator: "/").map(String.init)
        self.init(fullyQualifiedService: parts[0], method: parts[1])
    }
}

/// A service of methods that a test writes, and of some that answer each message with the same message.
struct Shop: RegistrableRPCService {
    typealias Request = StreamingServerRequest<[UInt8]>
    typealias Response = StreamingServerResponse<[UInt8]>
    typealias Handler = @Sendable (Request, ServerContext) async throws -> Response

    var handlers: [String: Handler]

    init(_ handlers: [String: Handler]) {
        let echoes = ["shop.Orders/Get", "shop.Orders/Pay", "shop.Orders/Export", "grpc.health.v1.Health/Check"]
        self.handlers = handlers.merging(echoes.map { ($0, Self.echo) }) { own, _ in own }
    }

    static let echo: Handler = { request, _ in
        Response { writer in
            for try await message in request.messages { try await writer.write(message) }
            return [:]
        }
    }

    func registerMethods<Transport: ServerTransport>(with router: inout RPCRouter<Transport>) {
        for (name, handler) in handlers {
            router.registerHandler(forMethod: MethodDescriptor(name), deserializer: Bytes(), serializer: Bytes(), handler: handler)
        }
    }
}

/// A client of either transport.
struct Caller: Sendable {
    /// Makes a call with one message and one answer.
    let unary: @Sendable (_ name: String, _ message: [UInt8], _ options: CallOptions) async throws -> [UInt8]
    /// Makes a call with those messages, passes on each answer, and returns all answers.
    let stream: @Sendable (_ name: String, _ messages: [[UInt8]], _ each: @escaping @Sendable ([UInt8]) -> Void) async throws -> [[UInt8]]

    init(_ client: GRPCClient<some ClientTransport>) {
        unary = { name, message, options in
            try await client.unary(
                request: ClientRequest(message: message), descriptor: MethodDescriptor(name), serializer: Bytes(), deserializer: Bytes(),
                options: options
            ) { try $0.message }
        }
        stream = { name, messages, each in
            let request = StreamingClientRequest(of: [UInt8].self) { writer in
                for message in messages { try await writer.write(message) }
            }
            return try await client.bidirectionalStreaming(
                request: request, descriptor: MethodDescriptor(name), serializer: Bytes(), deserializer: Bytes(), options: .defaults
            ) { response in
                var answers: [[UInt8]] = []
                for try await message in response.messages {
                    each(message)
                    answers.append(message)
                }
                return answers
            }
        }
    }

    /// Makes a call that is answered with the same message, and returns `served`, or else the status.
    func outcome(_ name: String, _ options: CallOptions = .defaults) async -> String {
        do {
            return try await unary(name, [1, 2, 3], options) == [1, 2, 3] ? "served" : "garbled"
        } catch let error as RPCError {
            return "\(error.code)"
        } catch {
            return "\(error)"
        }
    }

    /// Makes a call with those messages, and returns the number that the handler answers; `nil` if the call fails.
    func number(_ name: String, _ messages: [[UInt8]]) async -> Int? {
        (try? await stream(name, messages) { _ in })?.first?.first.map(Int.init)
    }

    /// Makes a call that fails, and returns the error.
    func refusal(_ name: String, _ messages: [[UInt8]] = [[1]], sourceLocation: SourceLocation = #_sourceLocation) async throws -> RPCError {
        try await #require(throws: RPCError.self, sourceLocation: sourceLocation) { _ = try await stream(name, messages) { _ in } }
    }
}

/// Calls within the process, and, in `make test-all`, over a socket of loopback.
enum Way: CaseIterable, Sendable {
    case inProcess
    #if HTTP2
    case socket
    #endif

    /// Runs `body` with a client of a server that has those interceptors.
    func serving(
        _ interceptors: [any ServerInterceptor], _ handlers: [String: Shop.Handler] = [:], _ body: @Sendable (Caller) async throws -> Void
    ) async throws {
        let shop = Shop(handlers)
        switch self {
        case .inProcess:
            let transport = InProcessTransport()
            try await withGRPCServer(transport: transport.server, services: [shop], interceptors: interceptors) { _ in
                try await withGRPCClient(transport: transport.client) { client in try await body(Caller(client)) }
            }
        #if HTTP2
        case .socket:
            let transport = HTTP2ServerTransport.Posix(address: .ipv4(host: "127.0.0.1", port: 0), transportSecurity: .plaintext)
            try await withGRPCServer(transport: transport, services: [shop], interceptors: interceptors) { server in
                let port = try #require(try await server.transport.listeningAddress.ipv4?.port)
                let client = try HTTP2ClientTransport.Posix(target: .ipv4(address: "127.0.0.1", port: port), transportSecurity: .plaintext)
                try await withGRPCClient(transport: client) { client in try await body(Caller(client)) }
            }
        #endif
        }
    }
}

/// Notes the contexts of the calls.
final class Witness: ServerInterceptor {
    private let seen = Mutex<[ServerContext]>([])
    var contexts: [ServerContext] { seen.withLock { $0 } }

    func intercept<Input: Sendable, Output: Sendable>(
        request: StreamingServerRequest<Input>, context: ServerContext,
        next: @Sendable @concurrent (StreamingServerRequest<Input>, ServerContext) async throws -> StreamingServerResponse<Output>
    ) async throws -> StreamingServerResponse<Output> {
        seen.withLock { $0.append(context) }
        return try await next(request, context)
    }
}

/// A gate that a test opens.
final class Gate: Sendable {
    private let isOpen = Atomic<Bool>(false)
    func open() { isOpen.store(true, ordering: .releasing) }
    func wait() async { await until("the gate") { isOpen.load(ordering: .acquiring) } }
}

/// A number that many tasks count up.
final class Count: Sendable {
    private let number = Atomic<Int>(0)
    var value: Int { number.load(ordering: .sequentiallyConsistent) }
    @discardableResult func add() -> Int { number.add(1, ordering: .sequentiallyConsistent).newValue }
}
