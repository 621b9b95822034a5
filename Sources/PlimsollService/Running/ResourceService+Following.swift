public import Configuration
import Logging
import Plimsoll

extension ResourceService {
    /// Follows the live settings (`ServiceSettings.Key.isLive`) until the task is cancelled: dry run, budget of a
    /// shutdown, share of the budget for tasks, drain delay, limits of caches. For a reader with a provider that
    /// reloads.
    ///
    /// A value that is not allowed is logged once, and the previous value stays in force.
    ///
    /// - Throws: Errors of the reader's provider.
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
