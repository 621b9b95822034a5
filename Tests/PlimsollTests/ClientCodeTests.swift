// Code as applications write it. The file has no @testable import, and fails to compile when a public name or call
// shape is lost.
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

private struct Session: Sendable {
    var byteCount: Int
}

private final class Database: Sendable {
    let cacheSize = 1 << 20
    func release(_ bytes: Int) -> Int { bytes }
    var held: Int { 1 << 20 }
    func shed(_ bytes: Int) -> Int { bytes }
}

/// A buffer with the members that SwiftNIO's buffer offers.
private struct NetworkBuffer: Sendable, Equatable {
    private var storage: [UInt8]
    init(bytes: some Sequence<UInt8>) { storage = Array(bytes) }
    var readableBytesView: [UInt8] { storage }
}

extension NetworkBuffer: VolatileStorable {
    func encode(into encoder: inout VolatileEncoder) { encoder.append(contentsOf: readableBytesView) }
    init(decoding bytes: RawSpan) { self.init(bytes: bytes.withUnsafeBytes { Array($0) }) }
}

private struct Row: VolatileStorable, BitwiseCopyable {
    var id: UInt64
    var score: Double
}

@Suite(.serialized, .timeLimit(.minutes(5))) struct ClientCodeTests {
    @Test func `a client observes levels`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        print(manager.capabilities)
        let registration = manager.observe(from: .warning) { event in
            print(event.level, event.previous, event.shortfall, event.evidence, event.id, event.isSimulated)
        }
        registration.cancel()
        let reader = Task { for await event in manager.pressureEvents { print(event) } }
        reader.cancel()
        await reader.value
        #expect(manager.level == .normal)
        manager.simulate(.critical, for: .seconds(5))
    }

    @Test func `a client loads values`() async throws {
        let sessions = PurgeableCache<String, Session>(
            "sessions", refreshAfter: .seconds(60), releasesUnderPressure: false, cost: { _, s in s.byteCount })
        func blocking() throws -> Session { try sessions.valueBlocking(forKey: "a") { Session(byteCount: 8) } }
        #expect(try blocking().byteCount == 8)
        let suspending = try await sessions.value(forKey: "b", tags: ["tenant-42"]) { Session(byteCount: 7) }
        #expect(suspending.byteCount == 7)
        let many = try await sessions.values(forKeys: ["a", "b", "c"]) { keys in keys.reduce(into: [:]) { $0[$1] = Session(byteCount: 9) } }
        #expect(many["c"]?.byteCount == 9 && sessions.values(forKeys: ["b", "e"]).count == 1)
        let statistics = sessions.statistics
        #expect(statistics.loads == 3 && statistics.loadFailures == 0 && statistics.loadTime >= .zero && sessions.rebuildTimePerByte != nil)
        #expect(statistics.expired == 0 && statistics.replaced == 0 && statistics.rejected == 0 && !sessions.releasesUnderPressure)
    }

    @Test func `a client caches values`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let sessions = PurgeableCache<String, Session>(
            "sessions", limit: .mebibytes(64), rebuildCost: .expensive, cost: { _, s in s.byteCount })
        manager.register(sessions)
        sessions.onRemoval { key, value, reason in print(key, value, reason) }
        #expect(sessions.insert(Session(byteCount: 100), forKey: "a", tags: ["tenant-42"]))
        #expect(sessions.value(forKey: "a")?.byteCount == 100)
        let loaded = try await sessions.value(forKey: "b") { Session(byteCount: 7) }
        #expect(loaded.byteCount == 7)
        sessions.purge(tag: "tenant-42")
        sessions.removeValue(forKey: "b")
        sessions.limit = .mebibytes(32)
        sessions.removeAll()
        let statistics = sessions.statistics
        #expect(statistics.hits == 1 && statistics.byteCount == .zero && statistics.count == 0 && statistics.droppedByKernel == 0)
    }

    @Test(.needsLinux) func `a client caches in volatile memory`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let pages = VolatileCache<String, [UInt8]>("pages")
        let thumbs = VolatileCache<UInt64, [UInt8]>("thumbs", limit: .mebibytes(256), timeToLive: .seconds(300))
        let rows = VolatileCache<UInt64, Row>("rows"), buffers = VolatileCache<Int, NetworkBuffer>("buffers")
        manager.register(pages)
        manager.register(thumbs)
        manager.register(rows).cancel()
        #expect(thumbs.insert([1, 2, 3], forKey: 7) && thumbs.value(forKey: 7) == [1, 2, 3])
        #expect(thumbs.withBytes(forKey: 7) { span in span.byteCount } == 3 && thumbs.withBytes(forKey: 8) { _ in true } == nil)
        let loaded = try await thumbs.value(forKey: 9) { [9] }
        #expect(loaded == [9] && thumbs.removeValue(forKey: 9) == [9])
        thumbs.removeValue(forKey: 7)
        thumbs.limit = .mebibytes(128)
        thumbs.onRemoval { key, reason in print(key, reason) }
        thumbs.removeAll()
        pages.insert(Array("tea".utf8), forKey: "/", tags: ["tenant-42"])
        pages.purge(tag: "tenant-42")
        #expect(pages.count == 0 && pages.byteCount == .zero && pages.isVolatile && thumbs.statistics.droppedByKernel == 0)
        rows.insert(Row(id: 1, score: 0.5), forKey: 1)
        #expect(rows.value(forKey: 1)?.score == 0.5)
        buffers.insert(NetworkBuffer(bytes: [1, 2]), forKey: 1)
        #expect(buffers.value(forKey: 1) == NetworkBuffer(bytes: [1, 2]))
    }

    @Test func `a client uses a volatile buffer`() {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let buffer = PurgeableBuffer(byteCount: 8 << 20)
        manager.register(buffer)
        let first: UInt8? = buffer.withAccess { bytes in
            bytes.storeBytes(of: 7, as: UInt8.self)
            return bytes.unsafeLoad(as: UInt8.self)
        }
        #expect(first == 7 && buffer.beginAccess())
        buffer.endAccess()
        buffer.discard()
        #expect(buffer.isDiscarded && !buffer.isVolatile && buffer.byteCount == 8 << 20)
        print(PurgeableBuffer("tiles", byteCount: 1 << 20, rebuildCost: .expensive).name)
    }

    @Test func `a client registers a purgeable of another kind`() {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let db = Database()
        manager.register("sqlite", rebuildCost: .cheap, byteCount: { db.cacheSize }) { target in db.release(target) }
        manager.register("pool", rebuildCost: .trivial, byteCount: { db.held }) { target in db.shed(target) }
        manager.register("mixed", byteCount: { db.cacheSize }) { target in db.release(target) }.cancel()
        #expect(Set(manager.status.holders.map(\.name)) == ["sqlite", "pool"])
    }

    @Test func `a client does background work`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        try await manager.withBackgroundTask("export") { task in
            for index in 0..<3 { task.progress(completed: index, total: 3) }
        } onExpiration: { task, reason in
            print(task.name, reason == .pressure || reason == .allowance || reason == .shutdown || reason == .hostSleep || reason == .operator)
        }
        let task = manager.beginBackgroundTask("flush") { task, reason in task.end() }
        #expect(task.isActive && task.name == "flush" && manager.backgroundTimeRemaining == nil)
        #expect(manager.backgroundTasks.map(\.name) == ["flush"])
        task.end()
        task.end()
    }

    @Test func `a client sets a policy`() throws {
        _ = ResourceManager(
            source: ScriptedPressureSource(),
            policy: PressurePolicy(ladder: .standard, thresholds: .standard, isDryRun: false))
        _ = PressurePolicy(ladder: .standard.terminating(after: .seconds(30)))
        _ = PressurePolicy(ladder: .standard.terminating(after: .seconds(30), grace: .seconds(10)))
        let ladder = try EscalationLadder([
            Rung(at: .warning, .release), Rung(at: .critical, .quiesce),
            Rung(at: .critical, after: .seconds(2), .expireBackgroundTasks(grace: .seconds(5))),
            Rung(at: .critical, after: .seconds(30), .terminate(grace: .seconds(10))),
        ])
        #expect(ladder.rungs.count == 4)
    }

    @Test func `a client tests with drawn pressure`() {
        let trace = PressureTrace("__--##__--__")
        let outcome = Simulation(policy: .standard).run(trace)
        #expect(outcome.levels.count == 12 && outcome.actions.count == 12)
        let source = ScriptedPressureSource()
        source.push(usage: .mebibytes(480), limit: .mebibytes(512))
        #expect(ByteCount.kibibytes(64).bytes == 65536 && ByteCount.gibibytes(1) > .bytes(12))
    }

    @Test func `unreadable drawings are refused`() {
        #expect(PressureTrace("__x"[...]) == nil)
        #expect(PressureTrace("__ -- ##").description == "__--##")
    }
}
