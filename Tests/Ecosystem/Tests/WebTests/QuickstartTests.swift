import Foundation
import FoundationNetworking
import Plimsoll
import PlimsollService
import TestServers
import Testing

/// The program of README.md, built from `docs/examples/Quickstart` and started as a process.
@Suite(.timeLimit(.minutes(5))) struct QuickstartTests {
    private static let root = (0..<5).reduce(URL(fileURLWithPath: #filePath)) { url, _ in url.deletingLastPathComponent() }
    private static let program =
        URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path + "/Quickstart"

    @Test func `README.md shows the program word for word, and the manifest that the example has`() throws {
        let readme = try String(contentsOf: Self.root.appendingPathComponent("README.md"), encoding: .utf8)
        let blocks = readme.components(separatedBy: "```swift\n").dropFirst().map { $0.components(separatedBy: "```")[0] }
        let folder = Self.root.appendingPathComponent("docs/examples/Quickstart")
        let source = try String(contentsOf: folder.appendingPathComponent("Quickstart.swift"), encoding: .utf8)
        #expect(blocks.filter { $0 == source }.count == 1, "README.md does not have docs/examples/Quickstart/Quickstart.swift as a code block")
        // The products that README.md names for the program are those that the test builds the program with.
        let manifest = try String(contentsOf: Self.root.appendingPathComponent("Tests/Ecosystem/Package.swift"), encoding: .utf8)
        let target = try #require(manifest.components(separatedBy: "name: \"Quickstart\",").dropFirst().first?.components(separatedBy: "]),").first)
        let built = Set(target.matches(of: #/plimsoll\("(\w+)"\)|name: "(\w+)", package/#).compactMap { $0.output.1 ?? $0.output.2 })
        let dependencies = try #require(blocks.first { $0.contains(".package(url:") })
        let named = Set(dependencies.matches(of: #/\.product\(name: "(\w+)"/#).map(\.output.1))
        #expect(!built.isEmpty && named == built)
    }

    @Test func `the program answers requests, finishes the background task after SIGTERM, and ends with status 0`() async throws {
        // On a busy machine the hundred pauses of the background task may take longer than the usual budget allows.
        try await Self.running(["PLIMSOLL_SHUTDOWN_BUDGET": "200s"]) { port in
            let thumbnail = try await Self.get("/thumbnail/cat", port)
            #expect(thumbnail.status == 200 && thumbnail.text == "thumbnail of cat")
            #expect(try await Self.get("/readyz", port).status == 200)
        } after: { log in
            #expect(!log.contains("export stopped"), "\(log)")
        }
    }

    @Test func `the program refuses requests with Retry-After while a simulated level is critical, and stays healthy`() async throws {
        try await Self.running(["PLIMSOLL_SIMULATE": "critical:600s"]) { port in
            var statuses: Set<Int> = [], retryAfter: String?
            try await untilAnswer("a refusal") {
                let answer = try await Self.get("/thumbnail/cat", port)
                statuses.insert(answer.status)
                retryAfter = answer.retryAfter
                return answer.status == 503
            }
            #expect(statuses.isSubset(of: [200, 503]))
            #expect(retryAfter.flatMap { Int($0) }.map { $0 > 0 } == true)
            #expect(try await Self.get("/healthz", port).status == 200)
            #expect(try await Self.get("/plimsoll", port).text.contains("\"critical\""))
        } after: { _ in
        }
    }

    /// Starts the program, calls `body` once the program is ready, sends SIGTERM, and expects status 0.
    private static func running(
        _ environment: [String: String], _ body: (UInt16) async throws -> Void, after: (String) throws -> Void
    ) async throws {
        let folder = try TemporaryDirectory("quickstart"), port = Loopback.freePort(), log = folder.url.appendingPathComponent("log")
        let settings = ["PORT=\(port)", "PLIMSOLL_ADMIN_SOCKET=off"] + environment.map { "\($0)=\($1)" }
        let server = try ServerProcess(["/usr/bin/env"] + settings + [program], log: log)
        defer { server.signal(SIGKILL) }
        // The server answers `/healthz` before the launch is complete, and refuses requests until then.
        await untilAnswer("readiness") {
            if let answer = try? await get("/readyz", port), answer.status == 200 { return true }
            return !server.isRunning
        }
        try #require(server.isRunning, "\((try? String(contentsOf: log, encoding: .utf8)) ?? "")")
        try await body(port)
        let status = await server.stop()
        let text = try String(contentsOf: log, encoding: .utf8)
        #expect(status == 0, "\(text)")
        try after(text)
    }

    private static func get(_ path: String, _ port: UInt16) async throws -> (text: String, status: Int, retryAfter: String?) {
        let url = try #require(URL(string: "http://127.0.0.1:\(port)\(path)"))
        let (data, response) = try await URLSession.shared.data(from: url)
        let answer = try #require(response as? HTTPURLResponse)
        return (String(decoding: data, as: UTF8.self), answer.statusCode, answer.value(forHTTPHeaderField: "Retry-After"))
    }
}
