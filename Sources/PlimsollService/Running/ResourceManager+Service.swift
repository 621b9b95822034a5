public import Plimsoll
public import ServiceLifecycle

/// A manager is a service: first in its group, as services are shut down in reverse order, so that it looks after memory for as long as any other runs.
///
///     let group = ServiceGroup(configuration: .init(
///         services: [.init(service: manager), .init(service: server), .init(service: manager.shutdownBeacon)],
///         gracefulShutdownSignals: [.sigterm], logger: logger))
///
/// Run in a group it ends gracefully: background tasks come to their own end or are asked to stop, those that don't are
/// named in the log, state is saved. It throws `ShutdownOverrun` if other services have not ended when the budget is all
/// but spent, so that the group cancels them.
extension ResourceManager: Service {}

extension ResourceManager: HostedManager {
    package func makeHost() -> any ManagerHost { ServiceHost(self) }
}

extension ResourceManager {
    /// The last service of a group, so that it hears of a shutdown first: the process is no longer ready, no background
    /// task begins, and the budget of the shutdown (`ServiceSettings.shutdownBudget`) runs. Without a beacon the budget
    /// begins with the manager's turn, after all others have ended.
    ///
    /// The beacon is over at once, unless `ServiceSettings.drainDelay` keeps the others serving for a while: until those
    /// who send requests have seen that the process isn't ready.
    public var shutdownBeacon: ShutdownBeacon { ShutdownBeacon(self) }

    /// What surrounds the manager as a service. Set it before the manager runs: of later changes only those of
    /// `shutdownBudget`, `shutdownTaskShare`, `drainDelay` and `cacheLimits` are seen; `isDryRun` is the manager's own. A
    /// manager keeps the policy it was made with, whatever `policy` says here.
    public var serviceSettings: ServiceSettings {
        get { serviceHost.settings }
        set {
            serviceHost.settings = newValue
            setLimits(newValue.cacheLimits)
        }
    }

    /// A manager as `settings` have it.
    public convenience init(source: any PressureSource, settings: ServiceSettings) {
        self.init(source: source, policy: settings.policy)
        serviceSettings = settings
    }

    var serviceHost: ServiceHost {
        guard let host = host as? ServiceHost else {
            preconditionFailure("a ResourceManager made with isHosted: false has no service settings; make it without, or by its settings")
        }
        return host
    }

    /// The names that `serviceSettings` allow for the pages; none of a manager without.
    var adminHosts: [String] { (host as? ServiceHost)?.settings.adminHosts ?? [] }
}
