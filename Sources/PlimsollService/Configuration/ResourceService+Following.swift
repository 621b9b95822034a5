public import Configuration
import Logging
import Plimsoll

extension ResourceService {
    /// Follows the settings that may change while the process runs (`ServiceSettings.Key.isLive`), until the task is cancelled: dry run, the shutdown's budget,
    /// its share for tasks and drain delay, limits of caches. For a reader whose provider reloads. A value that isn't allowed is told in the log, once, and the
    /// one before holds.
    ///
    /// - Throws: what the reader's provider throws.
    public func follow(_ reader: ConfigReader) async throws {
        let live = Setting.all.filter(\.isLive), logger = logger
        try await reader.watchSnapshot { updates in
            var told: [String] = []
            for try await snapshot in updates {
                var settings = settings
                settings.policy.isDryRun = manager.isDryRun
                let problems = settings.apply(live, snapshot)
                for problem in problems where !told.contains(problem) {
                    logger.warning("a setting is not followed", metadata: ["plimsoll.reason": "\(problem)"])
                }
                told = problems
                manager.isDryRun = settings.policy.isDryRun
                self.settings = settings
            }
        }
    }
}
