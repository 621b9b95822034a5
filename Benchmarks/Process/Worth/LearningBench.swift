import Plimsoll
import PlimsollDemos
import PlimsollTesting

/// The cost of learning a curve to the requests, and the error of the curve.
enum LearningBench {
    /// Keys in the cache: 16 MiB of entries, more than a processor's own cache.
    private static let keys = 200_000
    private static let requests = 2_000_000

    /// Returns the times of a hit and of an insert while learning, each as a multiple of the time without: medians of
    /// interleaved runs.
    static func overhead(runs: Int) -> (hit: Double, insert: Double) {
        var random = SeededGenerator(seed: 5)
        let zipf = Zipf(count: keys, skew: 0.9)
        let stream = (0..<requests).map { _ in UInt64(zipf.next(using: &random)) }
        func cache(limit: Int) -> PurgeableCache<UInt64, UInt64> {
            let cache = PurgeableCache<UInt64, UInt64>("learning", limit: ByteCount(limit)) { _, _ in 80 }
            for key in 0..<UInt64(keys) { cache.insert(key, forKey: key) }
            return cache
        }
        // The same cache with and without: another one would have other collisions.
        func learn(_ cache: PurgeableCache<UInt64, UInt64>, _ learns: Bool) {
            if learns { cache.learn {} } else { cache.learn(onRound: nil) }
            _ = cache.endRound(upTo: keys * 80, at: .zero)
        }
        func time(_ body: () -> Void) -> Double {
            let start = ContinuousClock.now
            body()
            return (ContinuousClock.now - start) / .seconds(1)
        }
        func hits(_ cache: PurgeableCache<UInt64, UInt64>) -> Double {
            time {
                var sum: UInt64 = 0
                for key in stream { sum &+= cache.value(forKey: key) ?? 0 }
                if sum == 1 { Output.line("") }
            }
        }
        func inserts(_ cache: PurgeableCache<UInt64, UInt64>) -> Double {
            time { for key in 0..<UInt64(requests / 2) { cache.insert(key, forKey: key &* 7) } }
        }
        let whole = cache(limit: keys * 80), half = cache(limit: keys * 40)
        func ratio(
            _ run: Int, _ cache: PurgeableCache<UInt64, UInt64>, _ body: (PurgeableCache<UInt64, UInt64>) -> Double
        ) -> Double {
            // Each in turn is first, so that drift of the machine affects both alike.
            let order = run % 2 == 0 ? [false, true] : [true, false]
            var times = [0.0, 0.0]
            for learns in order {
                learn(cache, learns)
                times[learns ? 1 : 0] = body(cache)
            }
            return times[1] / times[0]
        }
        var hit: [Double] = [], insert: [Double] = []
        for run in 0..<runs {
            hit.append(ratio(run, whole, hits))
            insert.append(ratio(run, half, inserts))
        }
        return (median(hit) ?? 0, median(insert) ?? 0)
    }

    /// Returns the mean distance of a trace's curve from the misses of caches of those sizes, in points of a hundred.
    /// The first round, in which the rate is not known yet, is left out.
    static func error(_ trace: TraceFile, part: Double, rate: Double, _ split: StaticSplit) -> Double {
        let mix = Mix(
            trace.name, [.init(name: trace.name, trace: trace.name, loadMicroseconds: 1)], budget: .part(part))
        let requests = MixedRequests(mix, [trace]), budget = requests.bytes(of: mix.budget)
        let cache = PurgeableCache<UInt64, UInt64>("curve", limit: ByteCount(budget), shardCount: 8) { _, value in
            Int(value)
        }
        var meanCost = 0.0
        for request in requests.requests { meanCost += Double(request.cost) / Double(requests.requests.count) }
        cache.learn {}
        cache.insert(UInt64(meanCost), forKey: .max)
        _ = cache.endRound(upTo: budget, at: .zero)
        var stream = requests.streams(mix)[0]
        let all = stream, count = all.requests.count
        func request(_ range: Range<Int>) -> MissCurve? {
            for request in all.requests[range] where cache.value(forKey: request.id) == nil {
                cache.insert(UInt64(request.cost), forKey: request.id)
            }
            return cache.endRound(upTo: budget, at: .seconds(Double(range.upperBound) / rate))?.curve
        }
        let begin = min(count / 2, Int(CurveMeter.round))
        _ = request(0..<begin)
        stream = .init(name: "\(stream.name), first \(begin)", requests: Array(all.requests[..<begin]))
        guard let curve = request(begin..<count), curve.requests > 0 else { return 100 }
        let errors = curve.points.map { point in
            let misses = split.misses(all, bytes: point.bytes) - split.misses(stream, bytes: point.bytes)
            return abs(point.misses / curve.requests - Double(misses) / Double(count - begin)) * 100
        }
        return errors.reduce(0, +) / Double(max(1, errors.count))
    }
}
