public import ServiceLifecycle

/// A service that is notified of a shutdown before the other services; see `ResourceService.shutdownBeacon`.
public struct ShutdownBeacon: Service, CustomStringConvertible {
    private let service: ResourceService

    init(_ service: ResourceService) { self.service = service }

    public var description: String { "plimsoll.shutdownBeacon" }

    /// Waits for a graceful shutdown, begins the manager's shutdown, then waits for `drainDelay` of the settings
    /// while the other services run.
    public func run() async throws {
        do {
            try await gracefulShutdown()
        } catch is CancellationError {
            return
        }
        service.beginShutdown()
        let delay = service.settings.drainDelay
        if delay > .zero { try? await Task.sleep(for: delay) }
    }
}
