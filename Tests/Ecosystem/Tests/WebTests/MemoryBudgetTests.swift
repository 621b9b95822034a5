import Foundation
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Plimsoll
import PlimsollHummingbird
import PlimsollService
import PlimsollTesting
import Synchronization
import TestServers
import Testing

/// Requests that hold too much, one test after another, because the list of requests belongs to the process. The
/// allocator is not asked here: handlers charge the bytes that they would hold.
@Suite(.serialized) struct MemoryBudgetTests {
    /// The texts that handlers have noted.
    final class Seen: Sendable {
        private let all = Mutex<[String]>([])
        func add(_ text: String) { all.withLock { $0.append(text) } }
        var texts: [String] { all.withLock { $0 } }
    }

    private static func router(_ seen: Seen) -> Router<BasicRequestContext> {
        let router = Router()
        router.add(
            middleware: MemoryBudgetMiddleware { request, _ in request.uri.path == "/free" ? nil : .mebibytes(8) })
        router.get("/orders/{id}") { _, _ in
            seen.add(MemoryBudget.current?.name ?? "none")
            return "served\n"
        }
        for path in ["/import", "/free"] {
            router.post(RouterPath(path)) { request, _ -> String in
                let budget = try #require(MemoryBudget.current)
                budget.charge(.mebibytes(9))
                seen.add("\(path) begins")
                // Like a handler that awaits something.
                if path == "/import" || request.uri.queryParameters["wait"] != nil { try await untilCancelled() }
                return "imported\n"
            }
        }
        router.post("/body") { request, _ -> String in
            let body = try await request.body.collect(upTo: 64 << 20)
            return "\(body.readableBytes) \(MemoryBudget.current?.live.bytes ?? -1)"
        }
        router.get("/stream") { _, _ in
            let budget = try #require(MemoryBudget.current)
            return Response(
                status: .ok,
                body: ResponseBody { writer in
                    seen.add(MemoryBudget.current === budget ? "same budget" : "other budget")
                    for _ in 0..<100 {
                        budget.charge(.mebibytes(1))
                        try await writer.write(ByteBuffer(string: "line\n"))
                    }
                    try await writer.finish(nil)
                })
        }
        router.get("/export") { _, _ in
            let budget = try #require(MemoryBudget.current)
            return Response(
                status: .ok,
                body: ResponseBody { writer in
                    for _ in 0..<20 {
                        // As the allocator counts a part that the handler makes.
                        budget.charge(.mebibytes(1))
                        try await writer.write(ByteBuffer(repeating: 1, count: 1 << 20))
                    }
                    try await writer.finish(nil)
                })
        }
        router.get("/fails") { _, _ -> String in throw HTTPError(.conflict) }
        return router
    }

    /// The part of a status that tests read.
    struct Requests: Decodable {
        struct Part: Decodable {
            var running: Int
            var cancelledOverLimit: Int
            var cancelledForPressure: Int
        }
        var requests: Part

        static func now(_ manager: ResourceManager = ResourceManager(source: ScriptedPressureSource())) throws -> Part {
            try JSONDecoder().decode(Self.self, from: Data(manager.status.json().utf8)).requests
        }
    }

    private func served(_ way: Way, _ body: @escaping @Sendable (WebClient, Seen) async throws -> Void) async throws {
        let seen = Seen()
        let application = Application(
            router: Self.router(seen), configuration: .init(address: .hostname("127.0.0.1", port: 0)))
        try await withRequestList {
            try await application.test(way) { client in try await body(client, seen) }
            try await until("all budgets to end") { try Requests.now().running == 0 }
        }
    }

    @Test(arguments: Way.allCases) func `a budget has the method and the pattern of the route as its name`(way: Way) async throws {
        try await served(way) { client, seen in
            for id in ["7", "8"] { #expect(try await client.get("/orders/\(id)").status == .ok) }
            #expect(seen.texts == ["GET /orders/{id}", "GET /orders/{id}"])
            let failed = try await client.get("/fails")
            #expect(failed.status == .conflict, "a handler's own error stays")
            #expect(try await client.get("/nowhere").status == .notFound)
        }
    }

    @Test(arguments: Way.allCases) func `a request above its limit is answered 413 with the reason, and the next one is served`(way: Way) async throws
    {
        try await served(way) { client, _ in
            let before = try Requests.now().cancelledOverLimit
            let response = try await client.execute(uri: "/import", method: .post, body: ByteBuffer(string: "x"))
            #expect(response.status == .contentTooLarge && response.headers[.cacheControl] == "no-store" && response.headers[.retryAfter] == nil)
            #expect(response.text == "POST /import was cancelled because it held 9 MiB of memory, above its limit of 8 MiB\n")
            #expect(try await client.execute(uri: "/free", method: .post, body: ByteBuffer(string: "x")).text == "imported\n", "no limit")
            // The thread that cancels a request counts the request afterwards, perhaps after the answer.
            try await until("the count") { try Requests.now().cancelledOverLimit > before }
            #expect(try Requests.now().cancelledOverLimit == before + 1)
        }
    }

    @Test func `at critical the request that holds most is answered 503 with Retry-After`() async throws {
        let source = ScriptedPressureSource()
        var policy = PressurePolicy.standard
        policy.ladder = EscalationLadder.standard.cancellingLargestRequest(above: .mebibytes(4))
        let manager = ResourceManager(source: source, policy: policy)
        let running = Task { try await manager.run() }
        try await served(.live) { client, seen in
            let before = try Requests.now().cancelledForPressure
            async let response = client.execute(uri: "/free?wait=1", method: .post, body: ByteBuffer(string: "x"))
            await until("the request") { seen.texts.contains("/free begins") }
            source.push(usage: .mebibytes(250), limit: .mebibytes(256))
            let answer = try await response
            #expect(answer.status == .serviceUnavailable && answer.headers[.retryAfter] == "5")
            #expect(answer.text == "POST /free was cancelled because memory is short and it held most, 9 MiB\n")
            try await until("the count") { try Requests.now(manager).cancelledForPressure > before }
            #expect(try Requests.now(manager).cancelledForPressure == before + 1)
            // Ended here, because this manager would also cancel the requests of the next test.
            running.cancel()
            try await running.value
        }
    }

    @Test func `buffers of a body are charged as they arrive`() async throws {
        try await served(.live) { client, _ in
            let before = try Requests.now().cancelledOverLimit
            let response = try await client.execute(uri: "/body", method: .post, body: ByteBuffer(repeating: 1, count: 3 << 20))
            // The allocator does not count here, so nothing is subtracted.
            #expect(response.text == "\(3 << 20) \(3 << 20)")
            let large = try await client.execute(uri: "/body", method: .post, body: ByteBuffer(repeating: 1, count: 20 << 20))
            #expect(large.status == .contentTooLarge && large.text.hasPrefix("POST /body was cancelled because it held "))
            // Not left to the next test, which counts too.
            try await until("the count") { try Requests.now().cancelledOverLimit > before }
        }
    }

    @Test func `a streamed answer counts until its end, and ends above the limit`() async throws {
        try await served(.live) { client, seen in
            let before = try Requests.now().cancelledOverLimit
            // The status was sent before the request exceeded the limit.
            _ = try? await client.get("/stream")
            try await until("the count") { try Requests.now().cancelledOverLimit == before + 1 }
            #expect(seen.texts == ["same budget"])
        }
    }

    @Test func `a streamed answer may be longer than the limit, as parts that were handed over no longer count`() async throws {
        try await served(.live) { client, _ in
            let answer = try await client.get("/export")
            #expect(answer.status == .ok && answer.body.readableBytes == 20 << 20)
        }
    }
}
