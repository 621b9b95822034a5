import Hummingbird
import Logging
import Plimsoll
import PlimsollHummingbird
import PlimsollLifecycle
import PlimsollLinux
import PlimsollService
import ServiceLifecycle
import UnixSignals

/// The program in the image of `docs/operations/Dockerfile`: requests and probes on one port, pages for operators on
/// another. It stands for your server.
@main
enum Pod {
    static func main() async throws {
        let settings = ConfigurationProblem.orExit { try ServiceSettings.fromEnvironment() }
        let environment = Environment(), logger = Logger(label: "pod")
        let manager = ResourceManager(source: LinuxPressureSource())
        // An emptyDir outlives the container: the next run knows that this one was killed.
        if let directory = environment.get("RUNTIME_DIRECTORY") {
            manager.lifecycle.countLaunches(in: FileStateStore(directory: directory + "/state"))
        }
        let plimsoll = ResourceService(manager, settings: settings, logger: logger)
        let thumbnails = VolatileCache<String, [UInt8]>("thumbnails")
        manager.register(thumbnails)

        // Probes ask the server that takes the requests, and read the status alone.
        let router = Router(), checks = AdminPages(plimsoll)
        for path in ["/healthz", "/readyz"] {
            router.get(RouterPath(path)) { _, _ in
                HTTPResponse.Status(code: await checks.answer(path: path, host: nil)?.status ?? 404)
            }
        }
        router.add(middleware: LoadSheddingMiddleware(manager))
        router.get("/thumbnail/:name") { _, context in
            let name = try context.parameters.require("name")
            return ByteBuffer(bytes: try await thumbnails.value(forKey: name) { Array("thumbnail of \(name)".utf8) })
        }
        let pages = Router()
        pages.addPlimsollRoutes(plimsoll)

        // Bounds for connections that send or read nothing: docs/Web.md.
        func server(_ router: Router<BasicRequestContext>, _ variable: String, _ standard: Int) -> some Service {
            let host = environment.get("HOST") ?? "127.0.0.1"
            let port = environment.get(variable, as: Int.self) ?? standard
            return Application(
                router: router, server: .http1(configuration: .bounded(logger: logger)),
                configuration: .init(address: .hostname(host, port: port)), logger: logger)
        }
        let services: [any Service] = [
            plimsoll, server(pages, "ADMIN_PORT", 8081), server(router, "PORT", 8080), plimsoll.shutdownBeacon,
        ]
        try await ServiceGroup(services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: logger).run()
    }
}
