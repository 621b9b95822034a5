import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Measures the cost of background tasks.
struct TaskBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "tasks")

    @Option(help: "Rounds of each measurement.") var rounds = 15

    func validate() throws { try Allowed.count(rounds, "--rounds", in: 1...1000) }

    func run() throws {
        try reportingFailure {
            let bench = TaskBench()
            let one = bench.beginAndEnd(rounds: rounds)
            Bench.figure("task.begin-end", one.plain, "ns")
            Bench.figure("task.begin-end-capturing", one.capturing, "ns")
            Bench.figure("task.begin-end-2t", one.beside, "ns")
            Bench.figure("task.bytes", try TaskBench.footprintInChild(count: 1_000_000), "bytes")
            Bench.figure("task.expire-10k", bench.expire(count: 10_000, rounds: rounds), "ms")
            Bench.figure("task.expire-10k-32-blocked", bench.expire(count: 10_000, blocking: 32, rounds: rounds), "ms")
        }
    }
}

/// A million tasks, in a separate process.
struct TaskFootprintCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_tasks-rss", abstract: "Part of `plimsoll-bench`.", shouldDisplay: false)

    @Option var count: Int

    func run() throws { Output.line(JSONLine.encode(TaskBench().footprint(count: count))) }
}
