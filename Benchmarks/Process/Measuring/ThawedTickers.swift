import Plimsoll
import PlimsollLifecycle
import PlimsollTesting

/// Tickers of various periods in a process that thaws after a freeze. The clock is moved by hand.
struct ThawedTickers {
    struct Result {
        /// The most calls by one ticker at the end of the freeze.
        var most: UInt64
        /// Calls by all tickers at the end of the freeze and in the tenth of a second after the freeze.
        var first: UInt64
        /// Calls by all tickers in a tenth of a second at other times, on average.
        var usual: Double
    }

    let count: Int
    let freeze: Duration

    func run() async -> Result {
        let clock = ManualClock(), set = QuiesceSet(time: clock.timekeeper)
        // Periods from one second to 38. Every tenth ticker makes up for a missed tick.
        let tickers = (0..<count).map {
            Ticker("\($0)", every: .milliseconds(1000 + 37_000 * $0 / count), makesUp: $0 % 10 == 0) { _ in }
        }
        for ticker in tickers { set.add(ticker) }
        func ticksOnceIdle() async -> [UInt64] {
            for ticker in tickers { while ticker.isRunning { await Task.yield() } }
            return tickers.map(\.ticks)
        }
        // Longer than the longest period.
        let steps = 400
        for _ in 0..<steps {
            clock.advance(by: ManualClock.step)
            _ = await ticksOnceIdle()
        }
        let before = await ticksOnceIdle()
        clock.freeze(for: freeze)
        let thawed = await ticksOnceIdle()
        clock.advance(by: .milliseconds(100))
        let after = await ticksOnceIdle()
        return Result(
            most: zip(thawed, before).map { $0 - $1 }.max() ?? 0,
            first: zip(after, before).reduce(0) { $0 + $1.0 - $1.1 },
            usual: Double(before.reduce(0, +)) / Double(steps))
    }
}
