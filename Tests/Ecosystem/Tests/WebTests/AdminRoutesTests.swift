import HTTPTypes
import Hummingbird
import NIOCore
import Plimsoll
import PlimsollHummingbird
import PlimsollLifecycle
import PlimsollService
import Testing

struct AdminRoutesTests {
    @Test(arguments: Way.allCases)
    func `the status route gives the manager's status`(way: Way) async throws {
        try await Harness().running { harness in
            harness.manager.register(PurgeableCache<Int, Int>("numbers", limit: .mebibytes(1)))
            try await harness.application().test(way) { client in
                let response = try await client.get("/plimsoll")
                #expect(response.status == .ok && response.headers[.contentType] == "application/json")
                let status = try ManagerStatus(json: response.text)
                #expect(status.usageBytes == 100 << 20 && status.limitBytes == 256 << 20 && status.level == "normal")
                let named = try NamedParts(status)
                #expect(named.holders.map(\.name) == ["numbers"] && named.admissions.map(\.name) == ["http"])
            }
        }
    }

    @Test(arguments: Way.allCases)
    func `readiness follows the life cycle, and the answer gives the reason`(way: Way) async throws {
        let harness = Harness()
        try await harness.application().test(way) { client in
            let before = try await client.get("/readyz")
            #expect(before.status == .serviceUnavailable && before.text == "not ready: not launched\n" && before.headers[.retryAfter] == "5")
            #expect(try await client.get("/healthz").text == "ok\n")
            try await harness.manager.lifecycle.launch()
            #expect(try await client.get("/readyz").text == "ready (complete)\n")
            try await harness.manager.lifecycle.interrupt()
            #expect(try await client.get("/readyz").text == "not ready: the process is inactive\n")
            // While inactive, only these pages are served. Other requests get a time for the retry.
            #expect(try await client.get("/pay").status == .serviceUnavailable)
            try await harness.manager.lifecycle.endInterruption()
            #expect(try await client.get("/pay").status == .ok)
        }
        await harness.manager.lifecycle.terminate()
    }

    @Test func `a service under pressure is ready, and reports that shedding is on`() async throws {
        try await Harness().running { harness in
            await harness.reach(.critical)
            try await harness.application().test(.router) { client in
                let response = try await client.get("/readyz")
                #expect(response.status == .ok && response.text.hasPrefix("ready (complete), shedding requests: open, "))
            }
        }
    }

    @Test func `metrics are the status as Prometheus text`() async throws {
        try await Harness().application().test(.router) { client in
            let response = try await client.get("/plimsoll/metrics")
            #expect(response.status == .ok && response.headers[.contentType] == "text/plain; version=0.0.4; charset=utf-8")
            #expect(String(buffer: response.body).contains("# TYPE plimsoll_level gauge\nplimsoll_level 0\n"))
        }
    }

    @Test func `memory is released and pressure rehearsed only where allowed and from our own page`() async throws {
        try await Harness().running { harness in
            let cache = PurgeableCache<Int, Int>("numbers", cost: { _, _ in 1000 })
            harness.manager.register(cache)
            for key in 0..<10 { cache.insert(key, forKey: key) }
            try await harness.application({ $0.allowsChanges = true }).test(.live) { client in
                let port = try #require(client.port), ours = "http://127.0.0.1:\(port)"
                func post(_ path: String, _ origin: String?) async throws -> WebAnswer {
                    var headers: HTTPFields = [:]
                    headers[.origin] = origin
                    return try await client.execute(uri: path, method: .post, host: "127.0.0.1:\(port)", headers: headers)
                }
                for origin in [nil, "null", "http://evil.example", "http://localhost:\(port)", "http://127.0.0.1:1"] {
                    #expect(try await post("/plimsoll/release", origin).status == .forbidden)
                }
                #expect(cache.statistics.count == 10)
                #expect(try await post("/plimsoll/release?bytes=-5", ours).status == .badRequest)
                #expect(try await post("/plimsoll/simulate?level=normal", ours).text == "normal\n")
                let release = try await post("/plimsoll/release?name=numbers", ours)
                #expect(release.status == .ok && release.text.contains("released"), "\(release.text)")
                #expect(cache.statistics.count == 0)
            }
            try await harness.application().test(.router) { client in
                let response = try await client.execute(uri: "/plimsoll/release", method: .post, headers: [.origin: "http://localhost"])
                #expect(response.status == .forbidden && response.text.contains("allowsChanges"))
            }
        }
    }

    @Test(arguments: Way.allCases)
    func `senseless methods and headers get an answer, and the next request is answered too`(way: Way) async throws {
        try await Harness().application({ $0.allowsChanges = true }).test(way) { client in
            for method in [HTTPRequest.Method.put, .delete, .patch, .options, .post] {
                let response = try await client.execute(uri: "/plimsoll", method: method)
                #expect(response.status == .methodNotAllowed && response.headers[.allow] == "GET, HEAD", "\(method)")
            }
            #expect(try await client.execute(uri: "/plimsoll/release", method: .get).status == .methodNotAllowed)
            // Over a socket the server's parser refuses the method, and ends the connection.
            if way == .router { #expect(try await client.execute(uri: "/healthz", method: .init("BREW")!).status == .notFound) }
            let head = try await client.execute(uri: "/healthz", method: .head)
            #expect(head.status == .ok && head.text.isEmpty && head.headers[.contentLength] == "3")
            for query in ["?actions=many", "?actions=-1", "?actions=9999999999999999999999"] {
                #expect(try await client.get("/plimsoll" + query).status == .badRequest, "\(query)")
            }
            for query in ["?%00=%zz&&&==", "?" + String(repeating: "a=b&", count: 500)] {
                #expect(try await client.get("/plimsoll" + query).status == .ok)
            }
            let origin = String(repeating: "http://x", count: 1000)
            #expect(try await client.execute(uri: "/plimsoll/release", method: .post, headers: [.origin: origin]).status == .forbidden)
            #expect(try await client.get("/healthz").text == "ok\n")
        }
    }

    @Test func `headers larger than the server's limit end that connection and no other`() async throws {
        try await Harness().application().test(.live) { client in
            let port = try #require(client.port)
            // Refused by the server, or cut off: in both cases this connection alone.
            try? await WebClient.connected(to: port) { other in
                let huge = String(repeating: "x", count: 1 << 20)
                let status = try await other.get("/healthz", headers: [.userAgent: huge]).status
                #expect(status.code >= 400)
            }
            #expect(try await client.get("/healthz").status == .ok)
        }
    }

    @Test(arguments: Way.allCases)
    func `the page's content policy runs only the page's own script`(way: Way) async throws {
        try await Harness().application({ $0.title = "shop" }).test(way) { client in
            let response = try await client.get("/plimsoll/ui")
            #expect(response.headers[.contentType] == "text/html; charset=utf-8" && response.text.contains("<title>shop</title>"))
            let policy = try #require(response.headers[.contentSecurityPolicy])
            let nonce = try #require(policy.split(separator: "'nonce-").dropFirst().first?.prefix { $0 != "'" })
            #expect(policy.hasPrefix("default-src 'none';") && !policy.contains("unsafe"))
            #expect(response.text.contains("<script nonce=\"\(nonce)\">") && response.text.contains("<style nonce=\"\(nonce)\">"))
            #expect(response.headers[.xContentTypeOptions] == "nosniff")
        }
    }
}
