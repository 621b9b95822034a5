import ArgumentParser
import Comparing

/// Prints the tables and figures of runs that were kept.
struct ReportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "report", abstract: "Print tables as Markdown, and figures, of the runs in a file.")

    @Option(help: "File that `compare` appended runs to.") var json = "out/end-to-end.jsonl"

    @Option(help: "Leave out runs beside which others used more processors than this, for example 0.3.") var neighbours: Double?

    func run() throws {
        let records = try RecordFile(json).records(mostNeighbours: neighbours)
        guard !records.isEmpty else {
            throw ValidationError("--json is \(json), in which there are no runs; `e2e-bench compare --json \(json)` makes some.")
        }
        let report = Report(records)
        print(report.tables)
        for figure in report.figures { print(figure) }
    }
}
