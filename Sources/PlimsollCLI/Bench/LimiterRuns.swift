import Plimsoll

/// What it costs to be admitted by a limiter with room, in nanoseconds.
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

    /// One task by itself: the median of processor time.
    func alone() async throws -> Double {
        var times: [Double] = []
        for _ in 0..<rounds {
            let start = SteadyClock.thread
            for _ in 0..<runs { try await limiter.run {} }
            times.append(nanoseconds(SteadyClock.thread - start))
        }
        return median(times) ?? 0
    }

    /// Two tasks at once on two threads: the median of the time that a run takes each.
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
