import Foundation
import Plimsoll
import PlimsollTesting
import Synchronization
import TestServers
import Testing

@testable import PlimsollSpill

/// The queue in front of the store is memory too: bounded, released first, and closed while memory is critical.
@Suite(.timeLimit(.minutes(5))) struct SpillPressureTests {
    /// A store in this process that a test can block and make fail.
    final class HeldStore: SpillConnection, Sendable {
        struct State {
            var records: [String: [UInt8]] = [:]
            var ages: [Duration] = []
            var isHeld = false
            var problem: SpillError?
            /// Problems of single calls, by their number.
            var problems: [Int: SpillError] = [:]
            var calls = 0
            var removals = 0
        }
        let state = Mutex(State())
        var store: SpillStore { SpillStore(name: "held store", mostBytes: 100_000) { _ in self } }

        private func pass(removes: Bool = false) throws(SpillError) {
            let call = state.withLock { state in
                state.calls += 1
                if removes { state.removals += 1 }
                return state.calls
            }
            while state.withLock({ $0.isHeld }) { yieldThread() }
            if let problem = state.withLock({ $0.problem ?? $0.problems[call] }) { throw problem }
        }
        func put(_ key: String, _ bytes: [UInt8], age: Duration, within timeout: Duration) throws(SpillError) {
            try pass()
            state.withLock { state in
                state.records[key] = bytes
                state.ages.append(age)
            }
        }
        func get(_ key: String, most: Int, within timeout: Duration) throws(SpillError) -> [UInt8]? {
            try pass()
            return state.withLock { $0.records[key] }
        }
        func remove(_ key: String, within timeout: Duration) throws(SpillError) {
            try pass(removes: true)
            state.withLock { $0.records[key] = nil }
        }
        func hold(_ isHeld: Bool) { state.withLock { $0.isHeld = isHeld } }
        func fail(_ problem: SpillError?) { state.withLock { $0.problem = problem } }
        func fail(call: Int, _ problem: SpillError) { state.withLock { $0.problems[call] = problem } }
        var calls: Int { state.withLock { $0.calls } }
        /// Number of calls without removals, which the writer may begin at any time.
        var callsButRemovals: Int { state.withLock { $0.calls - $0.removals } }
    }

    private func limits(bytes: ByteCount = .mebibytes(4), count: Int = 1024) -> SpillLimits {
        var limits = SpillLimits.patient
        (limits.queuedBytes, limits.queuedCount) = (bytes, count)
        return limits
    }

    @Test func `a purge returns while the store hangs, and the oldest queued value is dropped`() async throws {
        let store = HeldStore()
        store.hold(true)
        let texts = SpilledTexts(store.store, limits: limits(bytes: .bytes(20_000)))
        // The writer waits with this value, so that all others stay in the queue.
        texts.spill(1000..<1001)
        await until { store.calls == 1 }
        // Each call returns: no caller waits for the store.
        texts.spill(0..<100)
        let statistics = texts.spilled.statistics
        #expect(statistics.queuedBytes <= .bytes(20_000) && statistics.queuedCount >= 10)
        #expect(statistics.dropped >= 70 && statistics.stored == 0)
        // The youngest values still wait, and are found in the queue.
        #expect(try await texts.text("key 99", loaded: "loaded").hasPrefix("text 99") && texts.spilled.statistics.queueHits == 1)
        store.hold(false)
        await until { texts.spilled.statistics.queuedCount == 0 }
        #expect(try await texts.text("key 97", loaded: "loaded").hasPrefix("text 97") && texts.spilled.statistics.hits == 1)
        #expect(try await texts.text("key 5", loaded: "loaded") == "loaded")
    }

    @Test func `a value that counts as stored is no longer found in the queue`() async throws {
        let store = HeldStore(), texts = SpilledTexts(store.store, limits: limits())
        for round in 1...5000 {
            texts.spill(0..<1)
            while texts.spilled.statistics.stored < round { yieldThread() }
            store.state.withLock { $0.records = [:] }
            guard try await texts.text("key 0", loaded: "loaded") == "loaded" else {
                Issue.record("round \(round): the value came from the queue")
                return
            }
        }
    }

    @Test func `the manager counts queued values, and releases them first`() async throws {
        let store = HeldStore(), texts = SpilledTexts(store.store, limits: limits())
        let run = Task { [manager = texts.manager] in try await manager.run() }
        texts.source.push(usage: .mebibytes(100), limit: .gibibytes(1))
        await texts.source.waitUntilIdle()
        store.hold(true)
        texts.spill(0..<100)
        #expect(texts.spilled.statistics.queuedCount > 90)
        texts.source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
        await until { texts.manager.level == .critical && texts.spilled.statistics.queuedBytes == .zero }
        let shed = texts.spilled.statistics.shed
        #expect(shed > 90)
        // No value enters the queue while memory is critical.
        texts.spill(200..<210)
        #expect(texts.spilled.statistics.shed == shed + 10 && texts.spilled.statistics.queuedBytes == .zero)
        store.hold(false)
        run.cancel()
        try await run.value
    }

    @Test(arguments: [SpillError.unanswered("made to fail"), .malformed("made to fail"), .refused("made to fail"), .unreachable("made to fail")])
    func `a failed removal forgets all records, so that no stale value is found`(problem: SpillError) async throws {
        let store = HeldStore(), texts = SpilledTexts(store.store)
        texts.spill(0..<5)
        await texts.written(5)
        store.fail(problem)
        texts.spilled.removeValue(forKey: "key 3")
        await until { texts.spilled.statistics.forgotten == 1 }
        store.fail(nil)
        // The record is still in the store, and is not found.
        #expect(store.state.withLock { $0.records.count } == 5)
        for key in 3..<5 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded") }
    }

    @Test func `a value during removal is not found, and a value during writing is found`() async throws {
        let store = HeldStore(), texts = SpilledTexts(store.store)
        texts.spill(0..<1)
        await texts.written(1)
        store.hold(true)
        let calls = store.calls
        texts.spilled.removeValue(forKey: "key 0")
        await until { store.calls > calls }
        #expect(texts.spilled.statistics.queuedCount == 0, "the writer has taken the value")
        #expect(try await texts.text("key 0", loaded: "loaded") == "loaded")
        store.hold(false)
        await until { texts.spilled.statistics.removed == 1 }
        #expect(texts.cache.removeValue(forKey: "key 0") == "loaded")
        await until { texts.spilled.statistics.removed == 2 }
        store.hold(true)
        texts.spill(1..<2)
        await until { texts.spilled.statistics.queuedCount == 0 }
        #expect(try await texts.text("key 1", loaded: "loaded").hasPrefix("text 1"))
        store.hold(false)
    }

    @Test func `a put that the server may still carry out late is never found after the next change`() async throws {
        let store = HeldStore(), texts = SpilledTexts(store.store)
        store.fail(.unanswered("held store: made to fail"))
        texts.spill(0..<1, "old")
        await until { texts.spilled.statistics.failures == 1 }
        store.fail(nil)
        #expect(texts.spilled.statistics.forgotten == 0)
        texts.spill(0..<1, "new")
        #expect(texts.spilled.statistics.forgotten == 1, "the name has changed, so that the old put may arrive at any time")
        await until { texts.spilled.statistics.stored == 1 }
        #expect(try await texts.text("key 0", loaded: "loaded").hasPrefix("new 0"))
    }

    @Test(arguments: [false, true])
    func `C67 a value that is being written during a purge by tag is not found afterwards`(isRemoved: Bool)
        async throws
    {
        // The store hangs, so that a look-up in the store ends without a value.
        let store = HeldStore(), texts = SpilledTexts(store.store, limits: .hasty)
        store.hold(true)
        defer { store.hold(false) }
        texts.spill(0..<1)
        await until { store.calls == 1 }
        if isRemoved { texts.spilled.removeValue(forKey: "key 0") }
        texts.cache.purge(tag: "tenant")
        #expect(try await texts.text("key 0", loaded: "loaded") == "loaded")
    }

    @Test func `C67 a value that is removed before the notice of its eviction arrives is not found afterwards`()
        async throws
    {
        let store = HeldStore(), texts = SpilledTexts(store.store), removed = Mutex<String?>(nil)
        for key in 0..<2 { texts.cache.insert("old", forKey: "key \(key)") }
        // Both values leave at once. The listeners hear of one after the other.
        texts.cache.onRemoval { [weak spilled = texts.spilled] key, _, _ in
            let other = removed.withLock { removed -> String? in
                guard removed == nil else { return nil }
                removed = key == "key 0" ? "key 1" : "key 0"
                return removed
            }
            if let other { spilled?.removeValue(forKey: other) }
        }
        _ = texts.cache.release(.max)
        let other = try #require(removed.withLock { $0 })
        #expect(try await texts.text(other, loaded: "loaded") == "loaded")
    }

    @Test func `C67 a value that another thread evicts during a purge by tag is not found afterwards`() async throws {
        let store = HeldStore(), texts = SpilledTexts(store.store), isFirst = Mutex(true)
        // More values than a purge takes out at once.
        let keys = (0..<40).map { "key \($0)" }
        for key in keys { texts.cache.insert("old", forKey: key, tags: ["tenant"]) }
        texts.cache.onRemoval { [weak cache = texts.cache] _, _, _ in
            let goes = isFirst.withLock { isFirst in
                defer { isFirst = false }
                return isFirst
            }
            guard goes, let cache else { return }
            let isDone = Mutex(false)
            Foundation.Thread.detachNewThread {
                _ = cache.release(.max)
                isDone.withLock { $0 = true }
            }
            blockUntil("the release") { isDone.withLock { $0 } }
        }
        texts.cache.purge(tag: "tenant")
        for key in keys { #expect(try await texts.text(key, loaded: "loaded") == "loaded") }
    }

    @Test func `a value that is evicted just before another is inserted is not found afterwards`() async throws {
        let store = HeldStore(), manager = ResourceManager(source: ScriptedPressureSource())
        let place = Mutex<PurgeableCache<String, String>?>(nil)
        defer { place.withLock { $0 = nil } }
        let cache = PurgeableCache<String, String>(
            "texts",
            cost: { _, value in
                if value == "new" { _ = place.withLock({ $0 })?.release(.max) }
                return 1
            })
        place.withLock { $0 = cache }
        let spilled = SpilledCache(cache, to: store.store, manager: manager, limits: .patient)
        cache.insert("old", forKey: "key")
        // The new value is over at once, and no notice of a removal reaches the store.
        spilled.insert("new", forKey: "key", timeToLive: .zero)
        #expect(try await spilled.value(forKey: "key") { "loaded" } == "loaded")
    }

    @Test(arguments: 0..<3)
    func `a refused thread costs what waits, and the next call starts the thread`(refused: Int) async throws {
        let store = HeldStore(), starts = Mutex(0)
        let engine = SpillEngine<String, String>(
            store: store.store, codec: .storable, encodeKey: { Array($0.utf8) }, limits: .patient, prefix: "texts",
            version: 1, secret: Array(repeating: 1, count: 32), generation: 7, level: { .normal },
            startThread: { _, body in
                let isRefused = starts.withLock { starts in
                    starts += 1
                    return starts == refused + 1
                }
                if !isRefused { Foundation.Thread.detachNewThread(body) }
                return !isRefused
            })
        defer { engine.stop() }
        if case .value = await engine.find("key") { Issue.record("no value was stored") }
        #expect(engine.statistics.lastProblem?.contains("cannot start a thread") == true)
        engine.put("key", "new", after: .max)
        await until { engine.statistics.stored == 1 }
        guard case .value("new", nil) = await engine.find("key") else {
            Issue.record("the value was not found: \(engine.statistics)")
            return
        }
        #expect(starts.withLock { $0 } == 4, "one attempt failed, and three threads run")
    }

    @Test func `a store known to be down gets a probe now and then, and takes no values`() async throws {
        let store = HeldStore()
        var limits = limits()
        (limits.shortestPause, limits.longestPause) = (.seconds(3600), .seconds(3600))
        let texts = SpilledTexts(store.store, limits: limits)
        store.fail(.unreachable("held store: made to fail"))
        for key in 0..<3 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded") }
        await until { texts.spilled.statistics.isStoreDown }
        let calls = store.callsButRemovals
        for key in 10..<50 { #expect(try await texts.text("key \(key)", loaded: "loaded") == "loaded") }
        texts.spill(60..<70)
        #expect(store.callsButRemovals == calls && texts.spilled.statistics.skipped >= 38 && texts.spilled.statistics.refusedWhileDown >= 10)
        #expect(texts.spilled.statistics.lastProblem == "held store: made to fail")
    }

    @Test func `damaged, truncated and foreign records are misses`() async throws {
        let store = HeldStore(), texts = SpilledTexts(store.store, generation: 7)
        texts.spill(0..<1)
        await texts.written(1)
        #expect(try await SpilledTexts(store.store, generation: 7).text("key 0", loaded: "loaded").hasPrefix("text 0"))
        let records = store.state.withLock { $0.records }
        let good = try #require(records.values.first)
        var wrongs = (0..<good.count).filter { $0 < 64 || $0 % 97 == 0 }.map { Array(good.prefix($0)) }
        for index in good.indices where index < 64 || index % 97 == 0 {
            var bent = good
            bent[index] ^= 4
            wrongs.append(bent)
        }
        wrongs.append(good + [0])
        for wrong in wrongs {
            // A separate store, because a damaged record is removed.
            let store = HeldStore()
            store.state.withLock { $0.records = records.mapValues { _ in wrong } }
            let reader = SpilledTexts(store.store, generation: 7)
            #expect(try await reader.text("key 0", loaded: "loaded") == "loaded")
            #expect(reader.spilled.statistics.damaged == 1, "\(reader.spilled.statistics)")
        }
    }

    @Test func `a value that is too large for the store or that cannot be encoded is left out and counted`() async throws {
        struct Refused: Error {}
        let store = HeldStore(), manager = ResourceManager(source: ScriptedPressureSource())
        let cache = PurgeableCache<String, Int>("numbers", cost: { _, _ in 1 })
        let spilled = SpilledCache(
            cache, to: store.store, byteCount: { $0 == 1 ? 1_000_000 : $0 == 5 ? Int.max : 8 },
            encode: { if $0 == 2 { throw Refused() } else { [UInt8(truncatingIfNeeded: $0)] } },
            decode: { if $0 == [3] { throw Refused() } else { Int($0[0]) } }, manager: manager, limits: .patient)
        for number in 1...5 { cache.insert(number, forKey: "\(number)") }
        _ = cache.release(.max)
        await until { spilled.statistics.stored == 2 }
        #expect(spilled.statistics.unfit == 3)
        #expect(try await spilled.value(forKey: "3") { 30 } == 30 && spilled.statistics.damaged == 1)
        #expect(try await spilled.value(forKey: "4") { 40 } == 4)
    }
}
