import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The rounds of a divider, with caches that are only numbers.
@Suite struct DividerRuleTests {
    /// A cache that is only numbers, and notes each call.
    private final class NotedCache: SharedPurgeable {
        struct State {
            var held: Int
            var limit: ByteCount?
            var learnt: Learnt?
            /// The most that the cache evicts in one call.
            var gives = 0
            var calls: [String] = []
            /// The sizes of the rounds that have ended.
            var rounds: [Int] = []
            var evictions: [Int] = []
            var share: Int?
            /// Called at the end of a round of the cache, and when the cache gets a share.
            var onEndRound: (@Sendable () -> Void)?, onShare: (@Sendable () -> Void)?
        }

        let name: String, rebuildCost: RebuildCost
        private let state: Mutex<State>

        init(_ name: String, held: Int, _ cost: RebuildCost = .cheap, learnt: Learnt? = nil) {
            (self.name, rebuildCost) = (name, cost)
            state = Mutex(State(held: held, learnt: learnt))
        }

        var now: State { state.withLock { $0 } }
        func set(_ change: (inout State) -> Void) { state.withLock { change(&$0) } }

        var statistics: CacheStatistics { CacheStatistics() }
        var holdsAtMost: ByteCount? { state.withLock { $0.limit } }
        var heldBytes: Int { state.withLock { $0.held } }
        func attach(_ meter: ChargeMeter) -> Bool { true }
        func release(_ target: Int) -> Int { 0 }
        func learn(onRound: (@Sendable () -> Void)?) {
            let call = onRound == nil ? "stop" : "learn"
            state.withLock { $0.calls.append(call) }
        }
        func endRound(upTo bytes: Int, at now: Duration) -> Learnt? {
            self.now.onEndRound?()
            return state.withLock { state in
                state.rounds.append(bytes)
                return state.learnt
            }
        }
        func setShare(_ bytes: Int?) {
            if bytes != nil { now.onShare?() }
            state.withLock { $0.share = bytes }
        }
        func evictAboveShare(_ count: Int) -> Int {
            state.withLock { state in
                state.evictions.append(count)
                return min(count, state.gives)
            }
        }
    }

    private let meter = ChargeMeter {}, registry = PurgeableRegistry(), clock = ManualClock(), woken = Counter()

    private func divider(of caches: [NotedCache]) -> Divider {
        for cache in caches { registry.add(PurgeableRegistry.Entry(cache, meter: meter, volatileMeter: meter)) }
        let woken = woken
        return Divider(registry: registry, meter: meter, time: clock.timekeeper) { woken.add(1) }
    }

    private func round(_ divider: Divider) {
        divider.round { _, body in
            body()
            return true
        }
    }

    private func entry(_ name: String) -> PurgeableRegistry.Entry? { registry.snapshot.first { $0.name == name } }

    /// Misses that fall from all of a thousand requests to none in 4 MiB.
    private static func learnt(
        isReliable: Bool = true, misses: Double = 0, loadTime: Double? = 1e6, rate: Double? = nil
    ) -> Learnt {
        let curve = MissCurve(
            requests: 1000, points: [.init(bytes: 4 << 20, misses: misses)], isReliable: isReliable)
        return Learnt(curve: curve, loadTime: loadTime, rate: rate)
    }

    // MARK: - Times of rounds

    @Test func `a bell wakes once until the next round`() {
        let woken = Counter(), bell = Divider.Bell { woken.add(1) }
        #expect(!bell.hasRung)
        bell.ring()
        bell.ring()
        #expect(bell.hasRung && woken.value == 1)
        bell.silence()
        #expect(!bell.hasRung)
        bell.ring()
        #expect(woken.value == 2)
    }

    @Test func `a round is due ten seconds after the last one, or a tenth of a second once the bell has rung`() {
        let divider = divider(of: [])
        func due(_ milliseconds: Int...) -> [Bool] { milliseconds.map { divider.request(at: .milliseconds($0)) } }
        #expect(due(0, 9999, 10_000, 10_000, 19_999, 20_000) == [false, false, true, false, false, true])
        #expect(due(5000, 5000, 14_999, 15_000) == [true, false, false, true], "time has run backwards")
        divider.share(ProcessShare(bytes: nil, total: 1 << 20))
        #expect(due(15_099, 15_100, 15_199, 15_200) == [false, true, false, true])
        round(divider)
        #expect(due(25_199, 25_200) == [false, true], "the round has silenced the bell")
    }

    @Test func `a requested round runs once`() {
        let divider = divider(of: [])
        func run() -> Bool { inTurn { divider.run($0) } }
        let before = run(), isDue = divider.request(at: .seconds(10)), requested = run(), after = run()
        #expect(before && isDue && requested && after && divider.rounds == 1)
    }

    @Test func `each new share of a supervisor wakes the manager`() {
        let divider = divider(of: []), share = ProcessShare(bytes: 1 << 20, total: 1 << 30)
        let shares: [ProcessShare?] = [nil, share, share, ProcessShare(bytes: nil, total: 1 << 30), nil, nil]
        let wakes = shares.map { share in
            divider.share(share)
            round(divider)
            return woken.value
        }
        #expect(wakes == [0, 1, 1, 2, 3, 3])
    }

    // MARK: - The end

    /// The moment within a round at which the manager ends.
    enum Moment: CaseIterable { case before, learning, sharing, after }

    @Test(arguments: Moment.allCases)
    func `after the manager's end no cache learns, has a share or makes room for others`(moment: Moment) throws {
        let wide = NotedCache("wide", held: 4 << 20, learnt: Self.learnt(misses: 900))
        let narrow = NotedCache("narrow", held: 4 << 20, learnt: Self.learnt())
        for cache in [wide, narrow] { cache.set { $0.gives = .max } }
        let divider = divider(of: [wide, narrow])
        let end = { @Sendable [weak divider] () -> Void in divider?.end() }
        switch moment {
        case .before: end()
        case .learning: wide.set { $0.onEndRound = end }
        case .sharing: wide.set { $0.onShare = end }
        case .after: break
        }
        round(divider)
        if moment == .after {
            #expect(wide.now.share != nil && narrow.now.share != nil)
            end()
        }
        for cache in [wide, narrow] {
            #expect(cache.now.share == nil && cache.now.calls.last != "learn")
            #expect(try #require(entry(cache.name)).currentShare == 0)
        }
        #expect(meter.makeRoom(1) == 0)
    }

    // MARK: - Learning

    @Test(
        arguments: [
            (2, nil, 0, 10), (100, nil, 0, 16), (nil, nil, 0, 16), (100, 6, 64, 64), (100, 6, 1, 6), (2, 100, 1, 10),
        ] as [(Int?, Int?, Int, Int)])
    func `caches learn up to twice what they hold, as far as there is room, and up to what processes share`(
        room: Int?, bytes: Int?, total: Int, size: Int
    ) {
        let caches = [NotedCache("one", held: 3 << 20), NotedCache("two", held: 5 << 20)]
        let divider = divider(of: caches)
        if let room { meter.allow(.mebibytes(room), since: .zero) }
        if let bytes { divider.share(ProcessShare(bytes: bytes << 20, total: total << 20)) }
        round(divider)
        #expect(caches.allSatisfy { $0.now.rounds == [size << 20] && $0.now.calls == ["learn"] })
    }

    @Test(
        arguments: [
            ([true, true], nil, true), ([true, false], nil, false), ([false, false], nil, false),
            ([false, false], 6, true), ([true, false], 6, true),
        ] as [([Bool], Int?, Bool)])
    func `memory is divided among two caches whose misses are known, or by a share of a supervisor`(
        known: [Bool], bytes: Int?, isDivided: Bool
    ) {
        let caches = zip(["one", "two"], known).map { name, isKnown in
            NotedCache(name, held: 4 << 20, learnt: Self.learnt(isReliable: isKnown))
        }
        let divider = divider(of: caches)
        meter.allow(.mebibytes(100), since: .zero)
        if let bytes { divider.share(ProcessShare(bytes: bytes << 20, total: 64 << 20)) }
        round(divider)
        for (name, isKnown) in zip(["one", "two"], known) {
            let share = entry(name)?.currentShare ?? -1, worth = entry(name)?.worth.withLock { $0 }
            #expect((share > 0) == isDivided && (worth != nil) == (isDivided && isKnown))
        }
        if !isDivided { #expect(meter.room(leavesReserve: true) == meter.room, "nobody lacks anything") }
    }

    @Test func `a share of nothing is one byte, because zero would stand for no share`() {
        let divider = divider(of: [NotedCache("one", held: 100), NotedCache("two", held: 100)])
        divider.share(ProcessShare(bytes: 0, total: 1 << 20))
        round(divider)
        #expect(entry("one")?.currentShare == 1 && entry("two")?.currentShare == 1)
    }

    @Test func `precious contents keep their place in the share of a process`() {
        let divider = divider(
            of: [NotedCache("cheap", held: 4 << 20), NotedCache("precious", held: 4 << 20, .precious)])
        divider.share(ProcessShare(bytes: 6 << 20, total: 64 << 20))
        round(divider)
        #expect(entry("precious")?.currentShare == 4 << 20 && entry("cheap")?.currentShare == 2 << 20)
    }

    @Test func `a rate of requests stays known while a round does not tell another one`() {
        let caches = ["one", "two"].map { NotedCache($0, held: 4 << 20, learnt: Self.learnt()) }
        let divider = divider(of: caches)
        let rates = [nil, 50, nil, 70].map { (rate: Double?) -> Double? in
            caches[0].set { $0.learnt = Self.learnt(rate: rate) }
            round(divider)
            return entry("one")?.worth.withLock { $0?.requestsPerSecond }
        }
        #expect(rates == [0, 50, 50, 70])
    }

    @Test func `a load that was never measured takes the median of the others, or what the class stands for`() {
        let costs: [(RebuildCost, Double)] = [(.trivial, 1e4), (.cheap, 1e6), (.expensive, 3e7), (.precious, 1e9)]
        let classes = divider(
            of: costs.map { NotedCache("\($0.0)", held: 4 << 20, $0.0, learnt: Self.learnt(loadTime: nil)) })
        round(classes)
        for (cost, time) in costs {
            let worth = entry("\(cost)")?.worth.withLock { $0 }
            #expect(worth?.loadTime == time)
        }
        let others = [4.0, 1, 3, 2].map { NotedCache("known", held: 4 << 20, learnt: Self.learnt(loadTime: $0)) }
        round(divider(of: others))
        let worth = entry("cheap")?.worth.withLock { $0 }
        #expect(worth?.loadTime == 3)
    }

    // MARK: - The offer to a supervisor

    @Test func `a process without known misses offers that memory is wanted, by the time of its loads`() {
        let caches = [
            NotedCache("one", held: 3 << 20, learnt: Self.learnt(isReliable: false, loadTime: 100, rate: 10)),
            NotedCache("two", held: 5 << 20, learnt: Self.learnt(isReliable: false, loadTime: 5, rate: 20)),
            NotedCache("three", held: 0),
        ]
        let divider = divider(of: caches)
        #expect(divider.allowance(held: .zero, room: .mebibytes(7)) == nil && divider.offer == nil)
        divider.share(ProcessShare(bytes: nil, total: 64 << 20))
        round(divider)
        let offer = divider.offer
        #expect(offer?.held == 8 << 20 && offer?.room == 7 << 20)
        #expect(offer?.curve.requests == 1100 && offer?.curve.points == [] && offer?.curve.isReliable == false)
        // The offer tells what is held now, by caches without a limit.
        caches[0].set { $0.held = 4 << 20 }
        caches[1].set { $0.limit = .mebibytes(9) }
        #expect(divider.offer?.held == 4 << 20)
        divider.share(nil)
        #expect(divider.offer == nil)
    }

    @Test func `a process offers the load time in a second`() {
        let caches = ["one", "two"].map {
            NotedCache($0, held: 4 << 20, learnt: Self.learnt(loadTime: 2, rate: 500))
        }
        let divider = divider(of: caches)
        divider.share(ProcessShare(bytes: nil, total: 64 << 20))
        round(divider)
        #expect(divider.offer?.curve.isReliable == true && divider.offer?.curve.requests == 2000)
    }

    @Test func `what caches may take ends with the share, and counts what others hold`() {
        let divider = divider(of: [NotedCache("one", held: 2 << 20)])
        meter.takeAnyway(3 << 20)
        divider.share(ProcessShare(bytes: 4 << 20, total: 64 << 20))
        round(divider)
        #expect(divider.allowance(held: .mebibytes(1), room: nil) == .mebibytes(4))
        divider.share(ProcessShare(bytes: nil, total: 64 << 20))
        #expect(divider.allowance(held: .mebibytes(1), room: nil) == nil)
    }

    // MARK: - Evictions

    @Test(
        arguments: [
            (6, [9, 9], [[2], []]), (6, [1, 9], [[2], [1]]), (6, [0, 9], [[2], [2]]), (7, [9, 9], [[1], []]),
            (8, [9, 9], [[], []]), (nil, [9, 9], [[], []]),
        ] as [(Int?, [Int], [[Int]])])
    func `caches evict what a process holds beyond its share`(bytes: Int?, gives: [Int], evictions: [[Int]]) {
        let caches = [NotedCache("one", held: 3), NotedCache("two", held: 5)]
        for (cache, most) in zip(caches, gives) { cache.set { $0.gives = most } }
        let divider = divider(of: caches)
        divider.share(ProcessShare(bytes: bytes, total: 1 << 20))
        round(divider)
        #expect(caches.map(\.now.evictions) == evictions)
    }

    @Test(arguments: 1...4) func `a round ends where its thread was replaced`(last: Int) {
        let caches = [NotedCache("one", held: 3), NotedCache("two", held: 5), NotedCache("limited", held: 1)]
        caches[2].set { $0.limit = 10 }
        let divider = divider(of: caches)
        divider.share(ProcessShare(bytes: 6, total: 1 << 20))
        // The calls end the part of the limited cache, then the rounds of both others, then evict.
        var calls = 0
        let goesOn = divider.round { _, body in
            calls += 1
            body()
            return calls < last
        }
        #expect(!goesOn && calls == last)
        #expect(caches[2].now.calls == ["stop"] && caches[0].now.rounds.count == (last > 1 ? 1 : 0))
    }

    @Test func `caches below their share have a reserve, and the cache furthest above makes room first`() {
        let caches = [NotedCache("one", held: 2 << 20), NotedCache("two", held: 2 << 20)]
        let divider = divider(of: caches)
        meter.allow(.mebibytes(100), since: .zero)
        divider.share(ProcessShare(bytes: 8 << 20, total: 64 << 20))
        round(divider)
        #expect(meter.room(leavesReserve: true) == meter.room - 4 << 20 && meter.makeRoom(1) == 0)
        #expect(caches.allSatisfy { $0.now.evictions.isEmpty })
        divider.share(ProcessShare(bytes: 4 << 20, total: 64 << 20))
        for (cache, held) in zip(caches, [3, 9]) { cache.set { $0.held = held << 20 } }
        round(divider)
        for cache in caches { cache.set { ($0.evictions, $0.gives) = ([], 10) } }
        #expect(meter.makeRoom(10) == 10 && caches.map(\.now.evictions) == [[], [10]])
        #expect(meter.makeRoom(15) == 15 && caches.map(\.now.evictions) == [[5], [10, 15]])
        #expect(meter.room(leavesReserve: true) == meter.room)
    }

    // MARK: - Moves

    @Test func `steps within ten seconds are one move, from the first shares to the last`() throws {
        let caches = [
            NotedCache("one", held: 1 << 20, learnt: Self.learnt()),
            NotedCache("two", held: 1 << 20, learnt: Self.learnt(misses: 1000)),
        ]
        let divider = divider(of: caches)
        var moves: [Divider.Move] = []
        for second in [1, 2] {
            clock.freeze(for: .seconds(1))
            round(divider)
            #expect(divider.moves.count == 1, "after \(second) s")
            moves.append(try #require(divider.moves.last))
        }
        let (first, second) = (moves[0], moves[1])
        #expect(first.began == .seconds(1) && first.at == .seconds(1) && second.began == .seconds(1))
        #expect(second.at == .seconds(2) && second.gain == max(first.gain, second.gain))
        #expect(second.changes.map(\.name) == ["one", "two"])
        #expect(second.changes.map(\.before) == first.changes.map(\.before))
        #expect(first.changes[0].before < first.changes[0].after && first.changes[0].after < second.changes[0].after)
        // Ten seconds after the first step, a step is a move of its own.
        clock.freeze(for: .seconds(9))
        round(divider)
        #expect(divider.moves.map(\.began) == [.seconds(1), .seconds(11)])
        #expect(divider.moves.last?.changes[0].before == second.changes[0].after)
    }
}
