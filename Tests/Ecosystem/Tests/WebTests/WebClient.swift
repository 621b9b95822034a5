import HTTPTypes
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOHTTPTypes
import NIOHTTPTypesHTTP1
import NIOPosix
import ServiceLifecycle
import Synchronization

/// Requests past the router alone, and over a socket.
enum Way: String, CaseIterable, Sendable {
    case router, live
}

/// A complete answer.
struct WebAnswer: Sendable {
    var head: HTTPResponse
    var body = ByteBuffer()

    var status: HTTPResponse.Status { head.status }
    var headers: HTTPFields { head.headerFields }
    var text: String { String(buffer: body) }
}

enum WebClientError: Error {
    case connectionClosed, noAnswer
}

/// A client of one application. Over a socket, the client has a single connection, which is never replaced.
struct WebClient: Sendable {
    /// Port of the server; `nil` without a socket.
    let port: Int?
    fileprivate let send: @Sendable @concurrent (_ request: HTTPRequest, _ body: ByteBuffer?) async throws -> WebAnswer

    func execute(
        uri: String, method: HTTPRequest.Method, host: String = "localhost", headers: HTTPFields = [:],
        body: ByteBuffer? = nil
    ) async throws -> WebAnswer {
        var headers = headers
        if let body { headers[.contentLength] = "\(body.readableBytes)" }
        let request = HTTPRequest(method: method, scheme: "http", authority: host, path: uri, headerFields: headers)
        return try await send(request, body)
    }

    /// Runs `body` with a connection to `port` of loopback, which is open from the start and is closed at the end.
    static func connected(to port: Int, _ body: @Sendable (WebClient) async throws -> Void) async throws {
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHTTPClientHandlers()
                    try channel.pipeline.syncOperations.addHandler(HTTP1ToHTTPClientCodec())
                    try channel.pipeline.syncOperations.addHandler(CallHandler())
                }
            }
            .connect(host: "127.0.0.1", port: port).get()
        defer { channel.close(promise: nil) }
        let client = WebClient(port: port) { request, content in
            let answer = channel.eventLoop.makePromise(of: WebAnswer.self)
            channel.writeAndFlush(Call(request: request, body: content, answer: answer)).cascadeFailure(to: answer)
            let limit = channel.eventLoop.scheduleTask(in: .minutes(4)) { answer.fail(WebClientError.noAnswer) }
            defer { limit.cancel() }
            return try await withTaskCancellationHandler {
                try await answer.futureResult.get()
            } onCancel: {
                channel.close(promise: nil)
            }
        }
        try await body(client)
    }
}

extension ApplicationProtocol {
    /// Runs `body` with a client of this application. With `live`, the application serves on loopback meanwhile.
    func test(_ way: Way, _ body: @Sendable (WebClient) async throws -> Void) async throws {
        guard way == .live else { return try await body(routerClient()) }
        let port = MultiThreadedEventLoopGroup.singleton.any().makePromise(of: Int.self)
        let services = ServiceGroup(services: [LoopbackApplication(base: self, found: port)], logger: logger)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                // Without effect if the server has told its port.
                defer { port.fail(WebClientError.connectionClosed) }
                do {
                    try await services.run()
                } catch {
                    port.fail(error)
                    throw error
                }
            }
            // An error of `body` cancels the application.
            try await WebClient.connected(to: port.futureResult.get(), body)
            await services.triggerGracefulShutdown()
            try await group.waitForAll()
        }
    }

    /// Returns a client that calls the application's responder in this process, without the application's services.
    private func routerClient() async throws -> WebClient {
        let responder = try await self.responder, logger = self.logger, channel = NIOAsyncTestingChannel()
        return WebClient(port: nil) { request, content in
            var logger = logger
            logger[metadataKey: "hb.request.id"] = .stringConvertible(RequestID())
            let context = Responder.Context(source: ApplicationRequestContextSource(channel: channel, logger: logger))
            let body = RequestBody(buffer: content ?? ByteBuffer())
            let response: Response
            do {
                response = try await responder.respond(to: Request(head: request, body: body), context: context)
            } catch {
                // As a server answers.
                response = Response(status: .internalServerError)
            }
            let collected = CollectedBody()
            try await response.body.write(collected)
            return WebAnswer(head: response.head, body: collected.buffer)
        }
    }
}

/// An application on a free port of loopback, with the promise of that port.
private struct LoopbackApplication<Base: ApplicationProtocol>: ApplicationProtocol {
    typealias Responder = Base.Responder

    let base: Base
    let found: EventLoopPromise<Int>

    var responder: Responder { get async throws { try await base.responder } }
    var server: HTTPServerBuilder { base.server }
    var eventLoopGroup: any EventLoopGroup { base.eventLoopGroup }
    var logger: Logger { base.logger }
    var services: [any Service] { base.services }
    var configuration: ApplicationConfiguration {
        var configuration = base.configuration
        configuration.address = .hostname("127.0.0.1", port: 0)
        return configuration
    }

    func onServerRunning(_ channel: any Channel) async {
        await base.onServerRunning(channel)
        if let port = channel.localAddress?.port { found.succeed(port) }
    }
}

/// A writer that keeps the body of an answer.
private final class CollectedBody: ResponseBodyWriter, Sendable {
    private let written = Mutex(ByteBuffer())
    var buffer: ByteBuffer { written.withLock { $0 } }

    func write(_ buffer: ByteBuffer) async throws { written.withLock { _ = $0.writeImmutableBuffer(buffer) } }
    func finish(_ trailingHeaders: HTTPFields?) async throws {}
}

private struct Call: Sendable {
    let request: HTTPRequest
    let body: ByteBuffer?
    let answer: EventLoopPromise<WebAnswer>
}

/// The sender of a connection's requests, each of which is completed with the next answer.
private final class CallHandler: ChannelDuplexHandler {
    typealias InboundIn = HTTPResponsePart
    typealias OutboundIn = Call
    typealias OutboundOut = HTTPRequestPart

    private var waiting: [EventLoopPromise<WebAnswer>] = []
    private var answer = WebAnswer(head: HTTPResponse(status: .ok))

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let call = unwrapOutboundIn(data)
        waiting.append(call.answer)
        context.write(wrapOutboundOut(.head(call.request)), promise: nil)
        if let body = call.body { context.write(wrapOutboundOut(.body(body)), promise: nil) }
        context.write(wrapOutboundOut(.end(nil)), promise: promise)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head): answer = WebAnswer(head: head)
        case .body(var part): answer.body.writeBuffer(&part)
        case .end: if !waiting.isEmpty { waiting.removeFirst().succeed(answer) }
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        fail(WebClientError.connectionClosed)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        fail(error)
        context.close(promise: nil)
    }

    private func fail(_ error: any Error) {
        for call in waiting { call.fail(error) }
        waiting = []
    }
}
