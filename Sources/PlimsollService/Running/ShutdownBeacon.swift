import Plimsoll
public import ServiceLifecycle

/// Hears of a shutdown before the other services do; see `ResourceManager.shutdownBeacon`.
public struct ShutdownBeacon: Service, CustomStringConvertible {
    private let manager: ResourceManager

    init(_ manager: ResourceManager) { self.manager = manager }

    public var description: String { "plimsoll.shutdownBeacon" }

    /// Waits for a graceful shutdown, begins the manager's, and leaves the others running for the settings' `drainDelay`.
    public func run() async throws {
        do {
            try await gracefulShutdown()
        } catch is CancellationError {
            return
        }
        let host = manager.serviceHost
        host.beginShutdown()
        if host.settings.drainDelay > .zero { try? await Task.sleep(for: host.settings.drainDelay) }
    }
}
