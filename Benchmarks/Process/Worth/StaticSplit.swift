import Plimsoll
import Synchronization

/// The best division that stays the same over the whole run: found by replaying each trace at each size.
final class StaticSplit: Sendable {
    /// Parts of the budget that are tried.
    static let units = 32

    private struct Key: Hashable {
        var trace: String
        var bytes: Int
        var count: Int
    }

    private let known = Mutex<[Key: Int]>([:])

    /// Returns the misses of the first `count` requests of a trace with room for `bytes`.
    func misses(_ trace: TraceFile, bytes: Int, count: Int) -> Int {
        let key = Key(trace: trace.name, bytes: bytes, count: count)
        if let misses = known.withLock({ $0[key] }) { return misses }
        let cache = PurgeableCache<UInt64, UInt64>("static", limit: ByteCount(bytes), shardCount: 8) { _, value in
            Int(value)
        }
        var misses = 0
        for request in trace.requests.prefix(count) {
            if cache.value(forKey: UInt64(request)) != nil { continue }
            misses += 1
            cache.insert(UInt64(MixedRequests.cost(of: request, trace)), forKey: UInt64(request))
        }
        known.withLock { $0[key] = misses }
        return misses
    }

    /// Returns the least cost in microseconds of load time, and the shares in bytes.
    func best(_ mix: Mix, _ requests: MixedRequests, budget: Int) -> (cost: Double, shares: [Int]) {
        let counts = mix.caches.indices.map { trace in requests.requests.count { Int($0.trace) == trace } }
        var costs = [0.0] + [Double](repeating: .infinity, count: Self.units), choices: [[Int]] = []
        for index in mix.caches.indices {
            let own = (0...Self.units).map { unit in
                unit == 0
                    ? Double(counts[index]) * mix.caches[index].loadMicroseconds
                    : Double(misses(requests.traces[index], bytes: budget / Self.units * unit, count: counts[index]))
                        * mix.caches[index].loadMicroseconds
            }
            var next = [Double](repeating: .infinity, count: Self.units + 1)
            var choice = [Int](repeating: 0, count: Self.units + 1)
            for used in 0...Self.units where costs[used] < .infinity {
                for unit in 0...Self.units - used where costs[used] + own[unit] < next[used + unit] {
                    (next[used + unit], choice[used + unit]) = (costs[used] + own[unit], unit)
                }
            }
            costs = next
            choices.append(choice)
        }
        guard var used = costs.indices.min(by: { costs[$0] < costs[$1] }) else { return (0, []) }
        let cost = costs[used]
        var shares = mix.caches.map { _ in 0 }
        for index in mix.caches.indices.reversed() {
            shares[index] = choices[index][used] * (budget / Self.units)
            used -= choices[index][used]
        }
        return (cost, shares)
    }
}
