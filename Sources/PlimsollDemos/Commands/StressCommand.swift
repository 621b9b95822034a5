import ArgumentParser
import Plimsoll

/// Puts processes under memory stress in groups of their own and counts the survivors.
struct StressCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stress",
        abstract: "Count who survives bursts of memory under a real limit, without and with Plimsoll.",
        discussion: """
            Scenarios: \(Scenario.allCases.map(\.rawValue).joined(separator: ", ")). Protections: none, reactive (a cache on the heap and a \
            manager), volatile (a cache in volatile memory and no manager).
            Each run is a process of its own in a group of its own; the verdict is its exit status and the kernel's count of kills.
            """)

    @Option(help: "Runs of each.") var runs = 6
    @Option(help: "Scenarios, separated by commas; all by default.") var scenario: String?
    @Option(help: "Protections, separated by commas.") var protection = "none,reactive,volatile"
    @Option(help: "Limit of each group.") var limit = ByteCount.mebibytes(512)
    @Option(help: "Runs side by side.") var parallel = 1
    @Option(help: "Seed of bursts and traffic; each run has its own.") var seed: UInt64 = 1
    @Option(help: "Where page-cache may write a file; a directory on a disk.", completion: .directory) var directory =
        "."
    @Flag(help: "Let the groups swap; else swap can't hide what a limit does.") var swap = false
    @Flag(help: "A JSON line a summary instead of the table.") var json = false

    func validate() throws {
        try Allowed.count(runs, "--runs", in: 1...1000)
        try Allowed.count(parallel, "--parallel", in: 1...4)
        try Allowed.size(limit, "--limit", in: .mebibytes(64) ... .gibibytes(1))
        _ = try (scenarios, protections)
    }

    private var scenarios: [Scenario] {
        get throws { try scenario.map { try Allowed.list($0, "--scenario") } ?? Scenario.allCases }
    }
    private var protections: [Protection] { get throws { try Allowed.list(protection, "--protection") } }

    func run() throws {
        let harness = StressHarness(
            scenarios: try scenarios, protections: try protections, runs: runs, limit: limit, parallel: parallel,
            seed: seed,
            directory: directory, allowsSwap: swap)
        let summaries = try reportingFailure {
            do {
                return try harness.run { Output.error($0) }
            } catch let refusal as GroupMaker.Refusal {
                throw Failure.unavailable("\(refusal)\nWhat to do: \(GroupMaker.Refusal.remedy).")
            }
        }
        if json {
            for summary in summaries { Output.line(JSONLine.encode(summary.record)) }
        } else {
            Output.line(Text.table(StressSummary.header, summaries.map(\.row)))
            for figure in summaries.flatMap(\.figures) { Output.line(figure) }
        }
        // A run that proves nothing is a fault of the harness or of the host, not a result.
        if summaries.contains(where: { !$0.invalid.isEmpty }) { throw ExitCode.failure }
    }
}
