import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

@Suite struct DivisionTests {
    /// Returns a curve whose misses fall from 1,000 in inverse proportion to the bytes: the first `scale` bytes save
    /// half.
    static func power(_ scale: Double, requests: Double = 1000) -> MissCurve {
        MissCurve(
            requests: requests,
            points: (1...64).map { .init(bytes: $0 * 16, misses: requests / (1 + Double($0 * 16) / scale)) })
    }

    /// Returns a curve of a loop: all requests miss below `bytes`, and none above.
    static func loop(_ bytes: Int, requests: Double = 1000) -> MissCurve {
        MissCurve(requests: requests, points: [.init(bytes: bytes - 1, misses: requests), .init(bytes: bytes, misses: 0)])
    }

    private func settle(_ holders: [Division.Holder], from shares: [Int], budget: Int = 1024) -> [Int] {
        var shares = shares
        for _ in 0..<100 {
            let next = Division.next(holders, from: shares, budget: budget)
            #expect(next.shares.reduce(0, +) <= budget && next.shares.allSatisfy { $0 >= 0 })
            if !next.hasMoved { break }
            shares = next.shares
        }
        return shares
    }

    @Test func `memory goes where load time is saved`() {
        let cheap = Division.Holder(held: 512, curve: Self.power(100), loadTime: 1)
        let dear = Division.Holder(held: 512, curve: Self.power(100), loadTime: 100)
        let shares = settle([cheap, dear], from: [512, 512])
        // The optimum of two such curves is near the square root of the costs: 1 to 10.
        #expect(shares[1] > 820 && shares[0] > 16, "\(shares)")
        #expect(settle([cheap, cheap], from: [900, 100]).allSatisfy { abs($0 - 512) < 150 }, "equals share")
    }

    @Test func `a loop gets all the memory that it needs, or next to none`() {
        let other = Division.Holder(held: 600, curve: Self.power(50), loadTime: 1)
        let fits = settle([.init(held: 424, curve: Self.loop(700), loadTime: 1), other], from: [424, 600])
        #expect(fits[0] >= 690, "\(fits)")
        let not = settle([.init(held: 424, curve: Self.loop(2000), loadTime: 20), other], from: [424, 600])
        #expect(not[0] < 150, "\(not)")
    }

    @Test func `memory does not move for a gain of less than a hundredth of the saved load time`() {
        let one = Division.Holder(held: 512, curve: Self.power(100), loadTime: 1)
        let other = Division.Holder(held: 512, curve: Self.power(104), loadTime: 1)
        let result = Division.next([one, other], from: [500, 524], budget: 1024)
        #expect(!result.hasMoved && result.gain < Division.leastGain && result.shares == [500, 524])
    }

    @Test func `a tenth of the memory moves at once`() {
        let cheap = Division.Holder(held: 512, curve: Self.power(100), loadTime: 1)
        let dear = Division.Holder(held: 512, curve: Self.power(100), loadTime: 1000)
        let result = Division.next([cheap, dear], from: [512, 512], budget: 1024)
        #expect(result.hasMoved && result.gain > Division.leastGain)
        #expect((100...103).contains(result.shares[1] - 512), "\(result.shares)")
    }

    @Test func `a holder without a curve keeps its share`() {
        let known = Division.Holder(held: 300, curve: Self.power(100), loadTime: 1)
        let dear = Division.Holder(held: 300, curve: Self.power(100), loadTime: 100)
        let unknown = Division.Holder(held: 424, curve: nil, loadTime: 1000)
        var young = Self.power(100)
        young.isReliable = false
        let shares = settle([known, unknown, dear], from: [300, 424, 300])
        #expect(shares[1] == 424 && shares[2] > 400, "\(shares)")
        let alone = Division.next([known, unknown, .init(held: 1, curve: young, loadTime: 1)], from: [600, 423, 1], budget: 1024)
        #expect(!alone.hasMoved && alone.shares == [600, 423, 1], "one curve is no division")
    }

    @Test func `shares follow the memory within their bounds`() {
        let pinned = Division.Holder(held: 300, curve: nil, loadTime: 1, least: 300)
        let limited = Division.Holder(held: 100, curve: nil, loadTime: 1, most: 150)
        let free = Division.Holder(held: 600, curve: nil, loadTime: 1)
        #expect(Division.next([pinned, limited, free], from: [300, 100, 600], budget: 2000).shares == [616, 150, 1233])
        let less = Division.next([pinned, limited, free], from: [300, 100, 600], budget: 400).shares
        #expect(less[0] == 300 && less[1] + less[2] <= 100 && less[2] > less[1], "\(less)")
        #expect(Division.next([pinned, limited, free], from: [300, 100, 600], budget: 100).shares == [300, 0, 0])
    }

    @Test(arguments: [1, 3, 20])
    func `a holder keeps its least share, even if that leaves the others less than a unit each`(others: Int) {
        let precious = Division.Holder(held: 100_000, curve: Self.power(50_000), loadTime: 1, least: 100_000)
        let dear = Division.Holder(held: 100, curve: Self.power(50_000), loadTime: 1000)
        let holders = [precious] + Array(repeating: dear, count: others), budget = 100_000 + 100 * others
        let best = Division.best(holders, budget: budget)
        #expect(best[0] >= 100_000 && best.reduce(0, +) <= budget, "\(best)")
        let next = Division.next(holders, from: holders.map(\.held), budget: budget).shares
        #expect(next[0] >= 100_000 && next.reduce(0, +) <= budget, "\(next)")
    }

    @Test func `extreme numbers do not trap`() {
        let worst = [
            Division.Holder(held: .max, curve: Self.power(100), loadTime: .nan, least: .min, most: .min),
            Division.Holder(held: .min, curve: Self.loop(700, requests: .infinity), loadTime: .infinity, most: .max),
            Division.Holder(held: 0, curve: Self.power(.infinity), loadTime: -1, least: .max),
            Division.Holder(held: 1, curve: Self.power(0), loadTime: 3.6e12),
        ]
        for budget in [Int.min, 0, 1, 63, 64, 1 << 30, .max] {
            for shares in [[Int.max, .max, .min, 0], []] {
                let result = Division.next(worst, from: shares, budget: budget)
                #expect(result.shares.count == 4 && result.gain >= 0 && result.gain <= 1, "\(budget): \(result)")
            }
        }
        #expect(Division.next([], from: [], budget: 100).shares.isEmpty)
    }

    @Test(arguments: seeds(0..<4))
    func `the division is as good as the best one that a search over units finds`(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let holders = (0..<3).map { _ in
            var misses = 1000.0
            let points = (1...8).map { part in
                misses *= Double.random(in: 0.2...1, using: &random)
                return MissCurve.Point(bytes: part * 80_000, misses: misses)
            }
            return Division.Holder(
                held: 213_000, curve: MissCurve(requests: 1000, points: points), loadTime: Double.random(in: 1...50, using: &random))
        }
        func cost(_ shares: [Int]) -> Double { zip(holders, shares).reduce(0) { $0 + $1.0.cost(at: $1.1) } }
        var least = Double.infinity
        for first in 1...62 {
            for second in 1...63 - first { least = min(least, cost([first, second, 64 - first - second].map { $0 * 10_000 })) }
        }
        let settled = settle(holders, from: [213_000, 213_000, 214_000], budget: 640_000)
        let avoidable = holders.reduce(0) { $0 + $1.cost(at: 0) - $1.cost(at: 640_000) }
        #expect(
            (cost(settled) - least) / avoidable < Division.leastGain * 1.2, "\(settled)")
    }

    // MARK: Many holders

    @Test func `with more holders than units, memory goes to the holders that save the most load time`() {
        var random = SeededGenerator(seed: usualSeed(11))
        let budget = 100_000
        let holders: [Division.Holder] = (0..<500).map { index in
            let scale = Double.random(in: 100...3000, using: &random), load = index < 50 ? 400.0 : 1
            return Division.Holder(held: budget / 500, curve: Self.power(scale), loadTime: load)
        }
        let shares = settle(holders, from: holders.map(\.held), budget: budget)
        #expect(shares.reduce(0, +) > budget * 9 / 10, "all memory is in use")
        func cost(_ shares: [Int]) -> Double { zip(holders, shares).reduce(0) { $0 + $1.0.cost(at: $1.1) } }
        #expect(shares.prefix(50).reduce(0, +) > budget / 2, "a tenth of the holders, for loads that take 400 times as long")
        #expect(cost(shares) < 0.75 * cost(holders.map(\.held)))
    }

    @Test func `of many loops, those that fit get all the memory that they need, and others next to none`() {
        let holders = (0..<40).map { _ in Division.Holder(held: 1000, curve: Self.loop(4000), loadTime: 1) }
        let shares = Division.best(holders, budget: 40_000)
        #expect(shares.count { $0 >= 4000 } == 10 && shares.reduce(0, +) <= 40_000, "\(shares)")
    }

    @Test func `many holders keep within their bounds`() {
        let holders: [Division.Holder] = (0..<40).map { index in
            let most = index == 39 ? 120 : Int.max
            return Division.Holder(held: 100, curve: Self.power(100), loadTime: Double(index), least: 50, most: most)
        }
        let shares = Division.best(holders, budget: 8000)
        #expect(shares.allSatisfy { $0 >= 50 } && shares[39] <= 120 && shares.reduce(0, +) <= 8000, "\(shares)")
        #expect(Division.best(holders, budget: 40).reduce(0, +) <= 40, "less than the least of each")
    }

    // MARK: The sum

    @Test(arguments: [3, 40]) func `the sum of curves is the cost of the best division at each size`(_ count: Int) {
        let holders: [Division.Holder] = (0..<count).map { index in
            let scale = Double(50 + 20 * index), load = Double(1 + index % 3)
            return Division.Holder(held: 64, curve: Self.power(scale), loadTime: load)
        }
        let budget = 512 * count, sum = Division.sum(holders, upTo: budget)
        #expect(sum.isReliable && sum.points.count <= Division.mostPoints)
        #expect(abs(sum.requests - holders.reduce(0) { $0 + $1.cost(at: 0) }) < 1e-6)
        for bytes in [budget / 8, budget / 2, budget] {
            let shares = Division.best(holders, budget: bytes)
            let cost: Double = zip(holders, shares).reduce(0) { $0 + $1.0.cost(at: $1.1) }
            #expect(abs(sum.misses(at: bytes) - cost) < 0.05 * sum.requests, "at \(bytes): \(sum.misses(at: bytes)), not \(cost)")
        }
    }

    @Test func `the sum of curves counts the bytes of holders without a curve, and keeps the cliff of a loop`() {
        let loop = Division.Holder(held: 10, curve: Self.loop(32_000), loadTime: 2), unknown = Division.Holder(held: 5000, curve: nil, loadTime: 1)
        let sum = Division.sum([loop, unknown], upTo: 64_000)
        #expect(sum.misses(at: 5000 + 30_000) == 2000 && sum.misses(at: 5000 + 33_000) == 0, "\(sum.points)")
        #expect(!Division.sum([unknown], upTo: 64_000).isReliable)
    }
}
