import CPlimsollProcess
public import Metrics  // of the trait "Service"
public import Plimsoll

/// Settings of a `ResourceService`. Values set here are defaults. `init(reader:defaults:)` and
/// `fromEnvironment(defaults:)` let a configuration override the defaults.
///
/// The policy belongs to the manager: configured policy keys change the policy when the service is created.
public struct ServiceSettings: Sendable {
    /// A policy with the keys applied, to check that the values are consistent.
    var policy = PressurePolicy.standard
    /// The values that a configuration has set, by key.
    var configured: [String: String] = [:]
    /// Findings in a configuration besides valid values, in order.
    private(set) var found: [ConfigurationWarning] = []
    /// The warnings about the configuration that these settings come from, as sentences: unknown variables, service
    /// links of Kubernetes, former names. `ResourceService` logs the same.
    public var warnings: [String] { found.map(\.description) }
    /// True if an unknown variable `PLIMSOLL_…` stops the start instead of leading to a warning.
    public var isStrict = false
    /// True if the manager monitors memory and acts; see `ResourceManager.run()`.
    public var isEnabled = true
    /// Time from the start of a shutdown to the end, in any order in which services wait for each other.
    ///
    /// First services drain and background tasks finish. After `shutdownTaskShare` of the budget, remaining tasks are
    /// asked to stop. A tenth before the end, at most 2 s, tasks that still run are given up and named in the log.
    /// Half of that time later, the other services are cancelled.
    ///
    /// Keep the budget below the timeout of the service manager (`TimeoutStopSec=`, 90 s;
    /// `terminationGracePeriodSeconds`, 30). With zero, tasks are given up at once, and services are not cancelled.
    public var shutdownBudget = Duration.seconds(25)
    /// Share of the budget in which background tasks may finish before they are asked to stop. Clamped to 0...0.8.
    public var shutdownTaskShare = 0.5
    /// Time for which the other services continue after the process has reported not ready. Part of the budget.
    public var drainDelay = Duration.zero
    /// Limits of caches by name, for caches whose code does not know the size of the machine. Also applied to caches
    /// that are registered later.
    public var cacheLimits: [String: ByteCount] = [:]
    /// Minimum interval between two warnings of one kind in the log. The next warning states the number of suppressed
    /// warnings.
    public var logRest = Duration.seconds(60)
    /// Factory of the instruments; `nil` for the factory that the process has bootstrapped.
    public var metricsFactory: (any MetricsFactory)?
    /// Interval between updates of the instruments; zero for never.
    public var metricsInterval = Duration.seconds(5)
    /// Place of the admin socket (`AdminEndpoint`).
    public var adminSocket = AdminSocket.automatic
    /// File of the black box (`ResourceManager.keepBlackBox(at:)`); `nil` for none. Initially `plimsoll.box` in the first
    /// directory of `$RUNTIME_DIRECTORY`; `nil` if systemd or the image does not set that. If the file cannot be used, the
    /// failure is logged and the service continues without a black box.
    public var blackBox: String? = Self.standardBlackBox()
    /// True to count the heap by type (`HeapCensus`) when memory becomes critical, at most every ten minutes and with 8
    /// MiB free below the limit, and to log the largest types. The census takes about a second of a processor for a GiB
    /// of small objects.
    public var countsHeapAtCritical = false
    /// True if operators may purge, simulate pressure and set limits over the admin socket.
    public var adminAllowsChanges = false
    /// Host names for which the pages of `AdminPages` are served, besides addresses and `localhost`.
    public var adminHosts: [String] = []
    /// True to notify the service manager, if there is one (`$NOTIFY_SOCKET`).
    public var notifiesServiceManager = true

    /// The place of the admin socket.
    public enum AdminSocket: Sendable, Hashable {
        /// No admin socket.
        case off
        /// At `AdminPath.standard`, if the environment names a directory for it.
        case automatic
        /// At that path. If the socket cannot be opened, the failure is logged and the service continues without a
        /// socket.
        case path(String)
    }

    /// Creates the default settings.
    public init() {}

    /// Returns the initial value of `blackBox`.
    static func standardBlackBox(
        environment: (String) -> String? = { plimsoll_environment($0).map { String(cString: $0) } }
    ) -> String? {
        // systemd.exec(5): colons separate several directories. Not $STATE_DIRECTORY, which is on a disk.
        guard let directory = environment("RUNTIME_DIRECTORY")?.split(separator: ":").first, directory.hasPrefix("/")
        else { return nil }
        return (directory.hasSuffix("/") ? directory.dropLast() : directory) + "/plimsoll.box"
    }

    /// Adds a warning, unless the same one was added before.
    mutating func warn(_ warning: ConfigurationWarning) { if !found.contains(warning) { found.append(warning) } }

    /// Returns `policy` with the changes of the configuration applied.
    ///
    /// - Throws: `ConfigurationProblem` if the changes are inconsistent with the rest of `policy`.
    func policy(over policy: PressurePolicy) throws(ConfigurationProblem) -> PressurePolicy {
        var settings = ServiceSettings()
        settings.policy = policy
        // A value that was accepted before is accepted again. In the order of `Setting.all`, as `terminate.grace` holds
        // for the end that `terminate.after` sets, and the two may come from different configurations.
        for setting in Setting.all {
            if let text = configured[setting.key] { try? setting.apply(text, &settings) }
        }
        if let problem = settings.policy.thresholds.problem {
            throw ConfigurationProblem(["warning.*, critical.*, stall.*: \(problem)"])
        }
        return settings.policy
    }
}

/// A part of a configuration that is not followed, or not under that name for much longer. The rest is followed.
enum ConfigurationWarning: Sendable, Hashable, CustomStringConvertible {
    /// A variable `PLIMSOLL_…` that is not a setting, and the known variable most similar to it.
    case unknown(variable: String, nearest: String?)
    /// Variables that Kubernetes sets for a service whose name begins with `plimsoll`.
    case serviceLinks([String])
    /// A key under a former name.
    case formerName(key: String, former: String)

    var description: String {
        switch self {
        case .unknown(let name, let nearest):
            "\(printable(name, atMost: 120)) is not a setting" + (nearest.map { "; did you mean \($0)?" } ?? "")
        case .serviceLinks(let names):
            "\(Self.list(names)) are service links of Kubernetes and no settings; set enableServiceLinks: false in the pod, or rename the Service"
        case .formerName(let key, let former):
            "\(former) (\(Setting.variable(former))) is the former name of \(key) (\(Setting.variable(key))); take the new one, as the next version refuses the former"
        }
    }

    /// The message and the names for the log.
    var entry: (message: String, names: String) {
        switch self {
        case .unknown(let name, _): ("ignored an unknown variable", printable(name, atMost: 120))
        case .serviceLinks(let names): ("ignored service links of Kubernetes", Self.list(names))
        case .formerName(_, let former): ("took a setting under its former name", former)
        }
    }

    private static func list(_ names: [String]) -> String {
        names.prefix(8).map { printable($0, atMost: 120) }.joined(separator: ", ")
            + (names.count > 8 ? " and \(names.count - 8) more" : "")
    }
}

/// A configuration that cannot be used, with all of the problems found.
public struct ConfigurationProblem: Error, Sendable, Hashable, CustomStringConvertible {
    /// The problems, each with the key, the value and the allowed values.
    public var problems: [String]

    /// The exit status of a process that cannot start because of its configuration (`EX_CONFIG` of sysexits.h).
    public static let exitStatus: Int32 = 78

    init(_ problems: [String]) { self.problems = problems }

    public var description: String { problems.joined(separator: "\n") }

    /// Returns the result of `body`. On any error, prints the reason on standard error and exits with status 78.
    ///
    ///     let settings = ConfigurationProblem.orExit { try ServiceSettings.fromEnvironment() }
    // The closure may throw any error type. Swift 6.3 infers `any Error` for a closure, even if the closure throws
    // only `ConfigurationProblem`.
    public static func orExit<Result>(_ body: () throws -> Result) -> Result {
        do { return try body() } catch {
            let problems = (error as? ConfigurationProblem)?.problems ?? ["cannot read the configuration: \(error)"]
            let text = problems.map { "plimsoll: \($0)\n" }.joined()
            plimsoll_exit(exitStatus, text, text.utf8.count)
        }
    }
}
