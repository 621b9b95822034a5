import Synchronization
import TestServers
import Testing

@testable import Plimsoll
@testable import PlimsollSpill
@testable import PlimsollTesting

/// A value that is no longer valid is not found, whether it waits in the queue or lies in the store.
@Suite(.timeLimit(.minutes(5))) struct SpillStalenessTests {
    private typealias Store = SpillPressureTests.HeldStore

    @Test func `a record has no form for a key or a value of 4 GiB or more`() {
        let record = SpillRecord(version: 1, generation: 2, prefix: "p", secret: [1])
        for (key, value, isFit) in [(4, Int(UInt32.max), true), (4, 1 << 32, false), (1 << 32, 4, false), (.max, .max, false)] as [(Int, Int, Bool)] {
            #expect((record.header(key, value, TimeLeft(), at: .zero) != nil) == isFit, "\(key), \(value)")
        }
    }

    // MARK: Time

    /// A cache whose values live for a minute, or for 10 seconds without a use, over a store, with a clock of its own.
    private struct Aging {
        let clock = ManualClock(), store = Store(), manager = ResourceManager(source: ScriptedPressureSource())
        let cache: PurgeableCache<String, String>
        let spilled: SpilledCache<String, String>

        init() {
            cache = PurgeableCache(
                "aging", lifetime: CacheLifetime(.seconds(60), .seconds(10), nil), time: clock.timekeeper, cost: { _, _ in 1 })
            spilled = SpilledCache(
                cache, to: store.store, codec: .storable, manager: manager, limits: .patient, version: 1, generation: 7, secret: nil,
                time: clock.timekeeper)
        }

        func value() async throws -> String { try await spilled.value(forKey: "key") { "loaded" } }

        func spill(timeToLive: Duration? = nil) {
            cache.insert("spilled", forKey: "key", timeToLive: timeToLive)
            _ = cache.release(.max)
        }

        func written(_ count: Int = 1) async { await until { spilled.statistics.stored == count } }
    }

    @Test func `a value from the store dies when it would have died in the cache`() async throws {
        let aging = Aging()
        aging.cache.insert("spilled", forKey: "key")
        aging.clock.freeze(for: .seconds(9))
        _ = aging.cache.release(.max)
        await aging.written()
        #expect(aging.store.state.withLock { $0.ages } == [.seconds(1)], "it had idled for 9 seconds")
        aging.clock.freeze(for: .milliseconds(900))
        #expect(try await aging.value() == "spilled" && aging.spilled.statistics.hits == 1)
        // Used often enough, so that only its age ends it.
        for _ in 0..<10 {
            aging.clock.freeze(for: .seconds(5))
            #expect(aging.cache.value(forKey: "key") == "spilled")
        }
        aging.clock.freeze(for: .milliseconds(99))
        #expect(aging.cache.contains("key"))
        aging.clock.freeze(for: .milliseconds(1))
        #expect(!aging.cache.contains("key"))
    }

    @Test func `a value whose time passes in the store is loaded anew, with a time of its own`() async throws {
        let aging = Aging()
        aging.spill()
        await aging.written()
        aging.clock.freeze(for: .seconds(10))
        #expect(try await aging.value() == "loaded" && aging.spilled.statistics.misses == 1)
        aging.clock.freeze(for: .seconds(9))
        #expect(aging.cache.value(forKey: "key") == "loaded")
        aging.cache.removeValue(forKey: "key")
        await until { aging.spilled.statistics.removed == 1 }

        aging.spill(timeToLive: .seconds(5))
        await aging.written(2)
        #expect(aging.store.state.withLock { $0.ages.last } == .seconds(5))
        aging.clock.freeze(for: .seconds(5))
        #expect(try await aging.value() == "loaded" && aging.spilled.statistics.misses == 2)
    }

    @Test func `a value whose time passes in the queue is neither found nor written`() async throws {
        let aging = Aging()
        aging.store.hold(true)
        aging.cache.insert("first", forKey: "first")
        _ = aging.cache.release(.max)
        await until { aging.store.calls == 1 }
        aging.spill()
        aging.clock.freeze(for: .seconds(9))
        #expect(try await aging.value() == "spilled" && aging.spilled.statistics.queueHits == 1)
        aging.clock.freeze(for: .seconds(1))
        _ = aging.cache.removeValue(forKey: "key")
        aging.spill()
        aging.cache.insert("spilled", forKey: "other")
        _ = aging.cache.release(.max)
        aging.clock.freeze(for: .seconds(10))
        // The look-up has the value removed. No look-up asks for the other value, which the writer leaves out.
        #expect(try await aging.value() == "loaded" && aging.spilled.statistics.queueHits == 1)
        aging.store.hold(false)
        await until { aging.spilled.statistics.unfit == 1 }
        #expect(aging.spilled.statistics.stored == 1 && aging.store.state.withLock { $0.records.count } == 1)
        // Expired in the cache, and evicted before a look-up noticed.
        aging.cache.insert("late", forKey: "late", timeToLive: .zero)
        _ = aging.cache.release(.max)
        #expect(aging.spilled.statistics.unfit == 2)
    }

    @Test(arguments: [3600, -3600])
    func `a clock that was set by an hour makes a value missing, and no value valid for longer`(seconds: Int) async throws {
        let aging = Aging()
        aging.spill()
        await aging.written()
        aging.clock.freeze(for: .seconds(5))
        aging.clock.setWallClock(by: .seconds(seconds))
        #expect(try await aging.value() == "loaded" && aging.spilled.statistics.misses == 1)
        await until { aging.spilled.statistics.removed == 1 }
        #expect(aging.store.state.withLock { $0.records.isEmpty }, "the record does not return with the clock")
    }

    // MARK: Removals

    /// The reason why a value that took the place of a removal is not written.
    enum Loss: CaseIterable { case shed, tooMany, tooLarge, unencodable, expired, unreachable, refused, dropped }

    @Test(arguments: Loss.allCases)
    func `a value that is not written leaves no older value behind`(loss: Loss) async throws {
        struct Refused: Error {}
        let store = Store(), clock = ManualClock()
        var limits = SpillLimits.patient
        if loss == .tooMany { limits.queuedCount = 1 }
        if loss == .tooLarge { limits.queuedBytes = .bytes(1000) }
        let engine = SpillEngine<String, String>(
            store: store.store,
            codec: SpillCodec(
                byteCount: { $0.utf8.count },
                encode: { if $0 == "refused" { throw Refused() } else { Array($0.utf8) } },
                decode: { String(decoding: $0, as: UTF8.self) }), encodeKey: { Array($0.utf8) }, limits: limits, prefix: "texts",
            version: 1, secret: Array(repeating: 1, count: 32), generation: 7, level: { .normal }, time: clock.timekeeper)
        defer { engine.stop() }
        engine.put("key", "old", after: .max)
        await until { engine.statistics.stored == 1 }
        // Occupies the writer, so that the next changes of the key wait in the queue.
        store.hold(true)
        engine.put("first", "first", after: .max)
        await until { store.calls == 2 }
        engine.remove("key")
        engine.put("key", loss == .unencodable ? "refused" : "new", after: .max, TimeLeft(toLive: .seconds(5)))
        #expect(engine.statistics.queuedCount == 1)
        switch loss {
        case .shed: #expect(engine.shed(.max) > 0)
        case .tooMany: engine.put("another", "value", after: .max)
        case .tooLarge: engine.put("another", String(repeating: "x", count: 800), after: .max)
        case .expired: clock.freeze(for: .seconds(5))
        case .dropped: engine.drop { _ in }
        case .unencodable: break
        case .unreachable, .refused:
            // The first value is written; the second fails.
            store.fail(call: 3, loss == .refused ? .refused("made to fail") : .unreachable("made to fail"))
        }
        store.hold(false)
        await until { engine.statistics.queuedCount == 0 && engine.state.withLock { $0.writing == nil } }
        if case .value(let value, _) = await engine.find("key") { Issue.record("found \"\(value)\": \(engine.statistics)") }
    }

    @Test(arguments: [false, true])
    func `a write that the server may carry out late does not overtake a change that waits`(isReplaced: Bool) async throws {
        let store = Store(), texts = SpilledTexts(store.store)
        store.hold(true)
        store.fail(call: 1, .unanswered("held store: made to fail"))
        texts.spill(0..<1, "old")
        await until { store.calls == 1 }
        texts.spilled.removeValue(forKey: "key 0")
        if isReplaced { texts.spill(0..<1, "new") }
        store.hold(false)
        await until { texts.spilled.statistics.failures == 1 }
        #expect(texts.spilled.statistics.forgotten == 1, "the name has changed, so that the old write may arrive at any time")
        #expect(try await texts.text("key 0", loaded: "loaded").hasPrefix(isReplaced ? "new 0" : "loaded"))
    }

    @Test func `a value that is inserted and evicted during a load is found, not the load's`() async throws {
        let store = Store(), texts = SpilledTexts(store.store)
        let old = try await texts.spilled.value(forKey: "key") { [texts] in
            texts.spilled.insert("new", forKey: "key")
            _ = texts.cache.release(.max)
            return "old"
        }
        #expect(old == "old" && !texts.cache.contains("key"))
        #expect(try await texts.text("key", loaded: "loaded") == "new")
    }

    @Test func `a key that a listener removes during the invalidation of another cache leaves the store too`() async throws {
        let aging = Aging(), other = PurgeableCache<Int, Int>("other")
        other.onInvalidation { _ in }
        other.onRemoval { [cache = aging.cache] _, _, _ in cache.removeValue(forKey: "key") }
        aging.spill()
        await aging.written()
        #expect(try await aging.value() == "spilled" && aging.cache.contains("key"))
        other.insert(1, forKey: 1, tags: ["t"])
        other.purge(tag: "t")
        #expect(!aging.cache.contains("key"))
        #expect(try await aging.value() == "loaded")
    }

    @Test func `a change of the key that drops a probe leaves the next probe to another look-up`() async {
        let clock = ManualClock(), now = clock.timekeeper.elapsed()
        // The threads are slow to start: no look-up leaves the queue.
        let engine = SpillEngine<String, String>(
            store: Store().store, codec: .storable, encodeKey: { Array($0.utf8) }, limits: SpillLimits(),
            prefix: "texts", version: 1, secret: Array(repeating: 1, count: 32), generation: 7, level: { .normal },
            time: clock.timekeeper, startThread: { _, _ in true })
        defer { engine.stop() }
        engine.state.withLock { state in for _ in 0..<3 { state.breaker.failed(at: now) } }
        clock.freeze(for: .seconds(1))
        async let found = engine.find("key")
        await until { engine.state.withLock { $0.reads.count == 1 } }
        engine.remove("key")
        guard case .unknown = await found else {
            Issue.record("the look-up has a value, though it was dropped")
            return
        }
        let later = clock.timekeeper.elapsed()
        #expect(engine.state.withLock { $0.breaker.retryIn(at: later) } == .zero)
    }
}
