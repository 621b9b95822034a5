import ArgumentParser
import Plimsoll

/// Runs three services under one limit, without a supervisor and with one.
struct SupervisorDemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "supervisor",
        abstract: "Compare three services under one limit without and with a supervisor, and draw both runs.",
        discussion: """
            One service is important, one is idle, and one keeps growing. Without a supervisor the kernel kills the largest; with `plimsoll supervise` \
            the growing one is warned, suspended and ended in order. Exit status: 0 if both were observed, 1 if not, 69 if no group can be made.
            """)

    @ParentCommand var demo: DemoCommand
    @Option(help: "File for the drawing.", completion: .file()) var svg = "out/supervisor.svg"
    @Option(help: "Seconds of each of the two runs.") var length = 14.0

    func validate() throws { try Allowed.seconds(length, "--length", in: 8...600) }

    func run() throws {
        try reportingFailure {
            let signals = SignalQueue()
            do {
                let without = try play(isSupervised: false, signals), with = try play(isSupervised: true, signals)
                // The parent command parses an option that both commands have.
                let svg = demo.svg ?? svg
                try File.write(SupervisorChart(without: without, with: with).svg, to: svg)
                Output.line("drawn: \(printable(svg))")
                Output.line(TrioRecord.result(without: without, with: with))
                if !TrioRecord.isProof(without: without, with: with) { throw ExitCode.failure }
            } catch let refusal as GroupMaker.Refusal {
                throw Failure.unavailable("\(refusal); \(GroupMaker.Refusal.remedy)")
            }
        }
    }

    private func play(isSupervised: Bool, _ signals: SignalQueue) throws -> TrioRecord {
        let record = try ScratchDirectory.with("trio") { directory in
            let trio = try Trio(limit: demo.limit, directory: directory, maker: GroupMaker(), signals: signals)
            Output.line(
                "\(isSupervised ? "With" : "Without") a supervisor, under a limit of \(demo.limit): " + Trio.story)
            var timeline = TrioTimeline(isSupervised: isSupervised)
            trio.onEvent = { event, at in
                for line in timeline.lines(event, at: at) { Output.line(line) }
            }
            let length = Duration.seconds(length)
            return try trio.play(isSupervised: isSupervised, for: length, quietPeriod: length)
        }
        Output.line(record.result)
        Output.line("")
        return record
    }
}

extension Trio {
    /// Names of the members and their memory use.
    static let story = members.map { member in
        let share = "\(Text.number(member.size * 100, decimals: 0)) % of it"
        let growth =
            member.growth > 0 ? " and \(Text.number(member.growth * 100, decimals: 0)) % more every second" : ""
        return "\(member.name) takes \(share)\(growth)"
    }.joined(separator: ", ")
}
