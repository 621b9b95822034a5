import ArgumentParser
import Foundation

/// Draws charts from the files of the other commands.
struct ReportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "report", abstract: "Draw the results of `peers`, `hit-ratio` and `e2e-bench report`.")

    @Option(help: "Results of `peers`.", completion: .file()) var peers: String?
    @Option(help: "Results of `hit-ratio`.", completion: .file()) var hitRatios: String?
    @Option(help: "Panels of `e2e-bench report`.", completion: .file()) var endToEnd: String?
    @Option(help: "The directory for the charts.", completion: .directory) var into: String

    func run() throws {
        try reportingFailure {
            if let peers {
                let results = try Self.read(PeersCommand.Results.self, peers)
                try write(BarPanels.times(results.races), "cache-times.svg")
                try write(BarPanels.scaling(results.races), "cache-scaling.svg")
                try write(BarPanels.properties(results.properties), "cache-properties.svg")
            }
            if let hitRatios {
                try write(
                    HitRatioChart(cells: try Self.read([HitRatioCommand.Cell].self, hitRatios)).svg,
                    "cache-hit-ratios.svg")
            }
            if let endToEnd {
                try write(BarPanels.goodput(try Self.read([BarPanels.Panel].self, endToEnd)), "end-to-end.svg")
            }
        }
    }

    private func write(_ chart: String, _ name: String) throws {
        try File.write(chart, to: into + "/" + name)
        Output.line("wrote \(into)/\(name)")
    }

    private static func read<Value: Decodable>(_ type: Value.Type, _ path: String) throws -> Value {
        do {
            return try JSONDecoder().decode(type, from: Data(contentsOf: URL(fileURLWithPath: path)))
        } catch {
            throw Failure.failed("\(printable(path)) does not hold results: \(error)")
        }
    }
}

/// The style of all charts. A reader's setting selects light or dark.
enum ChartStyle {
    static let css = """
        text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-size: 18px; font-weight: 600 } .minor { fill: #57606a; font-size: 12px }
        .head { font-weight: 600 } .paper { fill: #ffffff } .grid { stroke: #d8dee4 } .axis { stroke: #57606a } .span { stroke: #8c959f; stroke-width: 2 }
        .edge { stroke: #57606a; stroke-width: 2 } .ours { fill: #0969da } .ourtext { fill: #0969da; font-weight: 600 }
        .peer { fill: #afb8c1 } .book { fill: #bc4c00 } .best { fill: #1a7f37 } .least { fill: #57606a }
        @media (prefers-color-scheme: dark) {
        text { fill: #e6edf3 } .minor { fill: #9198a1 } .paper { fill: #0d1117 } .grid { stroke: #2d333b } .axis { stroke: #9198a1 }
        .span { stroke: #656c76 } .edge { stroke: #9198a1 } .ours { fill: #58a6ff } .ourtext { fill: #58a6ff } .peer { fill: #57606a }
        .book { fill: #f0883e } .best { fill: #3fb950 } .least { fill: #9198a1 } }
        """
}
