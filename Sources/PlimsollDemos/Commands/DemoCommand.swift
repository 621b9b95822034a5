package import ArgumentParser
import Glibc
import Plimsoll

/// Runs one service twice side by side under the same limit and the same traffic, without and with Plimsoll.
struct DemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Compare one service without and with Plimsoll, under the same limit and traffic.",
        discussion: """
            The service answers HTTP on 127.0.0.1 from a cache without a limit, and keeps sessions. Without Plimsoll the kernel kills it; \
            with its cache in volatile memory, registered with a manager, the service keeps running. Without a group, the demo is simulated and marked so. Exit status: 0 if both were observed, 1 if not.
            """,
        subcommands: [LifecycleDemoCommand.self, SupervisorDemoCommand.self])

    @Option(help: "Limit of each service's group.") var limit = ByteCount.mebibytes(256)
    @Option(help: "Length of the demo.") var seconds = 20.0
    @Option(help: "File for the drawing. (default: out/demo.svg)", completion: .file()) var svg: String?
    @Flag(help: "Simulate even if a real group could be made.") var simulate = false
    @Flag(help: "Never simulate: exit with 69 if no group can be made.") var real = false

    func validate() throws {
        try Allowed.size(limit, "--limit", in: .mebibytes(64) ... .gibibytes(1))
        try Allowed.seconds(seconds, "--seconds", in: 4...600)
        if real, simulate {
            throw ValidationError("--real and --simulate exclude each other; allowed is one of them or neither")
        }
    }

    func run() throws {
        try reportingFailure {
            if simulate { return try simulated(because: "requested by --simulate") }
            do {
                let demo = try Demo(limit: limit, seconds: seconds)
                let (without, with) = try demo.run()
                try draw(without, with, isSimulated: false)
                Output.line(DemoRecord.result(without: without, with: with))
                if !DemoRecord.isProof(without: without, with: with) { throw ExitCode.failure }
            } catch let refusal as GroupMaker.Refusal where real {
                throw Failure.unavailable("\(refusal); \(GroupMaker.Refusal.remedy)")
            } catch let refusal as GroupMaker.Refusal {
                Output.line("\(refusal). For a real run, \(GroupMaker.Refusal.remedy).")
                try simulated(because: "no group could be made")
            }
        }
    }

    private func simulated(because reason: String) throws {
        Output.line(
            "The following is SIMULATED (\(reason)): the library's real decisions on a modelled service; no process, no kernel."
        )
        let (without, with) = DemoSimulation(limit: limit, seconds: seconds).run()
        try draw(without, with, isSimulated: true)
        Output.line(
            DemoRecord.result(without: without, with: with).replacing(
                "result: ", with: "result (simulated): ", maxReplacements: 1))
    }

    private func draw(_ without: DemoRecord, _ with: DemoRecord, isSimulated: Bool) throws {
        let chart = DemoChart(without: without, with: with, limit: limit, seconds: seconds, isSimulated: isSimulated)
        let svg = svg ?? "out/demo.svg"
        try File.write(chart.svg, to: svg)
        Output.line("drawn: \(printable(svg))")
    }
}

/// The commands of this module. A demo, a stress run or a benchmark starts processes of its own program, so each
/// program that offers one of them offers `supervise` and `parts` as well.
package enum DemoCommands {
    package static var demo: any ParsableCommand.Type { DemoCommand.self }
    package static var stress: any ParsableCommand.Type { StressCommand.self }
    package static var supervise: any ParsableCommand.Type { SuperviseCommand.self }

    /// Hidden commands, each a separate process of a demo, a stress run or a benchmark.
    package static var parts: [any ParsableCommand.Type] {
        [
            EnterCommand.self, ServiceCommand.self, LifecycleServiceCommand.self, SubjectCommand.self,
            UnitCommand.self,
        ]
    }
}
