import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Measures state transitions with many observers and many scenes, and reads of the state.
struct LifecycleBenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "lifecycle")

    @Option(help: "Rounds of each measurement.") var rounds = 21
    @Option(help: "Observers, and scenes.") var count = 1000

    func validate() throws {
        try Allowed.count(rounds, "--rounds", in: 1...10_000)
        try Allowed.count(count, "--count", in: 1...1_000_000)
    }

    func run() async throws {
        do {
            let bench = LifecycleBench(rounds: rounds, count: count)
            if let worst = try await bench.transitions() { Bench.figure("lifecycle.transition-\(count)", worst, "ms") }
            if let both = try await bench.scenes() { Bench.figure("lifecycle.scenes-\(count)", both, "ms") }
            let reads = bench.stateReads()
            Bench.figure("lifecycle.state-read", reads.read, "ns")
            Bench.figure("lifecycle.atomic-load", reads.load, "ns")
        } catch {
            try reportingFailure { throw error }
        }
    }
}
