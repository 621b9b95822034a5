import Foundation
import Plimsoll
import PlimsollTesting

/// Measures the time of an insert for several orders of costs, with twice as many entries as fit.
struct InsertOrders {
    /// The orders of costs. NSCache keeps a list by cost, and walks that list.
    enum Order: String, CaseIterable { case rising, falling, random }

    /// The approximate number of entries that fit.
    let entries: Int

    /// The least number of inserts: fills are repeated until then.
    private static let leastInserts = 1_000_000

    /// Returns the processor time of an insert in nanoseconds for each order, the median of the rounds.
    func measure(rounds: Int) -> [Order: Double] {
        let costs = Dictionary(uniqueKeysWithValues: Order.allCases.map { ($0, self.costs($0)) })
        let keys = Keys.keys(2 * entries)
        var times: [Order: [Double]] = [:]
        for round in 0...rounds {
            for order in Order.allCases {
                guard let costs = costs[order] else { continue }
                let time = time(keys, costs)
                if round > 0 { times[order, default: []].append(time) }
            }
        }
        return times.compactMapValues(median)
    }

    /// Returns the same for NSCache, measured once because NSCache takes long.
    func measureFoundation(_ order: Order) -> Double {
        let costs = costs(order), keys = Keys.keys(2 * entries).map { NSNumber(value: $0) }
        let cache = NSCache<NSNumber, NSNumber>()
        cache.totalCostLimit = costs.reduce(0, +) / 2
        let start = SteadyClock.thread
        for (key, cost) in zip(keys, costs) { cache.setObject(key, forKey: key, cost: cost) }
        let time = (SteadyClock.thread - start).inSeconds * 1e9 / Double(keys.count)
        // Without this call the cache's memory is never freed.
        cache.removeAllObjects()
        return time
    }

    private func time(_ keys: [UInt64], _ costs: [Int]) -> Double {
        let limit = ByteCount(costs.reduce(0, +) / 2), fills = max(1, Self.leastInserts / keys.count)
        var total = Duration.zero
        for _ in 0..<fills {
            let cache = PurgeableCache<UInt64, UInt64>("inserts", limit: limit)
            let start = SteadyClock.thread
            for (key, cost) in zip(keys, costs) { cache.insert(key, forKey: key, cost: cost) }
            total += SteadyClock.thread - start
            precondition(cache.byteCount <= limit.bytes && cache.count > 0, "the inserts were not kept")
        }
        return total.inSeconds * 1e9 / Double(fills * keys.count)
    }

    private func costs(_ order: Order) -> [Int] {
        var random = SeededGenerator(seed: 7)
        return switch order {
        case .rising: (0..<2 * entries).map { 1 + $0 }
        case .falling: (0..<2 * entries).map { 2 * entries - $0 }
        case .random: (0..<2 * entries).map { _ in Int.random(in: 1...2 * entries, using: &random) }
        }
    }
}
