import ArgumentParser
import Comparing
import Foundation

/// Prints the tables and figures of runs that were kept.
struct ReportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "report", abstract: "Print tables as Markdown, and figures, of the runs in a file.")

    @Option(help: "File that `compare` appended runs to.") var json = "out/end-to-end.jsonl"

    @Option(help: "File for a page of tables and figures in Markdown.") var page: String?
    @Option(help: "File for what `cache-bench report --end-to-end` draws.") var panels: String?

    @Option(help: "Leave out runs beside which others used more processors than this, for example 0.3.") var neighbours:
        Double?

    func run() throws {
        let records = try RecordFile(json).records(mostNeighbours: neighbours)
        guard !records.isEmpty else {
            throw ValidationError(
                "--json is \(json), in which there are no runs; `e2e-bench compare --json \(json)` makes some.")
        }
        let report = Report(records)
        print(report.tables)
        for figure in report.figures { print(figure) }
        if let page { try Self.page(report, records).write(toFile: page, atomically: true, encoding: .utf8) }
        if let panels { try JSONEncoder().encode(report.panels).write(to: URL(fileURLWithPath: panels)) }
    }

    private static func page(_ report: Report, _ records: [RunRecord]) -> String {
        """
        # One service with and without Plimsoll

        Written by `make bench-end-to-end-report` from \(records.count) runs of `make bench-end-to-end`; [Benchmarks](../../Benchmarks/README.md) says what the
        numbers mean. *Best tuned* is the best of the variants whose bound was chosen by hand, among those that lived through every run under
        that limit and load.

        ![Good answers a second by limit and load](end-to-end.svg)

        ```
        \(report.figures.joined(separator: "\n"))
        ```

        \(report.tables)
        """
    }
}
