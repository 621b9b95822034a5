import CoreMetrics
import Foundation
import MetricsTestKit
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollLifecycle
@testable import PlimsollService

@Suite(.timeLimit(.minutes(5))) struct MetricsTests {
    /// Returns a manager with at least one part of each kind.
    private func manager() -> ResourceManager {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let cache = PurgeableCache<Int, Int>("pages \"hot\"\nnew\\old", limit: .kibibytes(64), cost: { _, _ in 100 })
        for key in 0..<5 { cache.insert(key, forKey: key) }
        _ = (cache.value(forKey: 1), cache.value(forKey: 99))
        manager.register(cache)
        manager.register(VolatileCache<Int, [UInt8]>("thumbs"))
        manager.lifecycle.pausables.add(ConcurrencyLimiter("render", limit: 8))
        let shedder = RequestShedder("web")
        manager.lifecycle.pausables.add(shedder)
        shedder.quiesce(to: .narrowed(to: .quarter))
        _ = shedder.begin(.sheddable)
        shedder.quiesce(to: .open)
        _ = shedder.begin(.critical)
        _ = manager.release(100)
        return manager
    }

    @Test func `the rendering has each name once, with help and type, and the status's values`() throws {
        let manager = manager()
        let text = PrometheusText.render(manager.status), lines = text.split(separator: "\n").map(String.init)
        let named = lines.filter { $0.hasPrefix("# TYPE ") }.map { $0.split(separator: " ")[2] }
        #expect(Set(named).count == named.count && named.count > 18 && text.hasSuffix("\n"))
        #expect(lines.contains("plimsoll_level 0") && lines.contains("plimsoll_tasks{state=\"running\"} 0"))
        #expect(lines.contains(#"plimsoll_cache_requests_total{cache="pages \"hot\"\nnew\\old",result="hit"} 1"#))
        // A limiter without a limit has no line.
        #expect(text.contains(#"plimsoll_admissions_limit{limiter="render"}"#) && !text.contains(#"plimsoll_admissions_limit{limiter="web"}"#))
        #expect(lines.contains(#"plimsoll_requests_shed_total{limiter="web",priority="sheddable",when="any"} 1"#))
        #expect(lines.contains(#"plimsoll_admissions_total{limiter="web",priority="critical"} 1"#))
        #expect(lines.contains(#"plimsoll_requests_shed_total{limiter="render",priority="none",when="after_waiting"} 0"#))
        #expect(lines.contains(#"plimsoll_actions_total{action="release",mode="live",outcome="done"} 1"#))
        #expect(
            lines.contains("plimsoll_release_duration_seconds_bucket{le=\"+Inf\"} 1") && lines.contains("plimsoll_release_duration_seconds_count 1"))
    }

    @Test func `a request that waited before it was refused does not count as refused at once`() async {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let shedder = RequestShedder("web", policy: SheddingPolicy(), elapsed: { .zero }, rest: { _ in })
        manager.lifecycle.pausables.add(shedder)
        shedder.quiesce(to: .narrowed(to: .quarter))
        let refusal = await shedder.admit(.sheddable)
        #expect(refusal != nil)
        let text = PrometheusText.render(manager.status)
        #expect(text.contains(#"plimsoll_requests_shed_total{limiter="web",priority="sheddable",when="any"} 1"#))
        #expect(!text.contains("at_once"))
    }

    @Test func `names are in base units, and a growing-only value's name ends in total`() {
        for family in MetricCatalogue.families(manager().status) {
            #expect(family.name.hasPrefix("plimsoll_") && family.name.allSatisfy { $0.isLowercase || $0 == "_" })
            #expect(family.name.hasSuffix("_total") == (family.kind == .counter), "\(family.name)")
            #expect(!["_ms", "_kb", "_mb", "_percent", "_us"].contains { family.name.hasSuffix($0) }, "\(family.name)")
            #expect(!family.help.isEmpty)
            // A registry with one table of labels for each name, such as Prometheus's, accepts one set of labels for
            // each name.
            #expect(Set(family.points.map { $0.labels.map(\.name) }).count <= 1, "\(family.name)")
        }
    }

    @Test func `two caches of one name are one series, their sum`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        for held in [100, 50] { manager.register("twin", byteCount: { held }, release: { _ in 0 }) }
        let bytes = try #require(MetricCatalogue.families(manager.status).first { $0.name == "plimsoll_cache_bytes" })
        #expect(bytes.points.map(\.value) == [150])
    }

    /// A purgeable that releases no memory under pressure.
    private final class Fixed: Purgeable {
        let name = "fixed"
        let rebuildCost = RebuildCost.precious
        let heldBytes = 50 << 20
        let releasesUnderPressure = false
        func release(_ target: Int) -> Int { 0 }
    }

    private func value(_ name: String, _ status: ManagerStatus) -> Double? {
        MetricCatalogue.families(status).first { $0.name == name }?.points.first?.value
    }

    @Test func `the autoscaler's ratio follows load and not caches, while the used ratio follows both`() async throws {
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source)
        manager.isDryRun = true
        let cache = PurgeableCache<Int, Int>("pages", cost: { _, _ in 100 << 20 })
        manager.register(cache)
        // A purgeable that releases nothing under pressure, and volatile pages, which `available` counts as free.
        manager.register(Fixed())
        manager.register(VolatileCache<Int, [UInt8]>("thumbs"))
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            func ratios(used: Int, _ entries: Int) async -> [Double?] {
                for key in 0..<entries { cache.insert(key, forKey: key) }
                source.push(usage: .mebibytes(used + entries * 100), limit: .mebibytes(1000))
                await until { manager.status.memory?.usageBytes == (used + entries * 100) << 20 }
                return ["plimsoll_memory_used_ratio", "plimsoll_memory_unreleasable_ratio"].map { value($0, manager.status) }
            }
            #expect(await ratios(used: 300, 0) == [0.3, 0.3])
            #expect(await ratios(used: 300, 4) == [0.7, 0.3], "a cache has filled what was idle")
            #expect(await ratios(used: 500, 4) == [0.9, 0.5], "load has come on top")
            // Caches that report more bytes than the usage give 0, not a negative ratio.
            #expect(await ratios(used: -200, 4) == [0.2, 0])
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `volatile memory is not subtracted twice`() {
        var holder = HolderStatus.example(held: 500, volatile: 300)
        #expect(MetricCatalogue.releasableBytes([holder]) == 200)
        holder.volatileBytes = nil
        #expect(MetricCatalogue.releasableBytes([holder, holder]) == 1000)
        holder.releasesUnderPressure = false
        #expect(MetricCatalogue.releasableBytes([holder]) == 0)
    }

    @Test func `shares of memory are exported where memory is divided by worth`() {
        let manager = ResourceManager(source: ScriptedPressureSource()), names = ["share_bytes", "target_bytes", "marginal_load_ratio"]
        var status = manager.status
        status.holders = [.example(held: 500, volatile: nil)]
        #expect(names.allSatisfy { value("plimsoll_cache_\($0)", status) == nil })
        let curve = MissCurve(requests: 10, points: [.init(bytes: 16 << 20, misses: 5)])
        status.holders[0].worth = WorthStatus(CacheWorth(curve: curve, share: 0, target: 4096, requestsPerSecond: 40, loadTime: 1e7))
        // Half of 40 requests a second save 10 ms each.
        let values = names.map { value("plimsoll_cache_\($0)", status).map { ($0 * 1000).rounded() / 1000 } }
        #expect(values == [0, 4096, 0.2])
    }

    @Test func `the end of the previous run is reported once known, and stays one series`() async throws {
        let store = MemoryStateStore()
        for (end, isKilled) in [("none", true), ("failed_launch", false), ("clean", true)] {
            let manager = ResourceManager(source: ScriptedPressureSource())
            manager.lifecycle.countLaunches(in: store)
            #expect(value("plimsoll_previous_run_info", manager.status) == nil, "not read yet")
            _ = manager.lifecycle.preservation.restore()
            let lines = PrometheusText.render(manager.status).split(separator: "\n").filter { $0.hasPrefix("plimsoll_previous_run_info") }
            #expect(lines == ["plimsoll_previous_run_info{end=\"\(end)\"} 1"])
            if !isKilled {
                _ = manager.lifecycle.preservation.launched()
                _ = manager.lifecycle.preservation.ended()
            } else if end == "clean" {
                _ = manager.lifecycle.preservation.launched()
            }
        }
        let next = ResourceManager(source: ScriptedPressureSource())
        next.lifecycle.countLaunches(in: store)
        _ = next.lifecycle.preservation.restore()
        #expect(next.status.lifecycle.previousRun == "crashed")
        // Without a count of launches the end is reported as unknown.
        let bare = ResourceManager(source: ScriptedPressureSource())
        _ = bare.lifecycle.preservation.restore()
        #expect(PrometheusText.render(bare.status).contains("plimsoll_previous_run_info{end=\"unknown\"} 1"))
        let start = try #require(value("plimsoll_start_time_seconds", bare.status))
        #expect(start > 1_700_000_000 && value("plimsoll_start_time_seconds", next.status) == start)
    }

    @Test func `numbers are written in a form that is read back`() {
        #expect(PrometheusText.number(9_007_199_254_740_991) == "9007199254740991" && PrometheusText.number(0.25) == "0.25")
        #expect(PrometheusText.number(.infinity) == "+Inf" && PrometheusText.number(.nan) == "NaN" && PrometheusText.number(-3) == "-3")
    }

    @Test(.needs(Tool.promtool != nil, "promtool is not installed (Debian: prometheus)"))
    func `Prometheus' own checker has no complaint`() throws {
        let said = try Tool.run(Tool.promtool!, ["check", "metrics"], input: PrometheusText.render(manager().status))
        #expect(said.status == 0 && said.output.isEmpty, "\(said.output)")
    }

    @Test func `instruments are made once, by the given factory, with the rendered values`() throws {
        let factory = TestMetrics(), manager = manager()
        var reporter = MetricsReporter(manager, factory)
        reporter.report()
        let hits = [("cache", "pages \"hot\"\nnew\\old"), ("result", "hit")]
        func hitCount() throws -> Int64 { Int64(try factory.expectCounter("plimsoll_cache_requests_total", hits).totalValue) }
        #expect(try hitCount() == 1)
        let made = factory.counters.count + factory.recorders.count
        reporter.report()
        #expect(try hitCount() == 1 && factory.counters.count + factory.recorders.count == made)
        #expect(try factory.expectRecorder("plimsoll_level").lastValue == 0)
        let shed = [("limiter", "web"), ("priority", "sheddable"), ("when", "any")]
        #expect(try factory.expectCounter("plimsoll_requests_shed_total", shed).totalValue == 1)
    }

    @Test func `a gauge whose value is no longer known is withdrawn, and comes back with the next value`() throws {
        let factory = TestMetrics(), manager = ResourceManager(source: ScriptedPressureSource())
        let shedder = RequestShedder("web"), labels = [("limiter", "web")]
        manager.lifecycle.pausables.add(shedder)
        var reporter = MetricsReporter(manager, factory)
        func limit() -> Double? { try? factory.expectRecorder("plimsoll_admissions_limit", labels).lastValue }
        for _ in 0..<2 {
            shedder.quiesce(to: .half)
            reporter.report()
            #expect((limit() ?? 0) > 0)
            // With enough memory, the shedder has no limit.
            shedder.quiesce(to: .open)
            reporter.report()
            #expect(limit() == nil)
        }
        #expect(try factory.expectRecorder("plimsoll_admissions_running", labels).lastValue == 0, "others stay")
    }

    @Test func `a total that falls when a cache leaves counts on from there`() throws {
        let factory = TestMetrics(), manager = ResourceManager(source: ScriptedPressureSource())
        let caches = (0..<2).map { _ in PurgeableCache<Int, Int>("twin", cost: { _, _ in 1 }) }
        let registrations = caches.map { manager.register($0) }, labels = [("cache", "twin"), ("result", "miss")]
        var reporter = MetricsReporter(manager, factory)
        func reportedMisses(after misses: Int, in cache: Int) throws -> Int64 {
            for key in 0..<misses { _ = caches[cache].value(forKey: key) }
            reporter.report()
            return try factory.expectCounter("plimsoll_cache_requests_total", labels).totalValue
        }
        #expect(try reportedMisses(after: 5, in: 0) == 5)
        #expect(try reportedMisses(after: 2, in: 1) == 7)
        registrations[0].cancel()
        #expect(try reportedMisses(after: 0, in: 1) == 7, "the total is 2 now")
        #expect(try reportedMisses(after: 1, in: 1) == 8)
    }

    @Test func `all look-ups of a cache count that takes the name of one that left`() throws {
        let factory = TestMetrics(), manager = ResourceManager(source: ScriptedPressureSource())
        let labels = [("cache", "tenant"), ("result", "miss")]
        var reporter = MetricsReporter(manager, factory)
        func reportedMisses(after misses: Int) throws -> Int64 {
            let cache = PurgeableCache<Int, Int>("tenant", cost: { _, _ in 1 }), registration = manager.register(cache)
            for key in 0..<misses { _ = cache.value(forKey: key) }
            reporter.report()
            registration.cancel()
            reporter.report()
            return try factory.expectCounter("plimsoll_cache_requests_total", labels).totalValue
        }
        #expect(try reportedMisses(after: 5) == 5)
        #expect(try reportedMisses(after: 2) == 7)
    }

    @Test func `a total of the kernel that cannot be read for a while goes on from there`() async throws {
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source)
        manager.isDryRun = true
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            let factory = TestMetrics()
            var reporter = MetricsReporter(manager, factory)
            let steps: [(high: Int?, reported: Int64)] = [(5, 5), (nil, 5), (7, 7)]
            for step in steps {
                let events = step.high.map { PressureReading.EventCounts(high: $0) }
                source.push(
                    PressureReading(at: .zero, boundary: .maximum, limit: .mebibytes(1000), usage: .mebibytes(100), events: events))
                await until { manager.status.memory?.events == events }
                reporter.report()
                let total = try factory.expectCounter("plimsoll_group_events_total", [("event", "high")]).totalValue
                #expect(total == step.reported)
            }
            group.cancelAll()
            try await group.waitForAll()
        }
    }

    @Test func `a total of the page does not fall when a cache leaves, and counts on from there`() async {
        let manager = ResourceManager(source: ScriptedPressureSource()), pages = AdminPages(manager)
        let caches = (0..<2).map { _ in PurgeableCache<Int, Int>("twin", cost: { _, _ in 1 }) }
        let registrations = caches.map { manager.register($0) }
        func shownMisses(after misses: Int, in cache: Int) async -> String? {
            for key in 0..<misses { _ = caches[cache].value(forKey: key) }
            let series = #"plimsoll_cache_requests_total{cache="twin",result="miss"} "#
            let lines = await pages.answer(.metrics, .init()).body.split(separator: "\n")
            return lines.first { $0.hasPrefix(series) }.map { String($0.dropFirst(series.count)) }
        }
        #expect(await shownMisses(after: 5, in: 0) == "5")
        #expect(await shownMisses(after: 2, in: 1) == "7")
        registrations[0].cancel()
        #expect(await shownMisses(after: 0, in: 1) == "7", "the total is 2 now")
        #expect(await shownMisses(after: 1, in: 1) == "8")
        registrations[1].cancel()
        #expect(await shownMisses(after: 0, in: 1) == nil)
        let again = manager.register(caches[1])
        #expect(await shownMisses(after: 0, in: 1) == "3", "a series that begins again has the value of its own")
        withExtendedLifetime((registrations, again)) {}
    }

    @Test func `of two requests at once, an older status that comes last changes no total`() {
        let manager = ResourceManager(source: ScriptedPressureSource()), totals = SteadyTotals()
        let cache = PurgeableCache<Int, Int>("pages", cost: { _, _ in 1 }), registration = manager.register(cache)
        func status(at seconds: Double, misses: Int) -> ManagerStatus {
            for key in 0..<misses { _ = cache.value(forKey: key) }
            var status = manager.status
            status.atSeconds = seconds
            return status
        }
        func misses(_ status: ManagerStatus) -> Double? {
            let family = totals.families(status).first { $0.name == "plimsoll_cache_requests_total" }
            return family?.points.first { $0.labels.last?.value == "miss" }?.value
        }
        let older = status(at: 1, misses: 2), newer = status(at: 2, misses: 3)
        #expect([newer, older, newer].map { misses($0) } == [5, 5, 5])
        withExtendedLifetime(registration) {}
    }

    @Test func `a release is timed when done`() async throws {
        let factory = TestMetrics(), manager = ResourceManager(source: ScriptedPressureSource())
        _ = MetricsReporter(manager, factory)
        manager.register("buffers", byteCount: { 4096 }, release: { $0 })
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            await until { manager.lifecycle.readiness.isReady }
            let report = await manager.release(1)
            let timer = try factory.expectTimer("plimsoll_release_duration_seconds")
            await until { !timer.values.isEmpty }
            #expect(timer.values == [Int64(report.took.inNanoseconds)])
            group.cancelAll()
            try await group.waitForAll()
        }
    }
}

extension HolderStatus {
    static func example(held: Int, volatile: Int?) -> HolderStatus {
        var status = #"{"name":"a","group":"","tags":[],"rebuildCost":"cheap","releasesUnderPressure":true,"heldBytes":\#(held)"#
        if let volatile { status += #","volatileBytes":\#(volatile)"# }
        do { return try JSONDecoder().decode(HolderStatus.self, from: Data((status + "}").utf8)) } catch { preconditionFailure("\(error)") }
    }
}

/// Programs of the machine that a test needs.
enum Tool {
    static let promtool = find("promtool")

    static func find(_ name: String) -> String? {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin"
        return path.split(separator: ":").map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    static func run(_ program: String, _ arguments: [String], input: String = "") throws -> (status: Int32, output: String) {
        let process = Process(), out = Pipe(), into = Pipe()
        process.executableURL = URL(fileURLWithPath: program)
        process.arguments = arguments
        (process.standardOutput, process.standardError, process.standardInput) = (out, out, into)
        try process.run()
        into.fileHandleForWriting.write(Data(input.utf8))
        try into.fileHandleForWriting.close()
        let output = String(decoding: out.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationStatus, output)
    }
}
