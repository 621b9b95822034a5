import HTTPTypes
import Hummingbird
import NIOCore
import Plimsoll
import PlimsollHummingbird
import PlimsollLifecycle
import PlimsollService
import Synchronization
import TestServers
import Testing

struct LoadSheddingTests {
    @Test(arguments: Way.allCases)
    func `requests are served by priority as the level rises`(way: Way) async throws {
        try await Harness().running { harness in
            try await harness.application().test(way) { client in
                for path in ["/", "/pay", "/export"] { #expect(try await client.served(path, of: 20) == 20) }
                await harness.reach(.warning)
                // One after another, all are served. Of the eight or more that may run at once, exports have a quarter
                // and the others half.
                for path in ["/", "/pay", "/export"] { #expect(try await client.served(path, of: 20) == 20, "\(path) at warning") }
                let shedder = harness.shedding.shedder
                for (running, expected) in [(2, ["/": true, "/export": false]), (4, ["/": false, "/export": false])] {
                    for _ in 0..<running { #expect(shedder.begin(.critical) == nil) }
                    for (path, isServed) in expected {
                        #expect(try await client.served(path, of: 1) == (isServed ? 1 : 0), "\(path) beside \(running)")
                    }
                    #expect(try await client.served("/pay", of: 1) == 1, "/pay beside \(running)")
                    for _ in 0..<running { shedder.end() }
                }
                await harness.reach(.critical)
                // With the ladder's rung `quiesce`, which may come with the level, at least a quarter is served.
                let normal = try await client.served("/", of: 40)
                #expect((9...21).contains(normal), "\(normal) at critical")
                let (pay, export) = (try await client.served("/pay", of: 20), try await client.served("/export", of: 20))
                #expect(pay == 20 && export == 0)
            }
            let counts = harness.shedding.shedder.counts
            #expect(counts.refused["sheddable"] == ["arrivals": 20, "concurrency": 2, "paused": 0])
            #expect(counts.refused["normal"]?["concurrency"] == 1 && counts.refused["critical"]?.values.allSatisfy { $0 == 0 } == true)
            #expect(harness.shedding.shedder.statistics.running == 0)
        }
    }

    @Test(arguments: Way.allCases)
    func `a refusal is 503 with Retry-After in seconds, and forbids caching`(way: Way) async throws {
        try await Harness(retryAfter: 5...40).running { harness in
            await harness.reach(.critical)
            try await harness.application().test(way) { client in
                var waits: Set<Int> = []
                for _ in 0..<40 {
                    let response = try await client.get("/export")
                    #expect(response.status == .serviceUnavailable && response.headers[.cacheControl] == "no-store")
                    #expect(response.text.hasPrefix("not served: memory is short"))
                    waits.insert(try #require(response.headers[.retryAfter].flatMap { Int($0) }))
                }
                #expect(waits.allSatisfy { (5...40).contains($0) } && waits.count > 8, "\(waits)")
            }
        }
    }

    @Test(arguments: Way.allCases)
    func `a request without room waits, and is served once memory is plentiful`(way: Way) async throws {
        try await Harness(patience: .seconds(600)).running { harness in
            await harness.reach(.critical)
            let shedder = harness.shedding.shedder
            try await harness.application().test(way) { client in
                async let export = client.get("/export")
                await until("the request to wait") { shedder.waiting == 1 }
                harness.manager.simulate(.normal, for: .zero)
                let status = try await export.status
                #expect(status == .ok)
            }
            #expect(shedder.counts.refused["sheddable"]?.values.allSatisfy { $0 == 0 } == true && shedder.statistics.waiting == 0)
        }
    }

    @Test(arguments: Way.allCases)
    func `health, status and page are served at any level`(way: Way) async throws {
        // A manager narrows its shedder further after some seconds, and would end the pause.
        try await Harness(isManaged: false).running { harness in
            await harness.reach(.critical)
            harness.shedding.shedder.quiesce(to: .paused)
            try await harness.application().test(way) { client in
                let refused = try await client.get("/")
                #expect(refused.status == .serviceUnavailable)
                for path in ["/healthz", "/readyz", "/plimsoll", "/plimsoll/ui"] { #expect(try await client.get(path).status == .ok, "\(path)") }
                #expect(try await client.get("/plimsoll/none").status == .notFound)
            }
            #expect(harness.shedding.shedder.counts.exempted == 5)
        }
    }

    @Test func `a handler that throws has ended, and a streaming handler ends with the body`() async throws {
        let shedder = RequestShedder(policy: SheddingPolicy(limit: 1)), router = Router()
        router.add(middleware: LoadSheddingMiddleware(shedder))
        router.get("/throws") { _, _ -> String in throw HTTPError(.conflict) }
        router.get("/stream") { _, _ in
            Response(
                status: .ok,
                body: ResponseBody { writer in
                    for _ in 0..<4 { try await writer.write(ByteBuffer(string: "running \(shedder.statistics.running)\n")) }
                    try await writer.finish(nil)
                })
        }
        for way in Way.allCases {
            try await Application(router: router).test(way) { client in
                for _ in 0..<3 { #expect(try await client.get("/throws").status == .conflict) }
                let streamed = try await client.get("/stream").text
                #expect(streamed == "running 1\nrunning 1\nrunning 1\nrunning 1\n")
            }
            // The client has the answer a moment before the server releases the body.
            await until("the end of the body") { shedder.statistics.running == 0 }
            #expect(shedder.statistics.refused == 0)
        }
    }

    @Test func `the one line that adds the middleware also shows the shedder in the status`() async throws {
        let harness = Harness(limit: 64)
        let admissions = try NamedParts(harness.manager.status).admissions
        #expect(admissions.map(\.name) == ["http"] && admissions.first?.limit == 64)
    }
}
