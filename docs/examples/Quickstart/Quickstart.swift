import Hummingbird
import Logging
import Plimsoll
import PlimsollHummingbird
import PlimsollLinux
import PlimsollService
import ServiceLifecycle

@main
struct Quickstart {
    static func main() async throws {
        let logger = Logger(label: "quickstart")
        let manager = ResourceManager(source: LinuxPressureSource())
        let plimsoll = ResourceService(manager, settings: try ServiceSettings.fromEnvironment(), logger: logger)
        // Values lie in pages that the kernel may reclaim. Without a limit, the cache uses memory that would be idle.
        let thumbnails = VolatileCache<String, [UInt8]>("thumbnails")
        manager.register(thumbnails)

        let router = Router()
        router.addPlimsollRoutes(plimsoll)  // /healthz, /readyz, /plimsoll/ui, /plimsoll/metrics
        router.add(middleware: LoadSheddingMiddleware(manager))  // 503 with Retry-After while memory is short
        router.get("/thumbnail/:name") { _, context in
            let name = try context.parameters.require("name")
            return ByteBuffer(bytes: try await thumbnails.value(forKey: name) { Array("thumbnail of \(name)".utf8) })
        }
        let port = Environment().get("PORT", as: Int.self) ?? 8080
        let server = Application(router: router, configuration: .init(address: .hostname(port: port)), logger: logger)
        // The manager is first and ends last. The beacon is last: the group notifies the beacon of SIGTERM first.
        let services: [any Service] = [plimsoll, server, Export(manager: manager), plimsoll.shutdownBeacon]
        try await ServiceGroup(services: services, gracefulShutdownSignals: [.sigterm], logger: logger).run()
    }
}

/// Work that may be finished after SIGTERM, and that stops when memory stays short.
struct Export: Service {
    let manager: ResourceManager

    func run() async throws {
        try? await manager.withBackgroundTask("export") { task in
            for page in 1...100 {
                try await Task.sleep(for: .milliseconds(10))  // your work
                task.progress(completed: page, total: 100)
            }
        } onExpiration: { _, reason in
            print("export stopped: \(reason)")  // save here; then `withBackgroundTask` throws
        }
        try await gracefulShutdown()
    }
}
