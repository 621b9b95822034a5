import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Measures a supervisor among hostile processes, and a supervisor that is killed anywhere.
struct HostileBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hostile",
        abstract:
            "Measure the restart of a killed service beside hostile processes, and kill the supervisor at every system call."
    )

    enum Part: String, CaseIterable { case descriptor, log, flood, killAnywhere = "kill-anywhere" }

    @Option(help: "Parts to run, separated by commas.") var parts = Part.allCases.map(\.rawValue).joined(separator: ",")
    @Option(help: "Runs of each of the first three parts.") var runs = 5
    @Option(help: "Phases of kill-anywhere, separated by commas.") var phases = KillPhase.allCases.map(\.rawValue)
        .joined(separator: ",")
    @Option(help: "Distance between two kills, in system calls.") var stride = 1
    @Option(help: "First system call to kill at.") var from = 1

    func validate() throws {
        try Allowed.count(runs, "--runs", in: 1...100)
        try Allowed.count(stride, "--stride", in: 1...1000)
        try Allowed.count(from, "--from", in: 1...KillAnywhereBench.most)
        let _: [Part] = try Allowed.list(parts, "--parts")
        let _: [KillPhase] = try Allowed.list(phases, "--phases")
    }

    func run() throws {
        try reportingFailure {
            for part in try Allowed.list(parts, "--parts") as [Part] {
                do {
                    switch part {
                    case .descriptor: try measure(.descriptor)
                    case .log: try measure(.log)
                    case .flood: try measure(.flood)
                    case .killAnywhere: try killAnywhere()
                    }
                } catch let refusal as GroupMaker.Refusal {
                    throw Failure.unavailable("\(part.rawValue): \(refusal); \(GroupMaker.Refusal.remedy)")
                }
            }
        }
    }

    private func measure(_ harm: HostileBench.Harm) throws {
        let times = try HostileBench().measure(harm, runs: runs).sorted()
        let texts = times.map { Text.number($0.inSeconds, decimals: 3) }
        Output.line(
            "# \(harm.rawValue): \(texts.joined(separator: " ")) s; \(Text.number(HostileBench.most.inSeconds)) s for never"
        )
        Output.line("figure supervisor.hostile.\(harm.rawValue).back \(texts[times.count / 2]) s")
        Output.line("figure supervisor.hostile.\(harm.rawValue).back-worst \(texts[times.count - 1]) s")
    }

    private func killAnywhere() throws {
        let bench = KillAnywhereBench(phases: try Allowed.list(phases, "--phases"), stride: stride, from: from)
        let (points, wrong) = try bench.run()
        Output.line("figure supervisor.kill-anywhere.points \(points) count")
        Output.line("figure supervisor.kill-anywhere.wrong \(wrong) points")
    }
}
