import Foundation
import FoundationNetworking
import TestServers
import Testing

/// The program of `docs/operations/Dockerfile`, started as the image starts it.
@Suite(.timeLimit(.minutes(5))) struct PodTests {
    private static let program =
        URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path + "/Pod"

    private let folder: TemporaryDirectory
    private let port = Loopback.freePort(), admin = Loopback.freePort()

    init() throws { folder = try TemporaryDirectory("pod") }

    @Test func `the program becomes ready, keeps its pages to the port for operators, and knows of a kill after the next start`() async throws {
        let first = try await start()
        #expect(try await get("/readyz", port).status == 200)
        #expect(try await get("/thumbnail/cat", port).text == "thumbnail of cat")
        for page in ["/plimsoll", "/plimsoll/metrics", "/plimsoll/ui"] {
            #expect(try await get(page, port).status == 404, "\(page)")
            #expect(try await get(page, admin).status == 200, "\(page)")
        }
        #expect(try await get("/plimsoll/metrics", admin).text.contains("plimsoll_previous_run_info{end=\"none\"} 1\n"))
        #expect(FileManager.default.fileExists(atPath: folder.path("plimsoll.sock")), "`plimsoll status` looks there")
        await first.kill()
        let second = try await start()
        #expect(try await get("/plimsoll/metrics", admin).text.contains("plimsoll_previous_run_info{end=\"crashed\"} 1\n"))
        await second.stop()
        let third = try await start()
        #expect(try await get("/plimsoll/metrics", admin).text.contains("plimsoll_previous_run_info{end=\"clean\"} 1\n"))
        await third.stop()
    }

    @Test func `service links of Kubernetes do not keep the program from its start`() async throws {
        let server = try await start(["PLIMSOLL_SERVICE_HOST=10.96.0.1", "PLIMSOLL_PORT_80_TCP=tcp://10.96.0.1:80"])
        await server.stop()
        let log = try String(contentsOf: folder.url.appendingPathComponent("log"), encoding: .utf8)
        #expect(log.contains("ignored service links of Kubernetes"), "\(log)")
    }

    /// Starts the program with the image's variables, and returns once the program is ready.
    private func start(_ more: [String] = []) async throws -> ServerProcess {
        let log = folder.url.appendingPathComponent("log")
        let variables = ["PORT=\(port)", "ADMIN_PORT=\(admin)", "RUNTIME_DIRECTORY=\(folder.url.path)"] + more
        let server = try ServerProcess(["/usr/bin/env"] + variables + [Self.program], log: log)
        await untilAnswer("readiness") {
            if let answer = try? await get("/readyz", port), answer.status == 200, (try? await get("/healthz", admin)) != nil { return true }
            return !server.isRunning
        }
        try #require(server.isRunning, "\((try? String(contentsOf: log, encoding: .utf8)) ?? "")")
        return server
    }

    private func get(_ path: String, _ port: UInt16) async throws -> (text: String, status: Int) {
        let url = try #require(URL(string: "http://127.0.0.1:\(port)\(path)"))
        let (data, response) = try await URLSession.shared.data(from: url)
        return (String(decoding: data, as: UTF8.self), try #require(response as? HTTPURLResponse).statusCode)
    }
}
