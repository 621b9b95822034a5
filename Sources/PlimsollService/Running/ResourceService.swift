public import Configuration  // of the trait "Service"
public import Logging  // of the trait "Service"
import Metrics  // of the trait "Service"
public import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
public import ServiceLifecycle  // of the trait "Service"
import Synchronization

#if Tracing
import Tracing
#endif

/// Runs a manager as a service: with a log, instruments, an admin socket, and notifications to the service manager
/// (sd_notify(3)).
///
/// Place the service first in its group. Services are shut down in reverse order, so memory is managed for as long as
/// any other service runs.
///
///     let plimsoll = ResourceService(manager, settings: try ServiceSettings.fromEnvironment(), logger: logger)
///     let group = ServiceGroup(configuration: .init(
///         services: [.init(service: plimsoll), .init(service: server), .init(service: plimsoll.shutdownBeacon)],
///         gracefulShutdownSignals: [.sigterm], logger: logger))
///
/// On a graceful shutdown, background tasks finish or are asked to stop. Tasks that still run are named in the log,
/// and state is saved. `run()` throws `ShutdownOverrun` if other services have not ended when the budget is nearly
/// spent. The group then cancels those services.
public final class ResourceService: Service, CustomStringConvertible {
    private struct State {
        var settings: ServiceSettings
        var link: ServiceManagerLink?
        /// True once the group has shut down this service, or the run has ended.
        var hasTurn = false
        /// True if the budget was spent before `hasTurn` was set.
        var isOverdue = false
        /// True if the run has ended in time.
        var isOver = false
        /// Closures that cancel the scheduled checks of a shutdown.
        var checks: [@Sendable () -> Void] = []
    }

    /// The manager that this service runs.
    public let manager: ResourceManager
    let logger: Logger
    private let state: Mutex<State>

    /// Creates the service of a manager, and joins a life cycle to the manager. The manager adopts the configured policy values and cache limits of
    /// `settings`.
    ///
    /// - Parameters:
    ///   - manager: a manager that has not run yet if `settings` change the policy.
    ///   - settings: defaults, or values of the environment or a configuration.
    ///   - logger: target of log messages; `nil` for a logger with the label `plimsoll`.
    public init(_ manager: ResourceManager, settings: ServiceSettings = ServiceSettings(), logger: Logger? = nil) {
        self.manager = manager
        // From the start, so that readiness and the admin socket tell the launch.
        _ = Lifecycle(manager)
        _ = MetricCatalogue.startTime
        self.logger = logger ?? Logger(label: "plimsoll")
        state = Mutex(State(settings: settings))
        for warning in settings.found {
            let (message, names) = warning.entry
            self.logger.warning(
                "\(message)", metadata: ["plimsoll.variables": "\(names)", "plimsoll.reason": "\(warning)"])
        }
        do throws(ConfigurationProblem) {
            let made = manager.policy, configured = try settings.policy(over: made)
            if configured != made { manager.adopt(configured) }
        } catch {
            self.logger.error(
                "ignored the settings of the policy: they do not fit the manager's policy, which stays unchanged",
                metadata: ["plimsoll.reason": "\(error)"])
        }
        manager.setLimits(settings.cacheLimits)
    }

    public var description: String { "plimsoll" }

    /// The current settings. While the service runs, changes take effect only for the shutdown budget, the budget
    /// share for tasks, the drain delay and the limits of caches.
    public var settings: ServiceSettings {
        get { state.withLock { $0.settings } }
        set {
            state.withLock { $0.settings = newValue }
            manager.setLimits(newValue.cacheLimits)
        }
    }

    /// A service to place last in the group, so that the beacon sees a shutdown first. The beacon marks the process
    /// as not ready, blocks new background tasks and starts the shutdown budget (`ServiceSettings.shutdownBudget`).
    /// Without a beacon, the budget starts only after all other services have ended.
    ///
    /// The beacon ends at once unless `ServiceSettings.drainDelay` is set. The other services then keep serving until
    /// clients have seen that the process is not ready.
    public var shutdownBeacon: ShutdownBeacon { ShutdownBeacon(self) }

    /// Runs the manager until the group shuts down or the task is cancelled.
    ///
    /// - Throws: `ResourceManagerError` as `ResourceManager.run()`; `ShutdownOverrun`.
    public func run() async throws {
        let manager = manager, settings = settings, logger = logger
        let log = ManagerLog(logger, rest: settings.logRest)
        keepBlackBox(log)
        var registrations = log.begin(manager)
        if settings.countsHeapAtCritical { registrations.append(CriticalCensus(manager, log).begin()) }
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
            cancelChecks()
            throw error
        }
        let isOverdue = state.withLock { state in
            state.hasTurn = true
            return state.isOverdue
        }
        log.ended(manager.shutdownReport)
        if isOverdue, !Task.isCancelled {
            throw ShutdownOverrun(manager.shutdownReport?.budget ?? settings.shutdownBudget)
        }
        cancelChecks()
    }

    /// Begins the shutdown. Called by the beacon and by `run()`; the first call wins.
    func beginShutdown() {
        let (settings, link) = state.withLock { ($0.settings, $0.link) }
        let budget = settings.shutdownBudget
        guard manager.beginShutdown(within: budget, taskShare: settings.shutdownTaskShare) else { return }
        link?.stopping(within: budget)
        logger.info(
            "started to shut down",
            metadata: [
                "plimsoll.budget": "\(budget)", "plimsoll.task_share": "\(settings.shutdownTaskShare)",
                "plimsoll.tasks": "\(manager.tasksStatus.running)",
            ])
        // A budget of zero sets no bound: services end when they end.
        guard budget > .zero else { return }
        // The scheduled checks retain the manager until they are cancelled, at the latest until the end of the
        // budget. Tasks are given up when the reserve begins. Services have half of the reserve to react.
        let manager = manager
        let checks = [
            manager.call(after: budget - ResourceManager.shutdownReserve(of: budget) / 2) { [self] in
                endWithoutTurn(manager)
            },
            manager.call(after: budget) { [self] in ManagerLog(logger, rest: .zero).outlived(budget, manager) },
        ]
        let isOver = state.withLock { state in
            state.checks = checks
            return state.isOver
        }
        if isOver { cancelChecks() }
    }

    /// Ends the run if services keep the manager from its turn. By now tasks are cancelled, and code that awaits
    /// tasks should have ended. The error makes the group cancel the other services.
    private func endWithoutTurn(_ manager: ResourceManager) {
        let isOverdue = state.withLock { state in
            if !state.hasTurn { state.isOverdue = true }
            return state.isOverdue
        }
        guard isOverdue else { return }
        ManagerLog(logger, rest: .zero).overdue(settings.shutdownBudget, manager)
        manager.stop()
    }

    private func cancelChecks() {
        let checks = state.withLock { state in
            state.isOver = true
            return exchange(&state.checks, [])
        }
        for cancel in checks { cancel() }
    }

    private func makeLink(_ log: ManagerLog) -> ServiceManagerLink? {
        guard settings.notifiesServiceManager else { return nil }
        do throws(ServiceManagerError) {
            return try ServiceManager().map { ServiceManagerLink(manager, $0) { log.cannotNotify($0) } }
        } catch {
            log.cannotNotify(error)
            return nil
        }
    }

    private func keepBlackBox(_ log: ManagerLog) {
        guard let path = settings.blackBox else { return }
        do {
            if let end = try manager.keepBlackBox(at: path) { log.foundEnd(end, path) }
        } catch {
            log.keepsNoBlackBox(error)
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
            log.opensNoAdminSocket(error)
            return nil
        }
    }

    /// Returns the path of the admin socket. Returns `nil` if the socket is off, or if the environment names no
    /// directory, which is then logged.
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
        if let link { duties.append(.init(interval: link.interval) { link.poll() }) }
        let shed = ShedLog(manager, logger)
        duties.append(.init(interval: ShedLog.interval) { shed.poll() })
        if settings.metricsInterval > .zero {
            var reporter = MetricsReporter(manager, settings.metricsFactory ?? MetricsSystem.factory)
            duties.append(.init(interval: settings.metricsInterval) { reporter.report() })
        }
        return duties
    }
}

extension AdminPages {
    /// Creates pages about the manager of a service. Also serves the hosts of the service's settings
    /// (`ServiceSettings.adminHosts`).
    public init(
        _ service: ResourceService, title: String = "Plimsoll", allowsChanges: Bool = false,
        isUnreadyWhenQuiescing: Bool = false, hosts: [String] = []
    ) {
        self.init(
            service.manager, title: title, allowsChanges: allowsChanges,
            isUnreadyWhenQuiescing: isUnreadyWhenQuiescing, hosts: hosts)
        settingHosts = { service.settings.adminHosts }
    }
}

extension ResourceService {
    /// Follows the live settings (docs/operations/configuration.md) until the task is cancelled: dry run, budget of a
    /// shutdown, share of the budget for tasks, drain delay, limits of caches. For a reader with a provider that
    /// reloads.
    ///
    /// A value that is not allowed is logged once, and the previous value stays in force.
    ///
    /// - Throws: Errors of the reader's provider.
    public func follow(_ reader: ConfigReader) async throws {
        let live = Setting.all.filter(\.isLive), logger = logger
        try await reader.watchSnapshot { updates in
            var reported: [String] = []
            for try await snapshot in updates {
                var settings = settings
                settings.policy.isDryRun = manager.isDryRun
                let problems = settings.apply(live, snapshot)
                for problem in problems where !reported.contains(problem) {
                    logger.warning("ignored a setting", metadata: ["plimsoll.reason": "\(problem)"])
                }
                reported = problems
                manager.isDryRun = settings.policy.isDryRun
                self.settings = settings
            }
        }
    }
}

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

/// A shutdown whose budget was spent before the other services of the group had ended.
public struct ShutdownOverrun: Error, Sendable, Hashable, CustomStringConvertible {
    /// Time from the start of the shutdown to the end.
    public var budget: Duration
    /// The failure, the reason and the remedy.
    public var description: String {
        "cannot end the group in good order within shutdown.budget (\(budget)) because a service had not ended by then; its services are cancelled now. "
            + "Have services end when they are shut down, or raise shutdown.budget (PLIMSOLL_SHUTDOWN_BUDGET)"
    }

    init(_ budget: Duration) { self.budget = budget }
}
