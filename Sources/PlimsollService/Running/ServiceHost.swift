import Logging
import Metrics
import Plimsoll
import PlimsollLinux
import ServiceLifecycle
import Synchronization

#if Tracing
import Tracing
#endif

/// What is around a manager while it runs as a service: a log, instruments, and the service manager.
final class ServiceHost: ManagerHost {
    private let state: Mutex<(settings: ServiceSettings, link: ServiceManagerLink?)>
    // The manager owns its host; it lives as long as anybody runs it.
    private unowned let manager: ResourceManager

    init(_ manager: ResourceManager) {
        self.manager = manager
        state = Mutex((ServiceSettings(policy: manager.policy), nil))
    }

    var settings: ServiceSettings {
        get { state.withLock { $0.settings } }
        set { state.withLock { $0.settings = newValue } }
    }

    var isEnabled: Bool { settings.isEnabled }

    var logger: Logger { settings.logger ?? Logger(label: "plimsoll") }

    func run(_ loop: @Sendable () async throws -> Void) async throws {
        let manager = manager, settings = settings
        let log = ManagerLog(logger, rest: settings.logRest)
        let registrations = log.begin(manager)
        let link = makeLink(log)
        state.withLock { $0.link = link }
        link?.begin()
        #if Tracing
        ManagerSpans(InstrumentationSystem.tracer).begin(manager)
        #endif
        let admin = makeAdminEndpoint(log)
        let reports = ReportThread { Self.duties(manager, settings, link) }
        defer {
            reports?.stop()
            admin?.stop()
            for registration in registrations { registration.cancel() }
        }
        try await withGracefulShutdownHandler {
            try await loop()
        } onGracefulShutdown: {
            self.beginShutdown()
            manager.stop()
        }
        log.ended(manager.shutdownReport)
    }

    /// The first word of a shutdown, from whoever hears of it first.
    func beginShutdown() {
        let (settings, link) = state.withLock { $0 }
        guard manager.beginShutdown(within: settings.shutdownBudget) else { return }
        link?.stopping(within: settings.shutdownBudget)
        logger.info(
            "shutting down",
            metadata: ["plimsoll.budget": "\(settings.shutdownBudget)", "plimsoll.tasks": "\(manager.tasksStatus.running)"])
    }

    private func makeLink(_ log: ManagerLog) -> ServiceManagerLink? {
        guard settings.notifiesServiceManager else { return nil }
        do throws(ServiceManagerError) {
            return try ServiceManager().map { ServiceManagerLink(manager, $0) { log.cannotTell($0) } }
        } catch {
            log.cannotTell(error)
            return nil
        }
    }

    private func makeAdminEndpoint(_ log: ManagerLog) -> AdminEndpoint? {
        let settings = settings
        guard let path = Self.adminPath(settings.adminSocket, log) else { return nil }
        let admin = AdminEndpoint(manager: manager, path: path, allowsChanges: settings.adminAllowsChanges)
        do throws(AdminError) {
            try admin.start()
            return admin
        } catch {
            log.cannot("listen at the admin socket", "\(error)")
            return nil
        }
    }

    /// The place of the admin socket; `nil` if it is off, or if nothing names a place, which the log then says.
    static func adminPath(
        _ socket: ServiceSettings.AdminSocket, _ log: ManagerLog, environment: (String) -> String? = AdminPath.variable
    ) -> String? {
        switch socket {
        case .off: return nil
        case .path(let given): return given
        case .automatic:
            do throws(AdminError) { return try AdminPath.standard(environment: environment) } catch {
                log.opensNoAdminSocket(error)
                return nil
            }
        }
    }

    private static func duties(_ manager: ResourceManager, _ settings: ServiceSettings, _ link: ServiceManagerLink?) -> [ReportThread.Duty] {
        var duties: [ReportThread.Duty] = []
        if let link { duties.append(.init(interval: link.interval) { link.look() }) }
        let shed = ShedLog(manager, settings.logger ?? Logger(label: "plimsoll"))
        duties.append(.init(interval: ShedLog.interval) { shed.look() })
        if settings.metricsInterval > .zero {
            var reporter = MetricsReporter(manager, settings.metricsFactory ?? MetricsSystem.factory)
            duties.append(.init(interval: settings.metricsInterval) { reporter.report() })
        }
        return duties
    }
}
