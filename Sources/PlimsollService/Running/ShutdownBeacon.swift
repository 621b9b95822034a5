public import ServiceLifecycle

/// Hears of a shutdown before the other services do; see `ResourceService.shutdownBeacon`.
public struct ShutdownBeacon: Service, CustomStringConvertible {
    private let service: ResourceService

    init(_ service: ResourceService) { self.service = service }

    public var description: String { "plimsoll.shutdownBeacon" }

    /// Waits for a graceful shutdown, begins the manager's shutdown, and leaves the others running for the settings' `drainDelay`.
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
