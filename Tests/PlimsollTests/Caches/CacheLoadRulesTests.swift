import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Values that loads bring, and the callers that wait for them.
@Suite(.timeLimit(.minutes(5))) struct CacheLoadRulesTests {
    private let clock = ManualClock()

    private func cache(refreshAfter: Duration? = nil, limit: Int = .max) -> PurgeableCache<Int, String> {
        PurgeableCache(
            "loads", limit: .bytes(limit), lifetime: CacheLifetime(nil, nil, refreshAfter), shardCount: 1,
            time: clock.timekeeper, cost: { $1.utf8.count })
    }

    // MARK: Values

    @Test func `a look-up that may refresh the value counts a hit and a use`() async throws {
        let cache = cache(refreshAfter: .seconds(10))
        for key in 1...3 { cache.insert("v", forKey: key) }
        let value = try await cache.value(forKey: 1) { "never" }
        #expect(value == "v" && cache.statistics.hits == 1 && cache.statistics.misses == 0)
        #expect(cache.coldest().map(\.key) == [2, 3, 1])
    }

    @Test func `a refreshed value that is refused leaves the old one, and another attempt follows`() async throws {
        let cache = cache(refreshAfter: .seconds(10), limit: 5), loads = Counter()
        cache.insert("old", forKey: 1)
        try await until("the second attempt") {
            clock.freeze(for: .seconds(10))
            let value = try await cache.value(forKey: 1) {
                loads.add(1)
                return "too large"
            }
            #expect(value == "old")
            return loads.value >= 2
        }
        #expect(cache.value(forKey: 1) == "old")
    }

    @Test func `a loaded value replaces one that has expired at this moment`() throws {
        let cache = cache()
        let value = try cache.valueBlocking(forKey: 1) {
            // An insert would revoke this load.
            cache.keep("expired", 1, 7, [], LoadOrigin(), timeToLive: .zero)
            return "loaded"
        }
        #expect(value == "loaded" && cache.value(forKey: 1) == "loaded")
    }

    @Test func `a load is not kept after an insert during the load, whose value has been evicted`() async throws {
        let cache = cache()
        let first = try cache.valueBlocking(forKey: 1) {
            cache.insert("new", forKey: 1)
            _ = cache.release(.max)
            return "old"
        }
        #expect(first == "old" && !cache.contains(1))
        let second = try await cache.value(forKey: 2) {
            cache.insert("new", forKey: 2)
            _ = cache.release(.max)
            return "old"
        }
        #expect(second == "old" && !cache.contains(2))
        let many = try await cache.values(forKeys: [3, 4]) { _ in
            cache.insert("new", forKey: 3)
            _ = cache.release(.max)
            return [3: "old", 4: "kept"]
        }
        #expect(many == [3: "old", 4: "kept"] && cache.values(forKeys: [1, 2, 3, 4]) == [4: "kept"])
    }

    @Test func `a load of many values without bytes tells nothing about the time of a byte`() async throws {
        let cache = cache()
        let values = try await cache.values(forKeys: [1, 2]) { keys in
            Dictionary(uniqueKeysWithValues: keys.map { ($0, "") })
        }
        #expect(values == [1: "", 2: ""] && cache.statistics.loads == 1 && cache.rebuildTimePerByte == nil)
    }

    // MARK: Waiting

    @Test func `the first outcome of a waiter counts`() {
        let waiter = LoadWaiter<Int>(mayLead: true)
        #expect(!waiter.isCompleted && waiter.complete(.value(1)) && waiter.isCompleted && !waiter.complete(.value(2)))
        guard case .value(1) = waiter.park() else {
            Issue.record("another outcome")
            return
        }
    }

    @Test func `an offer is taken once, and only by a waiter that may lead`() {
        let leader = LoadWaiter<Int>(mayLead: true), follower = LoadWaiter<Int>(mayLead: false)
        #expect(leader.offer() && !leader.offer() && !follower.offer())
        #expect(leader.isCompleted && follower.isCompleted)
        guard case .yours = leader.park(), case .again = follower.park() else {
            Issue.record("other outcomes")
            return
        }
    }

    @Test func `a line is searched for abandoned waiters only once the line has doubled`() {
        var line = LoadLine<Int>(), gone = 0
        let waiters = (0..<129).map { _ in LoadWaiter<Int>(mayLead: true) }
        for waiter in waiters { gone += line.append(waiter).count }
        for waiter in waiters[..<10] { _ = waiter.complete(.cancelled) }
        for _ in 129..<256 { gone += line.append(LoadWaiter(mayLead: true)).count }
        #expect(gone == 0 && line.count == 256)
        gone += line.append(LoadWaiter(mayLead: true)).count
        #expect(gone == 10 && line.count == 247)
    }

    @Test func `a line keeps no waiter that has been served`() {
        var line = LoadLine<Int>()
        weak var served: LoadWaiter<Int>?
        do {
            let waiter = LoadWaiter<Int>(mayLead: true)
            served = waiter
            _ = line.append(waiter)
            _ = line.append(LoadWaiter(mayLead: true))
        }
        #expect(served != nil && line.count == 2)
        _ = line.popFirst()
        #expect(served == nil && line.count == 1)
    }
}
