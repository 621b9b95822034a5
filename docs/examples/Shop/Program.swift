import Configuration
import Logging
import Plimsoll
import PlimsollLinux
import PlimsollService
import ServiceLifecycle
import UnixSignals

/// A minimal service with a cache, state that outlives a restart, and work that must be finished.
///
/// `docs/operations/shop.service` runs the service under systemd; `make vm` tests that.
@main
enum Program {
    static func main() async throws {
        let settings = ConfigurationProblem.orExit { () throws(ConfigurationProblem) in
            try ServiceSettings.fromEnvironment()
        }
        let own = ConfigReader(provider: EnvironmentVariablesProvider()).scoped(to: "shop")
        let manager = ResourceManager(source: LinuxPressureSource()), logger = Logger(label: "shop")
        let plimsoll = ResourceService(manager, settings: settings, logger: logger)
        let shop = Shop(manager, batch: .seconds(own.int(forKey: "batchSeconds", default: 2)))
        // Without a service manager nobody keeps anything, and each run begins with nothing.
        if let store = try ServiceManagerStateStore() { shop.keep(in: store) }
        let group = ServiceGroup(
            configuration: .init(
                services: [.init(service: plimsoll), .init(service: shop), .init(service: plimsoll.shutdownBeacon)],
                gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
        try await group.run()
    }
}
