import ArgumentParser

/// A Hummingbird server that lives within its limit, and what its middleware costs.
@main
struct WebDemo: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "WebDemo", abstract: "A server whose caches, exports and requests give way when memory is short.",
        subcommands: [ServeCommand.self, BenchCommand.self], defaultSubcommand: ServeCommand.self)
}
