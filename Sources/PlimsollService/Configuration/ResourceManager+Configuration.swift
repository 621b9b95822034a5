public import Configuration
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

    /// Follows the settings that may change while the process runs (`ServiceSettings.Key.isLive`), until the task is cancelled: `dryRun`. For a reader whose
    /// provider reloads. A value that isn't allowed is passed over, and the one before holds.
    ///
    /// - Throws: what the reader's provider throws.
    public func follow(_ reader: ConfigReader) async throws {
        try await reader.watchSnapshot { updates in
            for try await snapshot in updates {
                let text = try? snapshot.requiredString(forKey: "dryRun")
                if let value = text.flatMap({ Bool(plimsoll: $0) }) ?? (try? snapshot.requiredBool(forKey: "dryRun")) { self.isDryRun = value }
            }
        }
    }
}
