public import Configuration  // of the trait "Service"
import FoundationEssentials
import Plimsoll

extension ServiceSettings {
    /// Creates settings from `defaults` and the values that `reader` finds for the keys of
    /// docs/operations/configuration.md.
    ///
    ///     let settings = try ServiceSettings(reader: config.scoped(to: "plimsoll"))
    ///
    /// - Throws: `ConfigurationProblem` with all problems, not only the first.
    public init(reader: ConfigReader, defaults: ServiceSettings = ServiceSettings()) throws(ConfigurationProblem) {
        self = defaults
        let problems = apply(Setting.all, reader.snapshot())
        if !problems.isEmpty { throw ConfigurationProblem(problems) }
    }

    /// Applies the values of `snapshot` for `settings`. A value that is not allowed leaves the setting unchanged.
    ///
    /// - Returns: The problems, each with the key, the value and the allowed values.
    mutating func apply(_ settings: [Setting], _ snapshot: ConfigSnapshotReader) -> [String] {
        let before = self
        var problems: [String] = []
        for setting in settings {
            var former: String?
            var text = Self.text(snapshot, setting.key)
            if text == nil, let name = Setting.formerKeys[setting.key] {
                (former, text) = (name, Self.text(snapshot, name))
            }
            guard let text else { continue }
            if let former { warn(.formerName(key: setting.key, former: former)) }
            var changed = self
            do throws(Setting.Refusal) {
                try setting.apply(text, &changed)
                changed.configured[setting.key] = text
                self = changed
            } catch {
                problems.append(
                    "\(setting.key) (\(setting.variable)) is \"\(printable(text, atMost: 120))\"; allowed is \(error.allowed)"
                )
            }
        }
        if let problem = policy.thresholds.problem { problems.append("warning.*, critical.*, stall.*: \(problem)") }
        if drainDelay > shutdownBudget {
            problems.append(
                "shutdown.drainDelay is \(drainDelay), more than shutdown.budget, which includes the delay: \(shutdownBudget)"
            )
            (drainDelay, shutdownBudget) = (before.drainDelay, before.shutdownBudget)
        }
        return problems
    }

    /// Returns `defaults` with the values of the process's environment applied, such as
    /// `PLIMSOLL_SHUTDOWN_BUDGET=40s`.
    ///
    /// An unknown variable `PLIMSOLL_…` leads to a warning (`warnings`), which `ResourceService` logs. The variable may
    /// belong to a later version that was rolled back, or to Kubernetes, which sets variables for a service of that name.
    ///
    /// - Parameters:
    ///   - defaults: values of the settings that the environment does not set.
    ///   - strict: true to refuse unknown variables, as `isStrict` and `PLIMSOLL_STRICT=true` do.
    /// - Throws: `ConfigurationProblem` for a value that is not allowed, and for an unknown variable if strict.
    public static func fromEnvironment(defaults: ServiceSettings = ServiceSettings(), strict: Bool = false)
        throws(ConfigurationProblem) -> ServiceSettings
    {
        try ServiceSettings(
            environment: ProcessInfo.processInfo.environment, defaults: defaults, strict: strict)
    }

    /// Creates settings from `defaults` and the given environment variables, as `fromEnvironment` does.
    public init(
        environment: [String: String], defaults: ServiceSettings = ServiceSettings(), strict: Bool = false
    ) throws(ConfigurationProblem) {
        var start = defaults
        if strict { start.isStrict = true }
        // An empty variable counts as not set.
        let set = environment.filter { $0.key.hasPrefix("PLIMSOLL_") && !$0.value.isEmpty }
        let reader = ConfigReader(provider: EnvironmentVariablesProvider(environmentVariables: set)).scoped(
            to: "plimsoll")
        self = start
        var problems = apply(Setting.all, reader.snapshot())
        let others = environment.keys.filter { $0.hasPrefix("PLIMSOLL_") && !Self.knownVariables.contains($0) }.sorted()
        let links = others.filter(Self.isServiceLink), unknown = others.filter { !Self.isServiceLink($0) }
        let warnings = unknown.map { ConfigurationWarning.unknown(variable: $0, nearest: Self.nearest($0)) }
        if isStrict { problems = warnings.map(\.description) + problems }
        for warning in warnings where !isStrict { warn(warning) }
        // Kubernetes makes these names, so none of them is a mistyped setting.
        if !links.isEmpty { warn(.serviceLinks(links)) }
        if !problems.isEmpty { throw ConfigurationProblem(problems) }
    }

    /// Returns true for a name that Kubernetes gives to a variable about a service: of the service `plimsoll`, or of
    /// one whose name begins with `plimsoll-`.
    static func isServiceLink(_ name: String) -> Bool {
        name.wholeMatch(
            of: /PLIMSOLL_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)/)
            != nil
    }

    /// All keys that can be configured, within the scope `plimsoll`.
    package static var keys: [Key] {
        Setting.all.map {
            Key(
                name: $0.key, variable: $0.variable, type: $0.type, standard: $0.standard, range: $0.range,
                meaning: $0.meaning, isLive: $0.isLive)
        }
    }

    package struct Key: Sendable, Hashable {
        /// Name within the scope `plimsoll`; parts are joined by dots.
        package var name: String
        /// The corresponding environment variable.
        package var variable: String
        /// Type of the value: `boolean`, `duration` (`500ms`, `25s`, `2m`, `1h`), `size` (`512MiB`), `share`,
        /// `number`, or words.
        package var type: String
        /// The default value.
        package var standard: String
        /// The allowed values.
        package var range: String
        package var meaning: String
        /// True if the setting is followed while the process runs (`ResourceService.follow(_:)`).
        package var isLive: Bool
    }

    /// Other variables that this package reads.
    private static let otherVariables = [
        "PLIMSOLL_SIMULATE", "PLIMSOLL_SUPERVISOR", "PLIMSOLL_SOCKET", "PLIMSOLL_SEED", "PLIMSOLL_RUNS",
    ]
    private static let knownVariables = Set(
        Setting.all.map(\.variable) + Setting.formerKeys.values.map { Setting.variable($0) } + otherVariables)

    /// Returns the value of a key as text, for any type of the provider; `nil` if there is no value. The parts of a
    /// list are separated by commas.
    static func text(_ snapshot: ConfigSnapshotReader, _ key: String) -> String? {
        let key = ConfigKey(key)
        if let text = try? snapshot.requiredString(forKey: key) { return text }
        if let number = try? snapshot.requiredInt(forKey: key) { return "\(number)" }
        if let number = try? snapshot.requiredDouble(forKey: key) { return "\(number)" }
        if let parts = try? snapshot.requiredStringArray(forKey: key) {
            return parts.isEmpty ? "none" : parts.joined(separator: ", ")
        }
        return (try? snapshot.requiredBool(forKey: key)).map { "\($0)" }
    }

    /// Returns the known variable most similar to `name`, or `nil` if none is close.
    private static func nearest(_ name: String) -> String? {
        let typed = Array(name.utf8.prefix(80))
        let best = (Setting.all.map(\.variable) + otherVariables).map {
            (distance: editDistance(typed, Array($0.utf8)), name: $0)
        }
        .min { ($0.distance, $0.name) < ($1.distance, $1.name) }
        return best.flatMap { $0.distance <= max(2, name.utf8.count / 4) ? $0.name : nil }
    }
}
