import ArgumentParser
import Plimsoll
import PlimsollDemos

/// Measures a thousand tickers after a freeze of a minute, and the cost of admission by a limiter.
struct TimersBench: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "timers")

    @Option(help: "Tickers.") var count = 1000
    @Option(help: "Seconds of the freeze, by a manual clock.") var seconds = 60.0
    @Option(help: "Runs of the limiter in each of nine rounds.") var runs = 200_000

    func validate() throws {
        try Allowed.count(count, "--count", in: 1...100_000)
        try Allowed.seconds(seconds, "--seconds", in: 1...86_400)
        try Allowed.count(runs, "--runs", in: 1...100_000_000)
    }

    func run() async throws {
        let tickers = await ThawedTickers(count: count, freeze: .seconds(seconds)).run()
        Bench.figure("lifecycle.timers-after-freeze", Double(tickers.most), "count")
        Bench.figure("lifecycle.timers-after-freeze.first-100ms", Double(tickers.first), "count")
        Bench.figure("lifecycle.timers-after-freeze.usual-100ms", tickers.usual, "count")
        let limiter = LimiterRuns(runs: runs, rounds: 9)
        Bench.figure("limiter.run", try await limiter.alone(), "ns")
        Bench.figure("limiter.run.two-threads", try await limiter.both(), "ns")
        try reportingFailure {
            if tickers.most > 1 { throw Failure.failed("a ticker made \(tickers.most) calls at the end of a freeze") }
        }
    }
}
