import CAllocationCounter
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The order in which a shortage asks purgeables, and the purgeables that are left out.
@Suite(.serialized, .timeLimit(.minutes(5))) struct RebuildOrderTests {
    /// Returns the turns, as positions in `rates`.
    private func turns(_ rates: [Double?]) -> [[Int]] {
        var order = RebuildOrder(rates.indices) { rates[$0] }, turns: [[Int]] = []
        while order.advance(rates.indices, { rates[$0] }) { turns.append(rates.indices.filter { order.includes(rates[$0]) }) }
        return turns
    }

    @Test func `purgeables quickest to rebuild release first, and similar ones together`() {
        #expect(turns([100, 1, 10]) == [[1], [2], [0]])
        #expect(turns([5, 9, 4, 8.1, 100, 16]) == [[0, 2], [1, 3, 5], [4]])
        #expect(turns([0, 0, 3]) == [[0, 1], [2]])
        #expect(turns([]) == [] && turns([7]) == [[0]])
    }

    @Test func `unknown rates stand in the middle, and impossible rates count as unknown`() {
        #expect(turns([nil, nil, nil]) == [[0, 1, 2]])
        #expect(turns([1000, nil, 1, 30]) == [[2], [1, 3], [0]])
        #expect(turns([1000, nil, 1]) == [[1, 2], [0]], "of two the lesser")
        #expect(turns([.nan, 1, .infinity, 50, -1, 900, 1e301]) == [[1], [0, 2, 3, 4, 6], [5]])
    }

    @Test func `each purgeable has one turn, in order, with any rates`() {
        for seed in seeds(0..<300) {
            var random = SeededGenerator(seed: seed)
            let rates: [Double?] = (0..<Int.random(in: 1...20, using: &random)).map { _ in
                Int.random(in: 0..<5, using: &random) == 0
                    ? nil : Double(1 << Int.random(in: 0..<16, using: &random)) * Double.random(in: 1..<2, using: &random)
            }
            let turns = turns(rates)
            #expect(turns.flatMap { $0 }.sorted() == Array(rates.indices), "seed \(seed)")
            let known = turns.map { turn in turn.compactMap { rates[$0] } }.filter { !$0.isEmpty }
            for (earlier, later) in zip(known, known.dropFirst()) { #expect(earlier.max()! < later.min()!, "seed \(seed)") }
            for turn in known { #expect(turn.max()! <= turn.min()! * RebuildOrder.likeness, "seed \(seed)") }
        }
    }

    @Test(.needs(allocation_count_works(), "a sanitizer is in front of malloc"))
    func `T27 choosing the turn allocates nothing`() {
        let rates: [Double?] = [3, nil, 100, 4, 1, nil, 70]
        func count() -> Int {
            var order = RebuildOrder(0..<rates.count) { rates[$0] }, asked = 0
            while order.advance(0..<rates.count, { rates[$0] }) { for index in 0..<rates.count where order.includes(rates[index]) { asked += 1 } }
            return asked
        }
        #expect(count() == 7)
        let before = allocation_count()
        let asked = count()
        let after = allocation_count()
        #expect(asked == 7 && after - before == 0)
    }

    // MARK: At a manager

    private final class Holder: Purgeable {
        let name: String
        let rebuildCost: RebuildCost
        let rebuildTimePerByte: Double?
        let releasesUnderPressure: Bool
        private let held: Mutex<Int>
        let asked: Log<String>

        init(_ name: String, _ rate: Double?, _ asked: Log<String>, mebibytes: Int, _ cost: RebuildCost = .cheap, releases: Bool = true) {
            (self.name, rebuildTimePerByte, self.asked, rebuildCost, releasesUnderPressure) = (name, rate, asked, cost, releases)
            held = Mutex(mebibytes << 20)
        }

        var heldBytes: Int { held.withLock { $0 } }
        func release(_ target: Int) -> Int {
            asked.add(name)
            return held.withLock { held in
                let given = min(held, target)
                held -= given
                return given
            }
        }
    }

    @Test func `C80 within one class a pass empties the purgeables quickest to rebuild before slower ones`() async throws {
        try await RunningManager.run { running in
            let asked = Log<String>()
            let slow = Holder("slow", 1000, asked, mebibytes: 100), quick = Holder("quick", 10, asked, mebibytes: 30),
                like = Holder("like", 15, asked, mebibytes: 30)
            let unknown = Holder("unknown", nil, asked, mebibytes: 500), dear = Holder("dear", 1, asked, mebibytes: 100, .expensive)
            for holder in [slow, dear, quick, like, unknown] { running.manager.register(holder) }
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(180))
            let report = try #require(await reports.next())
            // The median of the known rates is the rate of `like`.
            #expect(asked.all.first == "quick" && Set(asked.all).isSubset(of: ["quick", "like", "unknown"]), "\(asked.all) for \(report.asked)")
            #expect(report.released >= report.asked)
        }
    }

    @Test func `an operator's release keeps the same order`() {
        let manager = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper), asked = Log<String>()
        for (name, rate) in [("slow", 1000.0), ("unknown", nil), ("quick", 1), ("middle", 30)] as [(String, Double?)] {
            manager.register(Holder(name, rate, asked, mebibytes: 1))
        }
        manager.register(Holder("trivial", 1e6, asked, mebibytes: 1, .trivial))
        let report: ActionReport = manager.release(.max)
        #expect(asked.all == ["trivial", "quick", "unknown", "middle", "slow"] && report.released == .mebibytes(5))
    }

    @Test func `a cache's loads decide the cache's place`() async throws {
        let clock = ManualClock(), manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        let caches = [("slow", 50), ("quick", 1)].map { name, milliseconds in
            let cache = PurgeableCache<Int, Int>(name, lifetime: CacheLifetime(nil, nil, nil), time: clock.timekeeper, cost: { _, _ in 1000 })
            for key in 0..<10 {
                _ = try? cache.valueBlocking(forKey: key) { () throws -> Int in
                    clock.advance(by: .milliseconds(milliseconds))
                    return key
                }
            }
            manager.register(cache)
            return cache
        }
        let report: ActionReport = await manager.release(10_000)
        #expect(report.released == 10_000 && caches[0].count == 10 && caches[1].count == 0)
    }

    // MARK: Left out

    @Test func `an opted-out purgeable is counted and bounded, and never asked under pressure`() async throws {
        try await RunningManager.run { running in
            let kept = PurgeableCache<Int, Int>("kept", rebuildCost: .trivial, releasesUnderPressure: false, cost: { _, _ in 1 << 20 })
            let given = PurgeableCache<Int, Int>("given", rebuildCost: .precious, cost: { _, _ in 1 << 20 })
            for key in 0..<100 { kept.insert(key, forKey: key) }
            for key in 0..<100 { given.insert(key, forKey: key) }
            running.manager.register(kept)
            running.manager.register(given)
            #expect(running.manager.heldBytes() == 200 << 20 && running.manager.heldBytes(in: .named("kept")) == 100 << 20)
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(20))
            var report = try #require(await reports.next())
            while report.action != .release { report = try #require(await reports.next()) }
            #expect(report.released > .zero && kept.count == 100 && given.count < 100)
            // Without room to grow, the cache replaces its own entries.
            await running.available(.mebibytes(20), after: .seconds(1))
            for key in 1000..<1050 { kept.insert(key, forKey: key) }
            #expect(kept.count <= 100)
            // A release from all purgeables leaves the opted-out cache out. A release that names the cache does not.
            let all: ActionReport = await running.manager.release(.max)
            #expect(kept.count > 0 && given.count == 0 && all.outcome == .done)
            let named: ActionReport = await running.manager.release(10 << 20, from: .named("kept"))
            #expect(named.released == .mebibytes(10))
        }
    }

    @Test func `no pass begins if all purgeables have opted out`() async throws {
        try await RunningManager.run { running in
            let asked = Log<String>()
            running.manager.register(Holder("kept", nil, asked, mebibytes: 100, releases: false))
            let cache = PurgeableCache<Int, Int>("kept too", releasesUnderPressure: false, cost: { _, _ in 1 << 20 })
            for key in 0..<100 { cache.insert(key, forKey: key) }
            running.manager.register(cache)
            for _ in 0..<10 { await running.available(.mebibytes(20), after: .seconds(1)) }
            #expect(asked.all.isEmpty && cache.count == 100)
        }
    }
}
