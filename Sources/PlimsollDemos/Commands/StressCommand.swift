import ArgumentParser
import Glibc
import Plimsoll
import PlimsollLinux

/// Puts processes under memory stress in groups of their own and counts the survivors.
struct StressCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stress",
        abstract: "Count processes that survive bursts of memory under a real limit, without and with Plimsoll.",
        discussion: """
            Scenarios: \(Scenario.allCases.map(\.rawValue).joined(separator: ", ")). Protections: none, reactive (a cache on the heap and a \
            manager), volatile (a cache in volatile memory and no manager).
            Each run is a process of its own in a group of its own; the verdict is its exit status and the kernel's count of kills.
            """)

    @Option(help: "Runs of each scenario and protection.") var runs = 6
    @Option(help: "Scenarios, separated by commas; all by default.") var scenario: String?
    @Option(help: "Protections, separated by commas.") var protection = "none,reactive,volatile"
    @Option(help: "Limit of each group.") var limit = ByteCount.mebibytes(512)
    @Option(help: "Number of concurrent runs.") var parallel = 1
    @Option(help: "Seed of bursts and traffic; each run has its own.") var seed: UInt64 = 1
    @Option(help: "Directory on a disk for the file of page-cache.", completion: .directory) var directory =
        "."
    @Flag(help: "Let the groups swap; by default swap cannot hide the effect of the limit.") var swap = false
    @Flag(help: "Print a JSON line per summary instead of the table.") var json = false

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

/// Enters groups, then executes another program. The program's memory is charged to those groups from the start.
struct EnterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_enter", abstract: "Part of `run`.", shouldDisplay: false)

    @Option(help: "Directory of a group to enter.") var group: [String] = []
    @Option(help: "Program to execute; searched for in PATH unless the name has a slash.") var path: String
    @Argument(parsing: .postTerminator, help: "Arguments of the program, its name first.") var arguments: [String] = []

    /// A shell's two exit statuses: the command cannot be run (126), the command does not exist (127).
    private static let cannotRun = ExitCode(126), notFound = ExitCode(127)

    func run() throws {
        for directory in group {
            do {
                // 0 means the writing process.
                try ControlFile.write("0", to: directory + "/cgroup.procs")
            } catch {
                Output.problem("cannot enter \(error)")
                throw ExitCode(69)
            }
        }
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
        argv.append(nil)
        execvp(path, argv)
        let reason = errno
        Output.problem("cannot execute \(printable(path)): \(String(cString: strerror(reason)))")
        throw reason == ENOENT ? Self.notFound : Self.cannotRun
    }
}

/// One run of the stress harness, in a separate process.
struct SubjectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_subject", abstract: "Part of `stress`.", shouldDisplay: false)

    @Option var scenario: String
    @Option var protection: String
    @Option var limit: ByteCount
    @Option var seed: UInt64
    @Option var directory: String

    func run() async throws {
        guard let scenario = Scenario(rawValue: scenario), let protection = Protection(rawValue: protection) else {
            throw ValidationError("unknown scenario or protection")
        }
        let subject = try reportingFailure {
            try Subject(scenario, protection, limit: limit, seed: seed, directory: directory)
        }
        switch protection {
        case .none, .volatile:
            let (began, crossed) = try await endure(subject)
            Output.line(JSONLine.encode(subject.result([], began: began, crossed: crossed)))
        case .reactive:
            let manager = ResourceManager(
                source: LinuxPressureSource(), time: SteadyClock.timekeeper, onTurn: { subject.noteTurn($1) })
            manager.register(subject.cache.purgeable)
            async let _: Void = manager.run()
            let (began, crossed) = try await endure(subject)
            Output.line(JSONLine.encode(subject.result(manager.reports, began: began, crossed: crossed)))
        }
    }

    private func endure(_ subject: Subject) async throws -> (began: Duration, crossed: Duration?) {
        try await PlainThread.run { try reportingFailure { try subject.endure() } }
    }
}
