import ArgumentParser
import Foundation

/// Benchmarks of memory by request. Prints lines `figure NAME VALUE UNIT`.
@main
struct RequestBench: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "request-bench", abstract: "Measure budgets for the memory of requests.",
        subcommands: [
            ServeCommand.self, SurviveCommand.self, ErrorCommand.self, ThroughputCommand.self, ForeignCommand.self,
        ])
}

/// A failure of a benchmark, with a remedy.
struct Failure: Error, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

func figure(_ name: String, _ value: Double, _ unit: String) {
    print("figure \(name) \(String(format: "%.3f", value)) \(unit)")
}

func figure(_ name: String, _ count: Int, of all: Int) { print("figure \(name) \(count) of_\(all)") }

func median(_ values: [Double]) -> Double { quantile(values, 0.5) }

func quantile(_ values: [Double], _ share: Double) -> Double {
    let sorted = values.sorted()
    return sorted.isEmpty ? .nan : sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
}
