// The programs of the public API, as applications write them. No @testable import here: this file fails to compile when
// a public name or call shape is lost.
import Logging
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import PlimsollService
import PlimsollTesting
import ServiceLifecycle
import Testing
import UnixSignals

private struct Session: Sendable {
    var byteCount: Int
}

private final class Database: Sendable {
    let cacheSize = 1 << 20
    func release(_ target: Int) -> Int { target }
}

private struct Chunk: Sendable {
    var index: Int
}

private struct Row: VolatileStorable {
    var number: UInt64

    init(number: UInt64) { self.number = number }
    init(decoding bytes: RawSpan) throws { number = bytes.unsafeLoad(as: UInt64.self) }
    func encode(into encoder: inout VolatileEncoder) { encoder.append(contentsOf: withUnsafeBytes(of: number) { Array($0) }) }
}

private struct IdleService: Service {
    func run() async throws { try await gracefulShutdown() }
}

@Suite struct PublicFaceTests {
    private let manager = ResourceManager(source: ScriptedPressureSource())

    private func render(_ id: Int) async throws -> [UInt8] { [UInt8(id)] }
    private func read(_ id: String) throws -> Session { Session(byteCount: id.utf8.count) }
    private func log(_ level: PressureLevel, _ shortfall: Int, _ evidence: PressureEvidence) {}
    private func upload(_ chunk: Chunk) async throws {}
    private func checkpoint() async {}

    @Test func `a program sets up the library and runs in a group of services`() async throws {
        let manager = ResourceManager(source: LinuxPressureSource())
        print(manager.capabilities)
        let logger = Logger(label: "face"), server = IdleService()
        let plimsoll = ResourceService(manager, settings: try ServiceSettings.fromEnvironment(), logger: logger)
        let group = ServiceGroup(
            configuration: .init(
                services: [.init(service: plimsoll), .init(service: server), .init(service: plimsoll.shutdownBeacon)],
                gracefulShutdownSignals: [.sigterm], logger: logger))
        let running = Task { try await group.run() }
        await group.triggerGracefulShutdown()
        try await running.value
    }

    @Test func `a program observes pressure`() async throws {
        let registration = manager.observe(from: .warning) { event in
            log(event.level, event.shortfall, event.evidence)
            print(event.previous, event.id, event.isSimulated)
        }
        registration.cancel()
        let reader = Task { [manager] in for await event in manager.pressureEvents { print(event) } }
        reader.cancel()
        await reader.value
        #expect(manager.level == .normal)
        manager.simulate(.critical, for: .seconds(5))
    }

    @Test func `a program caches`() async throws {
        let pages = VolatileCache<String, [UInt8]>("pages")
        let thumbs = VolatileCache<UInt64, [UInt8]>("thumbs", limit: .mebibytes(256), timeToLive: .seconds(300))
        let sessions = PurgeableCache<String, Session>("sessions", limit: .mebibytes(64), rebuildCost: .expensive, cost: { _, s in s.byteCount })
        let counts = PurgeableCache<UInt64, UInt64>("counts", limit: .mebibytes(8))
        manager.register(pages); manager.register(thumbs); manager.register(sessions); manager.register(counts)

        let bytes: [UInt8] = [1, 2, 3]
        #expect(thumbs.insert(bytes, forKey: 7))
        #expect(thumbs.value(forKey: 7) == bytes)
        #expect(thumbs.withBytes(forKey: 7) { span in span.byteCount } == 3)
        let s = Session(byteCount: 9), id = "a"
        sessions.insert(s, forKey: id)
        #expect(sessions.withValue(forKey: id) { session in session.byteCount } == 9)
        let loaded = try await thumbs.value(forKey: 8) { try await render(8) }
        #expect(loaded == [8])
        #expect(try sessions.valueBlocking(forKey: "b") { try read("b") }.byteCount == 1)
        #expect(try thumbs.valueBlocking(forKey: 9) { [9] } == [9])
        thumbs.removeValue(forKey: 7); thumbs.removeAll(); thumbs.limit = .mebibytes(128)
        sessions.insert(s, forKey: id, tags: ["tenant-42"]); sessions.purge(tag: "tenant-42")
        let statistics = sessions.statistics
        let counted: [Int] = [statistics.byteCount, statistics.count]
        #expect(counted == [1, 1])
        print(statistics.hits, statistics.misses, statistics.evictions, statistics.purged, statistics.droppedByKernel)
        sessions.onRemoval { key, value, reason in print(key, value, reason) }
        let rows = VolatileCache<UInt64, Row>("rows")
        rows.insert(Row(number: 3), forKey: 1)
        #expect(rows.value(forKey: 1)?.number == 3)
        // Both caches offer the same calls where both can.
        for isHeap in [true, false] {
            if isHeap {
                #expect(
                    counts.insert(4, forKey: 1, tags: ["t"], timeToLive: .seconds(1)) && counts.contains(1)
                        && counts.values(forKeys: [1, 2]) == [1: 4])
                #expect(counts.timeToLive == nil && counts.timeToIdle == nil)
            } else {
                #expect(pages.insert(bytes, forKey: "p", tags: ["t"], timeToLive: .seconds(1)) && pages.contains("p"))
                #expect(pages.values(forKeys: ["p", "q"]) == ["p": bytes] && pages.timeToLive == nil)
            }
        }
    }

    @Test func `a program registers a purgeable of another kind`() {
        let db = Database()
        manager.register("sqlite", rebuildCost: .cheap, byteCount: { db.cacheSize }) { target in db.release(target) }
        let buffer = PurgeableBuffer(byteCount: 8 << 20)
        #expect(buffer.beginAccess())
        buffer.endAccess()
        let first: UInt8? = buffer.withAccess { bytes in bytes.unsafeLoad(as: UInt8.self) }
        #expect(first == 0)
    }

    @Test func `a program works in the background`() async throws {
        let chunks = [Chunk(index: 0), Chunk(index: 1)]
        try await manager.withBackgroundTask("export") { task in
            for chunk in chunks { try await upload(chunk); task.progress(completed: chunk.index, total: chunks.count) }
        } onExpiration: { task, reason in
            print(reason == .pressure || reason == .allowance || reason == .shutdown || reason == .hostSleep || reason == .operator)
            await checkpoint()
        }
        let task = manager.beginBackgroundTask("flush") { task, reason in task.end() }
        #expect(task.isActive && task.name == "flush" && manager.backgroundTimeRemaining == nil)
        #expect(manager.backgroundTasks.map(\.name) == ["flush"])
        task.end()
    }

    @Test func `a program has a life cycle`() async throws {
        let lifecycle = Lifecycle(manager)
        #expect(lifecycle.state == .notRunning)
        lifecycle.observe("listeners", onBackground: { ctx in print(ctx.from, ctx.to, ctx.cause, ctx.deadline as Any) }, onForeground: { ctx in })
        let limiter = ConcurrencyLimiter("render", limit: 64), ticker = Ticker("metrics", every: .seconds(10)) { _ in }
        lifecycle.pausables.add(limiter); lifecycle.pausables.add(ticker)
        #expect(try await limiter.run { 7 } == 7)
        let scene = lifecycle.connectScene("tenant-42", reason: .userRequest)
        await scene.connected()
        let reader = Task { for await change in lifecycle.environmentChanges { print(change) } }
        reader.cancel()
        await reader.value
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator); try await lifecycle.enterForeground(cause: .operator)
        #expect(lifecycle.state == .active)
    }

    @Test func `a program states a policy`() throws {
        _ = ResourceManager(
            source: ScriptedPressureSource(), policy: PressurePolicy(ladder: .standard, thresholds: .standard, isDryRun: false))
        _ = PressurePolicy(ladder: .standard.terminating(after: .seconds(30), grace: .seconds(10)))
        let ladder = try EscalationLadder([
            Rung(at: .warning, .release), Rung(at: .critical, .quiesce),
            Rung(at: .critical, after: .seconds(2), .expireBackgroundTasks(grace: .seconds(5))),
            Rung(at: .critical, after: .seconds(10), .suspend),
            Rung(at: .critical, after: .seconds(30), .terminate(grace: .seconds(10))),
        ])
        #expect(ladder.rungs.count == 5)
    }

    @Test func `a program tests against drawn pressure`() {
        let trace = PressureTrace("__--##__--__")
        let outcome = Simulation(policy: .standard).run(trace)
        #expect(outcome.levels.count == 12)
        let source = ScriptedPressureSource(); source.push(usage: .mebibytes(480), limit: .mebibytes(512))
        #expect(ByteCount.kibibytes(64).bytes == 65536 && ByteCount.gibibytes(1) > .bytes(12))
    }
}
