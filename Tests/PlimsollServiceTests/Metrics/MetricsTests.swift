import CoreMetrics
import Foundation
import MetricsTestKit
import Plimsoll
import PlimsollLifecycle
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

@Suite(.timeLimit(.minutes(5))) struct MetricsTests {
    /// A manager with something of everything.
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
        // What has no limit is said by saying nothing.
        #expect(text.contains(#"{limiter="render",state="allowed"}"#) && !text.contains(#"{limiter="web",state="allowed"}"#))
        #expect(lines.contains(#"plimsoll_requests_shed_total{limiter="web",priority="sheddable",when="at_once"} 1"#))
        #expect(lines.contains(#"plimsoll_admissions_total{limiter="web",priority="critical"} 1"#))
        #expect(lines.contains(#"plimsoll_requests_shed_total{limiter="render",priority="none",when="after_waiting"} 0"#))
        #expect(lines.contains(#"plimsoll_actions_total{action="release",mode="live",outcome="done"} 1"#))
        #expect(
            lines.contains("plimsoll_release_duration_seconds_bucket{le=\"+Inf\"} 1") && lines.contains("plimsoll_release_duration_seconds_count 1"))
    }

    @Test func `names are in base units, and a growing-only value's name ends in total`() {
        for family in MetricCatalogue.families(manager().status) {
            #expect(family.name.hasPrefix("plimsoll_") && family.name.allSatisfy { $0.isLowercase || $0 == "_" })
            #expect(family.name.hasSuffix("_total") == (family.kind == .counter), "\(family.name)")
            #expect(!["_ms", "_kb", "_mb", "_percent", "_us"].contains { family.name.hasSuffix($0) }, "\(family.name)")
            #expect(!family.help.isEmpty)
            // What keeps a table of labels for each name, as a registry of Prometheus does, takes one set of them.
            #expect(Set(family.points.map { $0.labels.map(\.name) }).count <= 1, "\(family.name)")
        }
    }

    @Test func `two caches of one name are one series, their sum`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        for held in [100, 50] { manager.register("twin", byteCount: { held }, release: { _ in 0 }) }
        let bytes = try #require(MetricCatalogue.families(manager.status).first { $0.name == "plimsoll_cache_bytes" })
        #expect(bytes.points.map(\.value) == [150])
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
        let shed = [("limiter", "web"), ("priority", "sheddable"), ("when", "at_once")]
        #expect(try factory.expectCounter("plimsoll_requests_shed_total", shed).totalValue == 1)
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
