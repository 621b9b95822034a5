public import Logging
import Metrics
public import Plimsoll
import PlimsollLinux
public import ServiceLifecycle
import Synchronization

#if Tracing
import Tracing
#endif

/// Runs a manager as a service: with a log, instruments, an admin socket, and notifications of the service manager (sd_notify(3)).
///
/// The first service of its group, as services are shut down in reverse order: memory is looked after for as long as any other service runs.
///
///     let plimsoll = ResourceService(manager, settings: try ServiceSettings.fromEnvironment(), logger: logger)
///     let group = ServiceGroup(configuration: .init(
///         services: [.init(service: plimsoll), .init(service: server), .init(service: plimsoll.shutdownBeacon)],
///         gracefulShutdownSignals: [.sigterm], logger: logger))
///
/// On a graceful shutdown background tasks come to their own end or are asked to stop, those that go on are named in the log, and state is saved. The run
/// throws `ShutdownOverrun` if other services have not ended when the budget is all but spent, so that the group cancels them.
public final class ResourceService: Service, CustomStringConvertible {
    private struct State {
        var settings: ServiceSettings
        var link: ServiceManagerLink?
        /// The group has come to this service on its way down, or the run is over.
        var hasTurn = false
        /// The budget was spent before that.
        var isOverdue = false
        /// The run has ended in time.
        var isOver = false
        /// Calls off the looks at a shutdown.
        var looks: [@Sendable () -> Void] = []
    }

    /// The manager that this service runs.
    public let manager: ResourceManager
    let logger: Logger
    private let state: Mutex<State>

    /// Makes the service of a manager, which takes over what `settings` were told of its policy and of limits of caches.
    ///
    /// - Parameters:
    ///   - manager: a manager that has not run yet.
    ///   - settings: defaults, or what the environment or a configuration says.
    ///   - logger: where to write what was done; `nil` for a logger of label `plimsoll`.
    public init(_ manager: ResourceManager, settings: ServiceSettings = ServiceSettings(), logger: Logger? = nil) {
        self.manager = manager
        self.logger = logger ?? Logger(label: "plimsoll")
        state = Mutex(State(settings: settings))
        do throws(ConfigurationProblem) {
            manager.adopt(try settings.policy(over: manager.policy))
        } catch {
            self.logger.error(
                "settings of the policy are not followed, as they don't fit the manager's policy; it stays as it was made",
                metadata: ["plimsoll.reason": "\(error)"])
        }
        manager.setLimits(settings.cacheLimits)
    }

    public var description: String { "plimsoll" }

    /// The settings in force. While the service runs, a change has an effect for the shutdown's budget, its share for tasks, the drain delay and limits of
    /// caches only.
    public var settings: ServiceSettings {
        get { state.withLock { $0.settings } }
        set {
            state.withLock { $0.settings = newValue }
            manager.setLimits(newValue.cacheLimits)
        }
    }

    /// The last service of a group, so that it hears of a shutdown first: the process is no longer ready, no background task begins, and the budget of the
    /// shutdown (`ServiceSettings.shutdownBudget`) runs. Without a beacon the budget begins with the manager's turn, after all others have ended.
    ///
    /// The beacon is over at once, unless `ServiceSettings.drainDelay` keeps the others serving for a while: until clients have seen that the process isn't
    /// ready.
    public var shutdownBeacon: ShutdownBeacon { ShutdownBeacon(self) }

    /// Runs the manager until the group shuts down or the task is cancelled.
    ///
    /// - Throws: `ResourceManagerError` as `ResourceManager.run()`; `ShutdownOverrun`.
    public func run() async throws {
        let manager = manager, settings = settings, logger = logger
        let log = ManagerLog(logger, rest: settings.logRest)
        let registrations = log.begin(manager)
        let link = makeLink(log)
        state.withLock { $0.link = link }
        link?.begin()
        #if Tracing
        ManagerSpans(InstrumentationSystem.tracer).begin(manager)
        #endif
        let admin = makeAdminEndpoint(log)
        let reports = ReportThread { Self.duties(manager, settings, logger, link) }
        defer {
            reports?.stop()
            admin?.stop()
            for registration in registrations { registration.cancel() }
        }
        do {
            try await withGracefulShutdownHandler {
                try await manager.run(isEnabled: settings.isEnabled)
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

    private static func duties(
        _ manager: ResourceManager, _ settings: ServiceSettings, _ logger: Logger, _ link: ServiceManagerLink?
    ) -> [ReportThread.Duty] {
        var duties: [ReportThread.Duty] = []
        if let link { duties.append(.init(interval: link.interval) { link.look() }) }
        let shed = ShedLog(manager, logger)
        duties.append(.init(interval: ShedLog.interval) { shed.look() })
        if settings.metricsInterval > .zero {
            var reporter = MetricsReporter(manager, settings.metricsFactory ?? MetricsSystem.factory)
            duties.append(.init(interval: settings.metricsInterval) { reporter.report() })
        }
        return duties
    }
}
