import ArgumentParser

/// The benchmarks of `PurgeableCache`.
@main
struct CacheBench: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cache-bench",
        abstract: "PurgeableCache beside its peers, and its hit ratios beside the best possible.",
        subcommands: [
            PeersCommand.self, HitRatioCommand.self, ReportCommand.self, RaceCommand.self, FootprintCommand.self,
            IdleThreadsCommand.self,
            PurgeStallCommand.self,
        ])

    /// Prints a measured row for the record: `figure NAME VALUE UNIT`.
    static func figure(_ name: String, _ value: Double, _ unit: String) {
        Output.line("figure \(name) \(Text.number(value, decimals: 3)) \(unit)")
    }
}

extension Duration {
    /// The duration in seconds. The library's own conversion is not public.
    var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) / 1e18 }
}
