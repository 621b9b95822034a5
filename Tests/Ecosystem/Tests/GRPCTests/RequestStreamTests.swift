import GRPCCore
import GRPCInProcessTransport
import Plimsoll
import PlimsollGRPC
import PlimsollService
import PlimsollTesting
import TestServers
import Testing

@Suite(.timeLimit(.minutes(5))) struct RequestStreamTests {
    /// Counts the messages, and answers with the number.
    private static let count: Shop.Handler = { request, _ in
        let count = try await request.messages.reduce(0) { count, _ in count + 1 }
        return Shop.Response { writer in
            try await writer.write([UInt8(count)])
            return [:]
        }
    }

    @Test(arguments: Way.allCases) func `a request stream with too many messages is refused, and one that fits is served`(way: Way) async throws {
        let shedder = RequestShedder("grpc", policy: SheddingPolicy(limit: 1))
        let shedding = LoadSheddingInterceptor(shedder, messageLimit: { $0.method == "Upload" ? 3 : nil })
        try await way.serving([shedding], ["shop.Orders/Upload": Self.count, "shop.Orders/Pour": Self.count]) { caller in
            #expect(await caller.number("shop.Orders/Upload", [[1], [2], [3]]) == 3)
            #expect(await caller.number("shop.Orders/Pour", Array(repeating: [1], count: 200)) == 200)
            for count in [4, 1000] {
                await until("the end of the call") { shedder.statistics.running == 0 }
                let error = try await caller.refusal("shop.Orders/Upload", Array(repeating: [1], count: count))
                // No time of a retry: the same stream would be as long.
                #expect(error.code == .resourceExhausted && Array(error.metadata[stringValues: "grpc-retry-pushback-ms"]).isEmpty)
                #expect(error.message.contains("shop.Orders/Upload because it has more than 3 messages"), "\(error)")
            }
        }
        #expect(shedder.statistics.running == 0 && shedder.statistics.refused == 0)
    }

    @Test(arguments: Way.allCases) func `a handler collects a request stream up to a number of bytes`(way: Way) async throws {
        let upload: Shop.Handler = { request, _ in
            let parts = try await request.messages.collect(upTo: 1000) { $0.count }
            return Shop.Response { writer in
                try await writer.write([UInt8(parts.count)])
                return [:]
            }
        }
        @Sendable func messages(_ count: Int, of bytes: Int) -> [[UInt8]] { Array(repeating: [UInt8](repeating: 1, count: bytes), count: count) }
        try await way.serving([], ["shop.Orders/Upload": upload]) { caller in
            // The place of a message in the array counts 8 bytes.
            #expect(await caller.number("shop.Orders/Upload", messages(10, of: 92)) == 10)
            #expect(await caller.number("shop.Orders/Upload", messages(125, of: 0)) == 125)
            for long in [messages(10, of: 92) + [[]], messages(126, of: 0), messages(1, of: 993), messages(10_000, of: 100)] {
                let error = try await caller.refusal("shop.Orders/Upload", long)
                #expect(error.code == .resourceExhausted && error.message.contains("more than 1000 bytes"), "\(error)")
            }
        }
    }

    // MARK: The article

    private let manager = ResourceManager(source: ScriptedPressureSource())
    private let orders = Shop([:])

    private func server(_ transport: InProcessTransport.Server) -> GRPCServer<InProcessTransport.Server> {
        let shedding = LoadSheddingInterceptor(manager) { method, _ in
            method.method.hasPrefix("Export") ? .sheddable : .normal
        }
        let server = GRPCServer(transport: transport, services: [orders], interceptors: [shedding])
        return server
    }

    private func upload(_ request: StreamingServerRequest<[UInt8]>) async throws -> Int {
        let parts = try await request.messages.collect(upTo: manager.collectLimit()) { $0.count }
        return parts.count
    }

    @Test func `the article's snippets match this file, and work`() async throws {
        #expect(try Article.missingLines(of: "gRPC", in: #filePath) == [])
        let request = StreamingServerRequest(single: ServerRequest<[UInt8]>(metadata: [:], message: [1, 2, 3]))
        let count = try await upload(request)
        #expect(count == 1)
        let transport = InProcessTransport(), server = server(transport.server)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await server.serve() }
            try await withGRPCClient(transport: transport.client) { client in
                #expect(await Caller(client).outcome("shop.Orders/Get") == "served")
            }
            server.beginGracefulShutdown()
            try await group.waitForAll()
        }
    }
}
