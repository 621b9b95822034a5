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
    private struct State {
        var settings: ServiceSettings
        var link: ServiceManagerLink?
        /// It is the manager's turn to end, or its run is over.
        var hasTurn = false
        /// Time for that came before its turn did.
        var isOverdue = false
        /// The run has ended in time.
        var isOver = false
        /// What calls off the looks at a shutdown.
        var looks: [@Sendable () -> Void] = []
    }

    private let state: Mutex<State>
    // The manager owns its host; it lives as long as anybody runs it.
    private unowned let manager: ResourceManager

    init(_ manager: ResourceManager) {
        self.manager = manager
        state = Mutex(State(settings: ServiceSettings(policy: manager.policy)))
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
        do {
            try await withGracefulShutdownHandler {
                try await loop()
            } onGracefulShutdown: {
                self.state.withLock { $0.hasTurn = true }
                self.beginShutdown()
                manager.stop()
            }
        } catch {
            callOffLooks()
            throw error
        }
        let isOverdue = state.withLock { state in
            state.hasTurn = true
            return state.isOverdue
        }
        log.ended(manager.shutdownReport)
        if isOverdue, !Task.isCancelled { throw ShutdownOverrun(manager.shutdownReport?.budget ?? settings.shutdownBudget) }
        callOffLooks()
    }

    /// The first word of a shutdown, from whoever hears of it first.
    func beginShutdown() {
        let (settings, link) = state.withLock { ($0.settings, $0.link) }
        let budget = settings.shutdownBudget
        guard manager.beginShutdown(within: budget, taskShare: settings.shutdownTaskShare) else { return }
        link?.stopping(within: budget)
        logger.info(
            "shutting down",
            metadata: [
                "plimsoll.budget": "\(budget)", "plimsoll.task_share": "\(settings.shutdownTaskShare)",
                "plimsoll.tasks": "\(manager.tasksStatus.running)",
            ])
        // No budget is no bound either: services end when they do.
        guard budget > .zero else { return }
        // The looks hold the manager until they are called off, at the latest to the end of the budget. Tasks are given up at the beginning of the reserve;
        // services have half of it to notice.
        let manager = manager
        let looks = [
            manager.call(after: budget - ResourceManager.shutdownReserve(of: budget) / 2) { [self] in endWithoutTurn(manager) },
            manager.call(after: budget) { [self] in ManagerLog(logger, rest: .zero).outlived(budget, manager) },
        ]
        let isOver = state.withLock { state in
            state.looks = looks
            return state.isOver
        }
        if isOver { callOffLooks() }
    }

    /// Tasks have been cancelled by now, and what awaits them should have ended; services that have not keep the manager from its turn. It ends all the same: as
    /// that is an error to the group, the group cancels the others.
    private func endWithoutTurn(_ manager: ResourceManager) {
        let isOverdue = state.withLock { state in
            if !state.hasTurn { state.isOverdue = true }
            return state.isOverdue
        }
        guard isOverdue else { return }
        ManagerLog(logger, rest: .zero).overdue(settings.shutdownBudget, manager)
        manager.stop()
    }

    private func callOffLooks() {
        let looks = state.withLock { state in
            state.isOver = true
            defer { state.looks = [] }
            return state.looks
        }
        for callOff in looks { callOff() }
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

/// A shutdown whose budget was spent before the other services of the group had ended.
public struct ShutdownOverrun: Error, Sendable, Hashable, CustomStringConvertible {
    /// What there was from the first word of the shutdown to the end.
    public var budget: Duration
    /// What could not be, why, and what to do.
    public var description: String {
        "cannot end the group in good order within shutdown.budget (\(budget)) because a service had not ended by then; its services are cancelled now. "
            + "Have services end when they are shut down, or raise shutdown.budget (PLIMSOLL_SHUTDOWN_BUDGET)"
    }

    init(_ budget: Duration) { self.budget = budget }
}
