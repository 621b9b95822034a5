import ArgumentParser
import Foundation

/// Prints the table of all races, and the promised figures.
struct PeersCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "peers", abstract: "PurgeableCache beside its peers, all in one run, each in turn.",
        discussion:
            "Times are medians of the rounds; each race has a process of its own. `Benchmarks/peers` finds the programs in other languages."
    )

    @OptionGroup var terms: RaceTerms
    @Option(help: "Which races, with commas between; `none` for none.") var workloads = Self.all(Workloads.names)
    @Option(help: "Which properties besides, with commas between; `none` for none.") var properties = Self.all(
        Property.allCases.map(\.rawValue))
    @Option(help: "Where to write the results for charts.", completion: .file()) var results: String?

    func run() throws {
        try reportingFailure {
            var raceResults: [RaceResult] = []
            for name in Self.list(workloads) {
                Output.error("# \(name)")
                raceResults.append(try RaceCommand.run(name, on: terms))
            }
            if !raceResults.isEmpty { Output.line(RaceTable(raceResults).text) }
            RaceFigures(raceResults).report()
            let outcomes = try Self.list(properties).map { name in
                guard let property = Property(rawValue: name) else {
                    throw Failure.failed("no property is named \(name)")
                }
                Output.error("# \(name)")
                return try property.measure(rounds: terms.rounds)
            }
            if let results {
                let record = Results(races: RaceRecord.all(raceResults), properties: outcomes.compactMap(\.panel))
                try File.write(String(decoding: JSONEncoder().encode(record), as: UTF8.self), to: results)
            }
            let failures = outcomes.compactMap(\.failure)
            if !failures.isEmpty { throw Failure.failed(failures.joined(separator: "; ")) }
        }
    }

    /// The data for charts.
    struct Results: Codable {
        var races: [RaceRecord]
        var properties: [BarPanels.Panel]
    }

    private static func all(_ names: [String]) -> String { names.joined(separator: ",") }
    private static func list(_ names: String) -> [String] {
        names.split(separator: ",").map(String.init).filter { $0 != "none" }
    }
}
