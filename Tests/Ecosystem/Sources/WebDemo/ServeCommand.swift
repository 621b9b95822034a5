import ArgumentParser
import Glibc
import Hummingbird
import HummingbirdCore
import Logging
import Plimsoll
import PlimsollHummingbird
import PlimsollLinux
import PlimsollService
import ServiceLifecycle
import UnixSignals

/// Serves until it is told to end, then says how it went.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "serve", abstract: "Serve on loopback until SIGTERM or SIGINT.")

    @Option(help: "Port to listen on; 0 for one that is free.") var port = 8080
    @Option(help: "Most bytes that sessions take, for example 48M.") var limit = "48M"
    @Flag(help: "Let the page release memory and rehearse pressure.") var allowsChanges = false

    func validate() throws {
        guard (0...65535).contains(port) else { throw ValidationError("--port is \(port); allowed is 0 to 65535.") }
        guard let limit = ByteCount(limit), limit >= .mebibytes(1) else {
            throw ValidationError("--limit is \(limit); allowed is 1M and more, for example 48M or 1GiB.")
        }
    }

    func run() async throws {
        var logger = Logger(label: "demo")
        logger.logLevel = .warning
        let settings = ConfigurationProblem.orExit { () throws(ConfigurationProblem) in try ServiceSettings.fromEnvironment() }
        let manager = ResourceManager(source: LinuxPressureSource())
        let plimsoll = ResourceService(manager, settings: settings, logger: logger)
        let site = DemoSite(manager, sessionLimit: ByteCount(limit) ?? .mebibytes(48))
        let shedding = LoadSheddingMiddleware<BasicRequestContext>(manager) { request, _ in DemoSite.priority(request.uri.path) }

        let router = Router()
        router.addPlimsollRoutes(AdminPages(plimsoll, title: "Plimsoll web demo", allowsChanges: allowsChanges))
        router.add(middleware: shedding)
        site.addRoutes(to: router)

        let server = Application(
            router: router, server: .http1(configuration: .bounded(logger: logger)),
            configuration: .init(
                address: .hostname("127.0.0.1", port: port), availableConnectionsDelegate: .maximum(1024, logger: logger)),
            onServerRunning: { channel in
                print("http://127.0.0.1:\(channel.localAddress?.port ?? 0)/plimsoll/ui")
                fflush(nil)
            }, logger: logger)
        let group = ServiceGroup(
            services: [plimsoll, ExportService(manager: manager), server, plimsoll.shutdownBeacon], gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger)
        try await group.run()
        print(summary(of: manager, shedding.shedder))
    }

    private func summary(of manager: ResourceManager, _ shedder: RequestShedder) -> String {
        let status = manager.status, counts = shedder.counts
        let refused = counts.refused.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value.values.reduce(0, +))" }.joined(separator: ", ")
        return """
            requests served: \(counts.admitted.values.reduce(0, +)), shed: \(refused)
            changes of level: \(status.levelChanges), releases: \(status.releases), \
            of \(ByteCount(status.releasedBytes))
            resident at the end: \(ByteCount(status.residentBytes ?? 0))
            """
    }
}
