/// Outcomes of a trace's requests.
struct Tally {
    enum Outcome { case late, failed }

    private let trace: Trace
    private var results: [Route: RouteResult] = [:]
    private var latencies: [Route: [Double]] = [:]
    private var counted: [Route: Int] = [:]

    init(_ trace: Trace) {
        self.trace = trace
        for arrival in trace.arrivals where arrival.at >= 0 { results[arrival.route, default: RouteResult()].due += 1 }
    }

    /// Counts a request that was not answered.
    mutating func note(_ request: Int, _ outcome: Outcome) {
        guard trace.arrivals[request].at >= 0 else { return }
        let route = trace.arrivals[request].route
        counted[route, default: 0] += 1
        switch outcome {
        case .late: results[route]!.late += 1
        case .failed: results[route]!.failed += 1
        }
    }

    /// Counts an answer, which came `latency` seconds after the request was due.
    mutating func note(_ request: Int, _ answer: Answer, latency: Double) {
        guard trace.arrivals[request].at >= 0 else { return }
        let route = trace.arrivals[request].route
        counted[route, default: 0] += 1
        switch answer.status {
        case 200:
            results[route]!.good += 1
            latencies[route, default: []].append(latency * 1000)
            if let isHit = answer.isHit { if isHit { results[route]!.hits += 1 } else { results[route]!.misses += 1 } }
        case 503: results[route]!.refused += 1
        default: results[route]!.failed += 1
        }
    }

    /// Returns all outcomes. A request without an outcome has failed.
    func result(goneAt: Double?) -> LoadResult {
        var result = LoadResult(seconds: trace.seconds, goneAtSeconds: goneAt)
        for (route, counts) in results {
            var counts = counts
            counts.failed += counts.due - counted[route, default: 0]
            let sorted = (latencies[route] ?? []).sorted()
            counts.p50 = Statistics.quantile(0.5, of: sorted)
            counts.p99 = Statistics.quantile(0.99, of: sorted)
            result.routes[route.rawValue] = counts
        }
        return result
    }
}
