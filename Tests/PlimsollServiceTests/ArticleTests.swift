// The snippets of Sources/Plimsoll/Plimsoll.docc, as an application has them: no @testable here.
import Configuration
import Foundation
import Logging
public import Plimsoll
import PlimsollFoundation
import PlimsollLifecycle
import PlimsollLinux
import PlimsollService
import PlimsollTesting
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing
import UnixSignals

public final class TileRenderer: Sendable {
    private let tiles = VolatileCache<UInt64, [UInt8]>("tiles", limit: .mebibytes(64))
    private let registration: Registration?

    public init(manager: ResourceManager? = nil) { registration = manager?.register(tiles) }
    deinit { registration?.cancel() }

    public func tile(_ number: UInt64) async throws -> [UInt8] {
        try await tiles.value(forKey: number) { Self.render(number) }
    }

    private static func render(_ number: UInt64) -> [UInt8] { [UInt8(truncatingIfNeeded: number)] }
}

@Suite(.timeLimit(.minutes(5))) struct ArticleTests {
    struct Session: Sendable { var byteCount = 100 }
    struct Database: Sendable {
        var cacheSize: Int { 4096 }
        func release(_ target: Int) -> Int { target }
    }
    final class Buffers: Sendable {
        private let held = Mutex(1 << 20)
        var count: Int { held.withLock { $0 } }
        func drop(_ bytes: Int) -> Int {
            held.withLock { held in
                defer { held -= min(held, bytes) }
                return min(held, bytes)
            }
        }
    }
    struct Idle: Service {
        func run() async throws { try await gracefulShutdown() }
    }

    /// The place for reports of the service that owns background work.
    actor Shelf {
        private(set) var written: [String] = []
        private(set) var postponed: [String] = []
        private(set) var isCompact = false
        func write(_ report: String, _ task: BackgroundTask) throws {
            written.append(report)
            task.progress(completed: 1, total: 1)
        }
        func postpone(_ report: String) { postponed.append(report) }
        func compact() throws { isCompact = true }
    }
    struct ReportWriter: Service {
        let manager: ResourceManager
        let reports: AsyncStream<String>
        let shelf: Shelf

        func run() async throws {
            for await report in reports.cancelOnGracefulShutdown() {
                do {
                    try await manager.withBackgroundTask("report") { task in
                        try await shelf.write(report, task)
                    } onExpiration: { _, _ in
                        await shelf.postpone(report)
                    }
                } catch is CancellationError {
                    // It was asked to stop; the handler has put the report off.
                } catch is BackgroundTaskRefusal {
                    // It came after the first word of the shutdown.
                    await shelf.postpone(report)
                }
            }
            // A service that ends before its turn is an error to the group.
            try await gracefulShutdown()
        }
    }
    struct Compactor: Service {
        let manager: ResourceManager
        let shelf: Shelf

        func run() async throws {
            let work = Task { [manager, shelf] in
                try await manager.withBackgroundTask("compaction") { _ in try await shelf.compact() }
            }
            defer { work.cancel() }
            try await gracefulShutdown()
            _ = await work.result
        }
    }

    private func trim() {}
    private func render(_ path: String) async throws -> [UInt8] { Array(path.utf8) }

    @Test func `a configuration is taken from the environment, or from another provider`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource()), logger = Logger(label: "article") { _ in SwiftLogNoOpLogHandler() }
        let yourFile = InMemoryProvider(values: [:])
        // The call may end the process: compiled and not run.
        func start() throws {
            let settings = ConfigurationProblem.orExit { try ServiceSettings.fromEnvironment() }
            let plimsoll = ResourceService(manager, settings: settings, logger: logger)
            let config = ConfigReader(providers: [EnvironmentVariablesProvider(), yourFile])
            let configured = try ServiceSettings(reader: config.scoped(to: "plimsoll"))
            _ = (plimsoll, configured)
        }
        _ = start
        let settings = ConfigurationProblem.orExit { try ServiceSettings(environment: ["PLIMSOLL_DRY_RUN": "yes"]) }
        #expect(ResourceService(manager, settings: settings, logger: logger).manager.isDryRun)
    }

    @Test func `an application uses the library in four steps`() async throws {
        let logger = Logger(label: "article") { _ in SwiftLogNoOpLogHandler() }, server = Idle()
        // A group waits for a signal: this group is made and not run.
        func run() async throws {
            let settings = ConfigurationProblem.orExit { () throws(ConfigurationProblem) in try ServiceSettings.fromEnvironment() }
            let manager = ResourceManager(source: LinuxPressureSource())
            let plimsoll = ResourceService(manager, settings: settings, logger: logger)
            let group = ServiceGroup(
                configuration: .init(
                    services: [.init(service: plimsoll), .init(service: server), .init(service: plimsoll.shutdownBeacon)],
                    gracefulShutdownSignals: [.sigterm], logger: logger))
            try await group.run()
        }
        _ = run
        let manager = ResourceManager(source: ScriptedPressureSource()), pages = VolatileCache<String, [UInt8]>("pages"), database = Database()
        let sessions = PurgeableCache<String, Session>(
            "sessions", limit: .mebibytes(64), rebuildCost: .expensive, cost: { _, session in session.byteCount })
        manager.register(pages)
        manager.register(sessions, purgesOnBackground: false, tags: ["web"])
        manager.register("sqlite", rebuildCost: .cheap, byteCount: { database.cacheSize }) { target in
            database.release(target)
        }
        let chunks = [0, 1, 2]
        @Sendable func upload(_ chunk: Int) async throws {}
        @Sendable func checkpoint(_ reason: ExpirationReason) async {}
        try await manager.withBackgroundTask("export") { task in
            for chunk in chunks {
                try await upload(chunk)
                task.progress(completed: chunk, total: chunks.count)
            }
        } onExpiration: { _, reason in
            await checkpoint(reason)
        }
        #expect(manager.status.holders.count == 3 && manager.status.tasks.ended == 1)
    }

    @Test func `the snippets of the landing page and the library article run`() async throws {
        func land() {
            let manager = ResourceManager(source: LinuxPressureSource())
            let thumbnails = VolatileCache<UInt64, [UInt8]>("thumbnails")
            manager.register(thumbnails)
            manager.observe(from: .warning) { event in print(event.level, event.shortfall, event.evidence) }
        }
        _ = land
        let manager = ResourceManager(source: ScriptedPressureSource()), renderer = TileRenderer(manager: manager)
        #expect(try await renderer.tile(7) == [7] && manager.status.holders.map(\.name) == ["tiles"])
    }

    @Test func `the snippet of each cache runs`() async throws {
        let path = "/"
        let pages = VolatileCache<String, [UInt8]>("pages")
        let sessions = PurgeableCache<String, Session>(
            "sessions", limit: .mebibytes(64), rebuildCost: .expensive, cost: { _, session in session.byteCount })
        let page = try await pages.value(forKey: path) { try await render(path) }
        #expect(page == [47] && sessions.count == 0)
    }

    @Test func `a service owns a background task`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource()), shelf = Shelf()
        let (reports, report) = AsyncStream.makeStream(of: String.self)
        let writer = ReportWriter(manager: manager, reports: reports, shelf: shelf), compactor = Compactor(manager: manager, shelf: shelf)
        let logger = Logger(label: "article") { _ in SwiftLogNoOpLogHandler() }, plimsoll = ResourceService(manager, logger: logger)
        let services: [any Service] = [plimsoll, writer, plimsoll.shutdownBeacon]
        let all: [any Service] = [plimsoll, compactor] + services.dropFirst()
        let group = ServiceGroup(configuration: .init(services: all.map { .init(service: $0) }, logger: logger))
        async let running: Void = group.run()
        report.yield("monthly")
        await until { await shelf.written == ["monthly"] }
        await until { await shelf.isCompact }
        await group.triggerGracefulShutdown()
        try await running
        #expect(await shelf.postponed.isEmpty && manager.shutdownReport?.asked == 0 && manager.shutdownReport?.stragglers == [])
    }

    @Test func `several routes have levels of their own`() async throws {
        let source = ScriptedPressureSource(), trims = Mutex(0)
        let manager = ResourceManager(source: source)
        @Sendable func trim() { trims.withLock { $0 += 1 } }
        func listen() async {
            let once = OncePerEvent()
            manager.onMemoryWarning { event in once.run(event) { trim() } }
            manager.observe(from: .critical, "pool") { event in once.run(event) { trim() } }
            for await event in manager.levelSource(mask: [.warning, .critical]) { print(event.level, event.evidence) }
        }
        // Starts at once, and runs up to the first wait for events.
        let listening = Task.immediate { await listen() }
        let running = Task { try await manager.run() }
        source.push(usage: .mebibytes(1000), limit: .gibibytes(1))
        await until { trims.withLock { $0 } > 0 }
        listening.cancel()
        await listening.value
        running.cancel()
        try await running.value
        #expect(trims.withLock { $0 } == 1)
    }

    @Test func `a request has a budget, and the ladder a rung that cancels the largest`() async throws {
        struct Order { let pages = 3 }
        func render(_ order: Order) async throws -> Int { order.pages }
        let order = Order()
        let report = try await withMemoryBudget(.mebibytes(64), name: "POST /reports") {
            try await render(order)
        }
        #expect(report == 3)
        let ladder = EscalationLadder.standard.cancellingLargestRequest(above: .mebibytes(16))
        let policy = PressurePolicy(ladder: ladder)
        #expect(policy.ladder.rungs.contains { $0.action == .cancelLargestRequest(above: .mebibytes(16)) })
    }

    @Test func `a policy takes a ladder of the service's own`() throws {
        let ladder = try EscalationLadder([
            Rung(at: .warning, .release), Rung(at: .critical, .quiesce),
            Rung(at: .critical, after: .seconds(2), .expireBackgroundTasks(grace: .seconds(5))),
            Rung(at: .critical, after: .seconds(30), .terminate(grace: .seconds(10))),
        ])
        let policy = PressurePolicy(ladder: ladder)
        let outcome = Simulation(policy: policy).run(PressureTrace("__--####____"))
        print(outcome.levels, outcome.actions)
        #expect(outcome.actions.contains("r") && outcome.actions.contains("e") && !outcome.actions.contains("t"))
    }

    @Test func `handlers run under drawn pressure`() async throws {
        let buffers = Buffers()
        let source = ScriptedPressureSource()
        let manager = ResourceManager(source: source)
        manager.register("buffers", byteCount: { buffers.count }, release: { buffers.drop($0) })
        let (reports, report) = AsyncStream.makeStream(of: ActionReport.self)
        manager.onReport { report.yield($0) }
        let running = Task { try await manager.run() }
        source.push(usage: .mebibytes(1000), limit: .gibibytes(1))
        for await _ in reports where buffers.count == 0 { break }
        running.cancel()
        try await running.value
        let calm = Simulation().run(PressureTrace("__-_-__"))
        #expect(!calm.allActions.contains { $0.isDestructive })
        for report in manager.reports {
            print(report.level, report.evidence, report.action, report.asked, report.released, report.residentFall)
            print(report.refusal ?? "done", report.overran)
        }
        print(manager.capabilities["allocator"]?.detail ?? "unknown")
    }

    @Test func `time moves with the reading`() async throws {
        let source = ScriptedPressureSource(), clock = ManualClock()
        let manager = ResourceManager(source: source, clock: clock)
        let running = Task { try await manager.run() }
        await source.whileIdle {
            clock.advance(by: .seconds(60))
            source.push(usage: .mebibytes(1000), limit: .gibibytes(1))
        }
        await source.waitUntilIdle()
        #expect(manager.level == .critical)
        running.cancel()
        try await running.value
    }

    @Test func `a service uses a limiter and a token`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource()), path = "/"
        @Sendable func save(_ reason: ExpirationReason) {}
        let limiter = ConcurrencyLimiter("render", limit: 64)
        manager.lifecycle.pausables.add(limiter)
        let image = try await limiter.run { try await render(path) }
        let task = manager.beginBackgroundTask("flush") { task, reason in
            save(reason)
            task.end()
        }
        manager.expireBackgroundTasks(.operator, within: .seconds(5))
        #expect(image == [47] && !task.isActive)
    }

    @Test func `the tutorial's five steps run`() async throws {
        let logger = Logger(label: "tutorial") { _ in SwiftLogNoOpLogHandler() }, path = "/"
        // The call would watch this machine: compiled and not run.
        func start() {
            let manager = ResourceManager(source: LinuxPressureSource(), policy: PressurePolicy(isDryRun: true))
            print(manager.capabilities)
            let running = Task { try await manager.run() }
            running.cancel()
        }
        _ = start
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source)
        let pages = VolatileCache<String, [UInt8]>("pages")
        manager.register(pages)
        let page = try await pages.value(forKey: path) { try await render(path) }
        #expect(page == [47] && pages.statistics.hits == 0)
        let (levels, level) = AsyncStream.makeStream(of: (level: PressureLevel, isSimulated: Bool).self)
        let received = manager.observe(from: .critical) { event in level.yield((event.level, event.isSimulated)) }
        let registration = manager.observe(from: .warning) { event in
            logger.notice("memory short", metadata: ["level": "\(event.level)", "shortfall": "\(event.shortfall)"])
        }
        let running = Task { try await manager.run() }
        source.push(usage: .mebibytes(100), limit: .gibibytes(1))
        await source.waitUntilIdle()
        manager.simulate(.critical, for: .seconds(5))
        for await event in levels {
            #expect(event.level == .critical && event.isSimulated)
            break
        }
        received.cancel()
        registration.cancel()
        running.cancel()
        try await running.value
    }

    // MARK: The articles

    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    private static let folder = root.appendingPathComponent("Sources/Plimsoll/Plimsoll.docc")
    private static let hasArticles = FileManager.default.fileExists(atPath: folder.path)

    /// The articles by file name.
    private static func articles() throws -> [(name: String, text: String)] {
        try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
            .filter { $0.pathExtension == "md" }
            .map { ($0.lastPathComponent, try String(contentsOf: $0, encoding: .utf8)) }
    }

    @Test(.needs(hasArticles, "the sources are not at hand"))
    func `this file and the quick start's program have the articles' snippets word for word`() throws {
        func lines(_ text: String) -> [Substring] { text.split(separator: "\n").map { $0.drop { $0 == " " } } }
        let program = Self.root.appendingPathComponent("docs/examples/Quickstart/Quickstart.swift")
        let compiled = try [URL(fileURLWithPath: #filePath), program].map {
            lines(try String(contentsOf: $0, encoding: .utf8)).joined(separator: "\n")
        }
        var count = 0
        for article in try Self.articles() {
            let parts = article.text.split(separator: "```", omittingEmptySubsequences: false)
            for snippet in parts.filter({ $0.hasPrefix("swift\n") }).map({ lines(String($0)).dropFirst() }) {
                count += 1
                let code = snippet.joined(separator: "\n")
                #expect(compiled.contains { $0.contains(code) }, "\(article.name): \(snippet.first ?? "")")
            }
        }
        #expect(count >= 28)
    }

    @Test(.needs(hasArticles, "the sources are not at hand"))
    func `each article states its assumptions`() throws {
        for article in try Self.articles() where article.name != "Plimsoll.md" {
            #expect(article.text.contains("\n**Assumes**: "), "\(article.name)")
        }
    }
}
