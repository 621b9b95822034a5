import Foundation
import FoundationNetworking
import Plimsoll
import TestServers
import Testing

/// A real Prometheus scrapes a real server.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PrometheusTests {
    private static let program = ServerProcess.find("prometheus")

    @Test(.enabled(if: program != nil, "prometheus is not installed"))
    func `Prometheus scrapes the manager's numbers`() async throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("plimsoll-prometheus-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let port = Loopback.freePort()
        try await Harness().running { harness in
            let cache = PurgeableCache<Int, Int>("pages", limit: .kibibytes(64), cost: { _, _ in 100 })
            harness.manager.register(cache)
            for key in 0..<7 { cache.insert(key, forKey: key) }
            harness.manager.simulate(.warning, for: .seconds(600))
            await until("the rehearsal") { harness.manager.level == .warning }
            try await harness.application().test(.live) { client in
                let config = """
                    global: { scrape_interval: 1s, scrape_timeout: 1s }
                    scrape_configs:
                      - job_name: demo
                        metrics_path: /plimsoll/metrics
                        static_configs: [{ targets: ["127.0.0.1:\(client.port ?? 0)"] }]
                    """
                try config.write(to: folder.appendingPathComponent("prometheus.yml"), atomically: true, encoding: .utf8)
                let server = try ServerProcess(
                    [
                        Self.program ?? "", "--config.file=\(folder.path)/prometheus.yml", "--storage.tsdb.path=\(folder.path)/data",
                        "--web.listen-address=127.0.0.1:\(port)",
                    ], log: folder.appendingPathComponent("log"))
                defer { server.signal(SIGKILL) }
                #expect(try await Self.ask(port, "plimsoll_level", server) == 1)
                // Repeated until true: on a busy machine a scrape may take longer than a second.
                #expect(try await Self.ask(port, "up{job=\"demo\"} == 1", server) == 1)
                let held = try await Self.ask(port, "plimsoll_cache_bytes{cache=\"pages\"}", server)
                #expect(held == Double(cache.heldBytes))
                #expect(try await Self.ask(port, "plimsoll_cache_entries", server) == Double(cache.count))
            }
        }
    }

    /// Returns the value of `query` as soon as a value exists.
    private static func ask(_ port: UInt16, _ query: String, _ server: ServerProcess) async throws -> Double {
        var parts = URLComponents()
        (parts.scheme, parts.host, parts.port, parts.path) = ("http", "127.0.0.1", Int(port), "/api/v1/query")
        parts.queryItems = [URLQueryItem(name: "query", value: query)]
        let url = try #require(parts.url)
        var found: String?
        await untilAnswer("an answer to \(query)") {
            // Refused until Prometheus listens, and empty until the first scrape.
            if let (data, _) = try? await URLSession.shared.data(from: url), let answer = try? JSONDecoder().decode(Answer.self, from: data) {
                found = answer.data.result.first?.value.last?.text
            }
            return found != nil || !server.isRunning
        }
        return try #require(found.flatMap { Double($0) })
    }

    private struct Answer: Decodable {
        struct Found: Decodable { var result: [Sample] }
        struct Sample: Decodable { var value: [Part] }
        /// A time, as a number, and a value, as text.
        struct Part: Decodable {
            var text: String

            init(from decoder: any Decoder) throws {
                let container = try decoder.singleValueContainer()
                text = try (try? container.decode(String.self)) ?? "\(container.decode(Double.self))"
            }
        }

        var data: Found
    }
}
