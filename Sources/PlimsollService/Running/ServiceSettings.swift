public import Logging
public import Metrics
public import Plimsoll

/// How a manager lives among the services of a process. What is set here are the defaults; `init(reader:defaults:)` lets a configuration override them.
public struct ServiceSettings: Sendable {
    /// What pressure may do to the process.
    public var policy: PressurePolicy
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
    /// Where to write what was done; `nil` for a logger of label `plimsoll`.
    public var logger: Logger?
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

    /// As the defaults are, with that policy.
    public init(policy: PressurePolicy = .standard) { self.policy = policy }
}
