public import Configuration
import Logging
public import Plimsoll

extension ResourceManager {
    /// A manager configured by `reader`, scoped to this library's keys (`ServiceSettings.keys`).
    ///
    ///     let manager = try ResourceManager(source: LinuxPressureSource(), reader: config.scoped(to: "plimsoll"))
    ///
    /// - Throws: `ConfigurationProblem`; see also `ConfigurationProblem.orExit`.
    public convenience init(source: any PressureSource, reader: ConfigReader, defaults: ServiceSettings = ServiceSettings())
        throws(ConfigurationProblem)
    {
        self.init(source: source, settings: try ServiceSettings(reader: reader, defaults: defaults))
    }

    /// Follows the settings that may change while the process runs (`ServiceSettings.Key.isLive`), until the task is cancelled: dry run, the shutdown's budget,
    /// its share for tasks and drain delay, limits of caches. For a reader whose provider reloads. A value that isn't allowed is said in the log, once, and the one before holds.
    ///
    /// - Throws: what the reader's provider throws.
    public func follow(_ reader: ConfigReader) async throws {
        let live = Setting.all.filter(\.isLive), logger = serviceHost.logger
        try await reader.watchSnapshot { updates in
            var told: [String] = []
            for try await snapshot in updates {
                var settings = serviceSettings
                settings.policy.isDryRun = isDryRun
                let problems = settings.apply(live, snapshot)
                for problem in problems where !told.contains(problem) {
                    logger.warning("a setting is not followed", metadata: ["plimsoll.reason": "\(problem)"])
                }
                told = problems
                isDryRun = settings.policy.isDryRun
                serviceSettings = settings
            }
        }
    }
}
