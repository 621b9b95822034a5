public import Metrics
public import Plimsoll

/// Settings of a `ResourceService`. Values set here are defaults; `init(reader:defaults:)` and `fromEnvironment(defaults:)` let a configuration override them.
///
/// The policy is the manager's own: keys of a configuration that concern the policy change it when the service is made.
public struct ServiceSettings: Sendable {
    /// What the keys were applied to, for finding out whether their values make sense together.
    var policy = PressurePolicy.standard
    /// The keys that a configuration has set, and their values, in that order.
    var configured: [(setting: Setting, text: String)] = []
    /// Whether the manager looks and acts at all; see `ResourceManager.run()`.
    public var isEnabled = true
    /// From the first word of a shutdown to its end, whichever service waits for which.
    ///
    /// Services drain, and background tasks come to their own end; tasks that go on are asked to stop after
    /// `shutdownTaskShare` of the budget. A tenth before its end, at most 2 s, those that still run are given up and named
    /// in the log; half of that later the other services are cancelled. Keep the budget below what the service manager
    /// gives (`TimeoutStopSec=`, 90 s; `terminationGracePeriodSeconds`, 30). With zero tasks are given up at once, and
    /// services are not cancelled.
    public var shutdownBudget = Duration.seconds(25)
    /// The share of the budget in which background tasks may come to their own end before they are asked to stop. What
    /// lies outside of 0 to 0.8 counts as the nearer of these.
    public var shutdownTaskShare = 0.5
    /// How long the other services go on after the process has said that it isn't ready; part of the budget.
    public var drainDelay = Duration.zero
    /// Limits of caches by name, for those whose code doesn't know how large the machine is; of one that is registered later, too.
    public var cacheLimits: [String: ByteCount] = [:]
    /// Each kind of warning is logged at most once in this time; how many were left out is said with the next.
    public var logRest = Duration.seconds(60)
    /// What makes the instruments; `nil` for the one the process has bootstrapped.
    public var metricsFactory: (any MetricsFactory)?
    /// How often instruments are brought up to date; zero for never.
    public var metricsInterval = Duration.seconds(5)
    /// Where operators ask (`AdminEndpoint`).
    public var adminSocket = AdminSocket.automatic
    /// Whether they may purge, rehearse and set limits there.
    public var adminAllowsChanges = false
    /// Names of hosts by which the pages of `AdminPages` may be asked for, besides addresses and `localhost`.
    public var adminHosts: [String] = []
    /// Whether the service manager is told, if there is one (`$NOTIFY_SOCKET`).
    public var notifiesServiceManager = true

    /// Where the admin socket is.
    public enum AdminSocket: Sendable, Hashable {
        /// There is none.
        case off
        /// At `AdminPath.standard`, if the environment names a directory for it.
        case automatic
        /// At that path; that it can't be there is logged, and the service goes on without.
        case path(String)
    }

    /// The defaults.
    public init() {}

    /// Returns `policy` with the changes that a configuration asks for.
    ///
    /// - Throws: `ConfigurationProblem` if they make no sense together with the rest of `policy`.
    func policy(over policy: PressurePolicy) throws(ConfigurationProblem) -> PressurePolicy {
        var settings = ServiceSettings()
        settings.policy = policy
        // A value that was taken before is taken again.
        for (setting, text) in configured { try? setting.apply(text, &settings) }
        if let problem = settings.policy.thresholds.problem { throw ConfigurationProblem(["warning.*, critical.*, stall.*: \(problem)"]) }
        return settings.policy
    }
}
