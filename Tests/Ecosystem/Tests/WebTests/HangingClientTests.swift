import Glibc
import Hummingbird
import HummingbirdCore
import Logging
import MetricsTestKit
import Plimsoll
import PlimsollHummingbird
import Synchronization
import TestServers
import Testing

/// Clients that hang: the service continues, other clients are answered, and hanging clients are cut off and counted.
@Suite(.timeLimit(.minutes(5))) struct HangingClientTests {
    private static let scrape = "GET /plimsoll/metrics HTTP/1.1\r\nHost: localhost\r\n"

    // With these bounds, clients that do not hang stay within the bounds even on a busy machine.
    @Test func `clients that send half a request are disconnected, and a scrape meanwhile is answered`() async throws {
        let log = Reasons(), counts = TestMetrics()
        try await Harness().application(
            server: .http1(configuration: .bounded(idle: .seconds(10), answer: .seconds(100), logger: log.logger, metrics: counts))
        ).test(.live) { tester in
            let port = try #require(tester.port.flatMap { UInt16(exactly: $0) })
            // Nothing, half a header, and half a body.
            let halves = ["", Self.scrape, "POST /plimsoll/simulate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"]
            let files = (0..<30).map { _ in Loopback.connect(to: port) }
            defer { for file in files { close(file) } }
            for (index, file) in files.enumerated() { Self.send(halves[index % 3], to: file) }
            try await Self.expectScrape(port)
            for file in files { await until("the end of the connection") { Loopback.isOver(file) } }
            try await Self.expectScrape(port)
            // The tester has a silent connection of its own.
            await until("31 reports") { log.all.count >= 31 }
            #expect(log.all == Array(repeating: "no complete request arrived", count: 31))
            #expect(try Self.cutOffs(counts, "no_request") == 31)
            #expect(try Self.cutOffs(counts, "answer_not_taken") == 0)
        }
    }

    @Test func `clients that take no answer are disconnected, and a scrape meanwhile is answered`() async throws {
        let log = Reasons(), counts = TestMetrics(), harness = Harness()
        // More than all buffers between server and client hold.
        for number in 0..<300 { harness.manager.register("\(number)" + String(repeating: "x", count: 400), byteCount: { 1 }, release: { _ in 0 }) }
        try await harness.application(
            server: .http1(configuration: .bounded(idle: .seconds(100), answer: .seconds(5), logger: log.logger, metrics: counts))
        ).test(.live) { tester in
            let port = try #require(tester.port.flatMap { UInt16(exactly: $0) })
            let files = (0..<8).map { _ in Loopback.connect(to: port) }
            defer { for file in files { close(file) } }
            for file in files { for _ in 0..<100 { Self.send(Self.scrape + "\r\n", to: file) } }
            try await Self.expectScrape(port)
            await until("8 reports") { log.all.count >= 8 }
            for file in files { await until("the end of the connection") { Loopback.isOver(file) } }
            try await Self.expectScrape(port)
            #expect(log.all == Array(repeating: "an answer was not read", count: 8))
            #expect(try Self.cutOffs(counts, "answer_not_taken") == 8)
        }
    }

    @Test func `a slow handler gets the time to answer, and a kept connection leaves no log line`() async throws {
        let log = Reasons(), router = Router(), wait = AsyncStream.makeStream(of: Void.self)
        router.get("/slow") { _, _ in
            for await _ in wait.stream { break }
            return "served\n"
        }
        let application = Application(
            router: router, server: .http1(configuration: .bounded(idle: .seconds(2), answer: .seconds(2), logger: log.logger)),
            configuration: .init(address: .hostname("127.0.0.1", port: 0)))
        try await application.test(.live) { tester in
            let port = try #require(tester.port.flatMap { UInt16(exactly: $0) })
            let slow = Loopback.connect(to: port)
            defer { close(slow) }
            Self.send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n", to: slow)
            // A silent client that came later is cut off meanwhile.
            let silent = Loopback.connect(to: port)
            defer { close(silent) }
            await until("the end of the connection") { Loopback.isOver(silent) }
            var file = pollfd(fd: slow, events: Int16(POLLIN), revents: 0)
            #expect(poll(&file, 1, 0) == 0, "neither answered nor closed")
            wait.continuation.yield()
            await until("an answer") { poll(&file, 1, 0) != 0 }
            var answer = [UInt8](repeating: 0, count: 4096)
            let taken = recv(slow, &answer, answer.count, 0)
            #expect(String(decoding: answer.prefix(max(0, taken)), as: UTF8.self).hasPrefix("HTTP/1.1 200 OK"))
            await until("the end of the connection") { Loopback.isOver(slow) }
            // The silent client's connection, and the tester's own.
            #expect(log.all.count <= 2 && Set(log.all) == ["no complete request arrived"])
        }
    }

    private static func cutOffs(_ counts: TestMetrics, _ reason: String) throws -> Int64 {
        try counts.expectCounter("plimsoll_connections_cut_off_total", [("reason", reason)]).totalValue
    }

    private static func send(_ text: String, to file: Int32) {
        let bytes = Array(text.utf8)
        // The client's send buffer may be full as well. The rest is not needed.
        _ = Glibc.send(file, bytes, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
    }

    private static func expectScrape(_ port: UInt16) async throws {
        try await WebClient.connected(to: Int(port)) { client in
            let response = try await client.execute(uri: "/plimsoll/metrics", method: .get, host: "127.0.0.1:\(port)")
            #expect(response.status == .ok && response.text.contains("plimsoll_level 0"))
        }
    }
}

/// The logged reasons for which connections were cut off.
private final class Reasons: Sendable {
    private let state = Mutex<[String]>([])

    var all: [String] { state.withLock { $0 } }
    var logger: Logger { Logger(label: "test") { _ in Handler(reasons: self) } }

    private struct Handler: LogHandler {
        let reasons: Reasons
        var logLevel = Logger.Level.info
        var metadata: Logger.Metadata = [:]
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            guard "\(event.message)" == "closed a connection" else { return }
            reasons.state.withLock { $0.append("\(event.metadata?["plimsoll.reason"] ?? "")") }
        }
    }
}
