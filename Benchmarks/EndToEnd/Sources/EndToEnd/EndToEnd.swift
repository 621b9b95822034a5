import ArgumentParser

/// One Hummingbird service with and without the library, under the same open-loop load and a real memory limit.
@main
struct EndToEnd: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "e2e-bench", abstract: "Goodput of one service with and without Plimsoll under a memory limit.",
        subcommands: [ServeCommand.self, LoadCommand.self, CompareCommand.self, ReportCommand.self, CostCommand.self])
}
