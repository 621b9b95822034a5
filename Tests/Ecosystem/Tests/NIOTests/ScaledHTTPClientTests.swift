import TestServers
import Testing

#if ASYNC_HTTP_CLIENT
import AsyncHTTPClient
import NIOCore
import NIOPosix
import Plimsoll
import PlimsollNIO
import PlimsollTesting
import Synchronization

/// A server on loopback that answers each request with a body of fixed size, and counts its connections.
final class BodyServer: Sendable {
    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer
        private let server: BodyServer
        /// True once the connection has carried a request.
        private var isUsed = false

        init(_ server: BodyServer) { self.server = server }

        func channelActive(context: ChannelHandlerContext) { server.open.add(1, ordering: .relaxed) }
        func channelInactive(context: ChannelHandlerContext) { server.open.subtract(1, ordering: .relaxed) }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let text = String(buffer: unwrapInboundIn(data))
            // Requests without a body, each in one buffer, as AsyncHTTPClient sends them.
            guard text.hasSuffix("\r\n\r\n") else { return }
            if !isUsed { server.used.add(1, ordering: .relaxed) }
            isUsed = true
            let count = server.byteCount.load(ordering: .relaxed)
            var answer = ByteBuffer(string: "HTTP/1.1 200 OK\r\ncontent-length: \(count)\r\n\r\n")
            answer.writeRepeatingByte(65, count: count)
            context.writeAndFlush(wrapOutboundOut(answer), promise: nil)
        }
    }

    let open = Atomic<Int>(0)
    private let used = Atomic<Int>(0)
    let byteCount = Atomic<Int>(10)
    private let channel = Mutex<(any Channel)?>(nil)

    init() async throws {
        let made = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { [self] channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Handler(self)) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        channel.withLock { $0 = made }
    }

    var url: String { "http://127.0.0.1:\(channel.withLock { $0?.localAddress?.port } ?? 0)/" }
    var openCount: Int { open.load(ordering: .relaxed) }
    /// Number of connections so far that have carried a request.
    var usedCount: Int { used.load(ordering: .relaxed) }
    func stop() async throws { try await channel.withLock { $0 }?.close() }
}

/// Tests of `make test-all` alone.
@Suite(.timeLimit(.minutes(5))) struct ScaledHTTPClientTests {
    /// Runs `body` with a manager that has seen a reading with `available` bytes of 1 GiB left.
    private func with(_ available: ByteCount, _ body: @escaping @Sendable (ResourceManager, ScriptedPressureSource) async throws -> Void) async throws
    {
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            source.push(usage: .gibibytes(1) - available, limit: .gibibytes(1))
            await source.waitUntilIdle()
            try await body(manager, source)
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `a body longer than the collect limit is refused, and a body that fits is collected`() async throws {
        let server = try await BodyServer()
        try await with(.mebibytes(900)) { manager, source in
            server.byteCount.store(1 << 20, ordering: .relaxed)
            let url = server.url
            let http = ScaledHTTPClient(manager: manager)
            defer { http.shutdown() }
            let page = try await http.withClient { client in
                let response = try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(300))
                return try await response.body.collect(upTo: manager.collectLimit())
            }
            #expect(page.readableBytes == 1 << 20)
            source.push(usage: .mebibytes(1023), limit: .gibibytes(1))
            await until("the level") { manager.level == .critical }
            await #expect(throws: NIOTooManyBytesError.self) {
                try await http.withClient { client in
                    let response = try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(300))
                    return try await response.body.collect(upTo: manager.collectLimit())
                }
            }
        }
        try await server.stop()
    }

    @Test func `idle connections are closed when memory gets short, and a running request is not cut`() async throws {
        let server = try await BodyServer()
        try await with(.mebibytes(900)) { manager, source in
            let http = ScaledHTTPClient(manager: manager), url = server.url
            @Sendable func get() async throws -> Int {
                try await http.withClient { client in
                    try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(300)).body.collect(upTo: 1000).readableBytes
                }
            }
            let bytes = try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<4 { group.addTask { try await get() } }
                return try await group.reduce(0, +)
            }
            #expect(bytes == 40 && server.openCount >= 1 && http.drainCount == 0)
            try await http.withClient { client in
                source.push(usage: .mebibytes(1023), limit: .gibibytes(1))
                await until("the drain") { http.drainCount > 0 }
                // This client has been replaced, and still serves its holder.
                let body = try await client.execute(HTTPClientRequest(url: url), timeout: .seconds(300)).body.collect(upTo: 1000)
                #expect(body.readableBytes == 10 && server.openCount >= 1)
            }
            await until("the end of the connections") { server.openCount == 0 }
            // Used, perhaps no longer open: at this level an idle connection closes after a second.
            let before = server.usedCount
            #expect(try await get() == 10 && server.usedCount == before + 1, "the next request has a client again")
            http.drain()
            await until("the end of the connections") { server.openCount == 0 }
            http.shutdown()
            await #expect(throws: HTTPClientError.alreadyShutdown) { try await get() }
        }
        try await server.stop()
    }

    @Test func `advice shrinks the pool and never grows the pool`() {
        var configuration = HTTPClient.Configuration()
        configuration.connectionPool.preWarmedHTTP1ConnectionCount = 4
        #expect(configuration.scaled(for: .normal).connectionPool == configuration.connectionPool)
        let warned = configuration.scaled(for: .warning).connectionPool, critical = configuration.scaled(for: .critical).connectionPool
        #expect(
            warned.concurrentHTTP1ConnectionsPerHostSoftLimit == 4 && warned.idleTimeout == .seconds(10) && warned.preWarmedHTTP1ConnectionCount == 2)
        #expect(
            critical.concurrentHTTP1ConnectionsPerHostSoftLimit == 2 && critical.idleTimeout == .seconds(1)
                && critical.preWarmedHTTP1ConnectionCount == 0)
        configuration.connectionPool = .init(idleTimeout: .milliseconds(5), concurrentHTTP1ConnectionsPerHostSoftLimit: 1)
        let small = configuration.scaled(for: .critical).connectionPool
        #expect(small.idleTimeout == .milliseconds(5) && small.concurrentHTTP1ConnectionsPerHostSoftLimit == 1)
    }
}
#endif

/// The snippets of docs/Adapters.md that stand in this file, also where the tests above are not built.
@Suite struct NIOArticleTests {
    @Test func `the article's snippets match this file`() throws { #expect(try Article.missingLines(of: "NIO", in: #filePath) == []) }
}
