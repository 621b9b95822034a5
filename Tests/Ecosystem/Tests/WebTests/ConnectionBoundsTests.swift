import Glibc
import HTTPTypes
import Hummingbird
import HummingbirdCore
import Logging
import MetricsTestKit
import NIOCore
import NIOEmbedded
import NIOHTTPTypes
import PlimsollHummingbird
import TestServers
import Testing

/// Time limits on the arrival of a request's body. All tests but the last use a manual clock.
@Suite(.timeLimit(.minutes(5))) struct ConnectionBoundsTests {
    /// A connection with the bounds of a server. A test passes in parts of requests.
    private final class Connection {
        let channel = EmbeddedChannel()
        let counts = TestMetrics()

        init() throws {
            let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            let configuration = HTTP1Channel.Configuration.bounded(
                idle: .seconds(30), answer: .seconds(10), body: .seconds(60), bytesPerSecond: 500, logger: logger,
                metrics: counts)
            for handler in configuration.additionalChannelHandlers() {
                try channel.pipeline.syncOperations.addHandler(handler)
            }
            try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        }

        /// Asks for the next part. Passes in `part` after `seconds` if the connection is still open.
        func receive(_ part: HTTPRequestPart, after seconds: Int64) throws {
            channel.read()
            channel.embeddedEventLoop.advanceTime(by: .seconds(seconds))
            if channel.isActive { try channel.writeInbound(part) }
        }

        func receiveHead() throws {
            try receive(
                .head(HTTPRequest(method: .post, scheme: "http", authority: "localhost", path: "/upload")), after: 0)
        }

        static func body(_ count: Int) -> HTTPRequestPart { .body(ByteBuffer(repeating: 1, count: count)) }

        func cutOffs(_ reason: String) throws -> Int64 {
            try counts.expectCounter("plimsoll_connections_cut_off_total", [("reason", reason)]).totalValue
        }
    }

    @Test func `a body that arrives byte by byte is cut off at the time limit, for all tested pauses between bytes`() throws {
        for pause in [1, 7, 29] as [Int64] {
            let connection = try Connection()
            try connection.receiveHead()
            var waited: Int64 = 0
            while connection.channel.isActive, waited < 10_000 {
                try connection.receive(Connection.body(1), after: pause)
                waited += pause
            }
            #expect((60...60 + pause).contains(waited), "\(waited) s in steps of \(pause) s")
            #expect(try connection.cutOffs("body_too_slow") == 1)
            #expect(try connection.cutOffs("no_request") == 0)
        }
    }

    @Test func `a body at the least rate or faster may take any length of time`() throws {
        let connection = try Connection()
        try connection.receiveHead()
        // 3 hours.
        for _ in 0..<400 { try connection.receive(Connection.body(29 * 500), after: 29) }
        #expect(connection.channel.isActive)
        // The bytes so far allow 160 more seconds for this body. Unused time is no credit for the next request.
        for _ in 0..<8 { try connection.receive(Connection.body(20 * 500), after: 0) }
        try connection.receive(.end(nil), after: 0)
        #expect(try connection.cutOffs("body_too_slow") == 0)
        try connection.channel.writeOutbound(HTTPResponsePart.head(HTTPResponse(status: .ok)))
        try connection.channel.writeOutbound(HTTPResponsePart.end(nil))
        try connection.receiveHead()
        try connection.receive(Connection.body(1), after: 29)
        try connection.receive(Connection.body(1), after: 29)
        #expect(connection.channel.isActive)
        try connection.receive(Connection.body(1), after: 29)
        #expect(!connection.channel.isActive)
    }

    @Test func `a handler's time between two parts is not charged to the client`() throws {
        let connection = try Connection()
        try connection.receiveHead()
        for _ in 0..<10 {
            // The server asks for nothing meanwhile.
            connection.channel.embeddedEventLoop.advanceTime(by: .hours(1))
            try connection.receive(Connection.body(1), after: 5)
        }
        #expect(connection.channel.isActive)
    }

    @Test func `a client that falls silent in a body is cut off as before`() throws {
        let connection = try Connection()
        try connection.receiveHead()
        try connection.receive(Connection.body(100_000), after: 1)
        try connection.receive(Connection.body(1), after: 31)
        #expect(!connection.channel.isActive)
        #expect(try connection.cutOffs("no_request") == 1)
        #expect(try connection.cutOffs("body_too_slow") == 0)
    }

    @Test func `sizes beyond any counter do not end the server`() throws {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let configuration = HTTP1Channel.Configuration.bounded(
            body: .seconds(Int64.max / 2), bytesPerSecond: 1, logger: logger)
        let channel = EmbeddedChannel()
        for handler in configuration.additionalChannelHandlers() {
            try channel.pipeline.syncOperations.addHandler(handler)
        }
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        channel.read()
        try channel.writeInbound(
            HTTPRequestPart.head(HTTPRequest(method: .post, scheme: "http", authority: "localhost", path: "/")))
        for _ in 0..<100 {
            channel.read()
            try channel.writeInbound(Connection.body(1 << 20))
        }
        #expect(channel.isActive)
    }

    @Test func `a real client that sends a byte now and then is cut off, and a prompt client is answered`()
        async throws
    {
        let counts = TestMetrics(), router = Router()
        router.post("/upload") { request, _ in "\(try await request.body.collect(upTo: 1 << 20).readableBytes) bytes\n"
        }
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        // At this rate single bytes gain no time, and a body of a megabyte gains all the time needed.
        let server = HTTPServerBuilder.http1(
            configuration: .bounded(
                idle: .seconds(60), answer: .seconds(60), body: .seconds(5), bytesPerSecond: 10_000,
                logger: logger, metrics: counts))
        let application = Application(
            router: router, server: server, configuration: .init(address: .hostname("127.0.0.1", port: 0)))
        try await application.test(.live) { tester in
            let port = try #require(tester.port.flatMap { UInt16(exactly: $0) })
            let file = Loopback.connect(to: port)
            defer { close(file) }
            func send(_ text: String) -> Int {
                Glibc.send(file, text, text.utf8.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            }
            #expect(send("POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n") > 0)
            await until("the end of the connection") {
                _ = send("x")
                return Loopback.isOver(file)
            }
            #expect(
                try counts.expectCounter("plimsoll_connections_cut_off_total", [("reason", "body_too_slow")]).totalValue
                    == 1)
            let whole = try await tester.execute(
                uri: "/upload", method: .post, body: ByteBuffer(repeating: 1, count: 1_000_000))
            #expect(whole.status == .ok && whole.text == "1000000 bytes\n")
        }
    }
}
