import Plimsoll
import PlimsollDemos
import PlimsollLifecycle

/// Measures admission by a limiter with free capacity, in nanoseconds.
struct LimiterRuns {
    let runs: Int
    let rounds: Int
    private let limiter = ConcurrencyLimiter("bench", limit: 64)
    private let set = QuiesceSet(time: .running)

    init(runs: Int, rounds: Int) {
        self.runs = runs
        self.rounds = rounds
        set.add(limiter)
    }

    /// Returns the median processor time with one task alone.
    func alone() async throws -> Double {
        var times: [Double] = []
        for _ in 0..<rounds {
            let start = SteadyClock.thread
            for _ in 0..<runs { try await limiter.run {} }
            times.append(nanoseconds(SteadyClock.thread - start))
        }
        return median(times) ?? 0
    }

    /// Returns the median time of a run with two tasks at once on two threads.
    func both() async throws -> Double {
        var times: [Double] = []
        for _ in 0..<rounds {
            times += try await withThrowingTaskGroup(of: Double.self) { group in
                for _ in 0..<2 {
                    group.addTask {
                        let start = SteadyClock.now
                        for _ in 0..<runs { try await limiter.run {} }
                        return nanoseconds(SteadyClock.now - start)
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
        }
        return median(times) ?? 0
    }

    private func nanoseconds(_ time: Duration) -> Double { time.milliseconds * 1e6 / Double(runs) }
}
