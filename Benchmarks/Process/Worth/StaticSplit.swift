import Plimsoll
import Synchronization

/// The best division that stays the same over the whole run: found by replaying each cache's requests at each
/// size.
final class StaticSplit: Sendable {
    /// Parts of the budget that are tried.
    static let units = 32

    private struct Key: Hashable {
        var stream: String
        var bytes: Int
    }

    private let known = Mutex<[Key: Int]>([:])

    /// Returns the misses of a stream in a cache with room for `bytes`.
    func misses(_ stream: MixedRequests.Stream, bytes: Int) -> Int {
        let key = Key(stream: stream.name, bytes: bytes)
        if let misses = known.withLock({ $0[key] }) { return misses }
        let cache = PurgeableCache<UInt64, UInt64>("static", limit: ByteCount(bytes), shardCount: 8) { _, value in
            Int(value)
        }
        var misses = 0
        for request in stream.requests where cache.value(forKey: request.id) == nil {
            misses += 1
            cache.insert(UInt64(request.cost), forKey: request.id)
        }
        known.withLock { $0[key] = misses }
        return misses
    }

    /// Returns the least cost in microseconds of load time, and the shares in bytes.
    func best(_ mix: Mix, _ requests: MixedRequests, budget: Int) -> (cost: Double, shares: [Int]) {
        let streams = requests.streams(mix)
        var costs = [0.0] + [Double](repeating: .infinity, count: Self.units), choices: [[Int]] = []
        for index in mix.caches.indices {
            let own = (0...Self.units).map { unit in
                let bytes = budget / Self.units * unit
                let count = unit == 0 ? streams[index].requests.count : misses(streams[index], bytes: bytes)
                return Double(count) * mix.caches[index].loadMicroseconds
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
