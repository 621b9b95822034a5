import Logging
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle
@testable import PlimsollService

/// A list of the logged entries.
final class LogBook: Sendable {
    struct Entry: Sendable {
        var level: Logger.Level
        var message: String
        var metadata: Logger.Metadata

        subscript(key: String) -> String? { metadata["plimsoll." + key].map { "\($0)" } }
    }

    private let all = Mutex<[Entry]>([])
    var entries: [Entry] { all.withLock { $0 } }

    var logger: Logger { Logger(label: "test") { _ in Handler(book: self) } }

    private struct Handler: LogHandler {
        let book: LogBook
        var logLevel = Logger.Level.trace
        var metadata: Logger.Metadata = [:]
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let entry = Entry(level: event.level, message: "\(event.message)", metadata: metadata.merging(event.metadata ?? [:]) { $1 })
            book.all.withLock { $0.append(entry) }
        }
    }
}

@Suite(.timeLimit(.minutes(5))) struct LogTests {
    private func event(_ level: PressureLevel, from previous: PressureLevel = .normal, _ id: UInt64 = 1) -> PressureEvent {
        PressureEvent(id: id, level: level, previous: previous, shortfall: ByteCount.mebibytes(3).bytes, timeLeft: nil, evidence: .headroom)
    }

    @Test func `a rise of the level is a warning at intervals, with the number left out, and a fall is a notice`() {
        let book = LogBook(), manager = ResourceManager(source: ScriptedPressureSource()), now = Mutex(Duration.zero)
        let log = ManagerLog(book.logger, rest: .seconds(60), clock: { now.withLock { $0 } })
        let levels: [(Int, PressureLevel)] = [
            (0, .warning), (1, .critical), (2, .warning), (3, .normal), (10, .critical), (15, .normal), (20, .critical), (21, .normal),
            (61, .critical),
        ]
        var last = PressureLevel.normal
        for (second, level) in levels {
            now.withLock { $0 = .seconds(second) }
            log.log(event(level, from: last), manager)
            last = level
        }
        let expected: [(Logger.Level, String)] = [
            (.warning, "memory level became warning"), (.warning, "memory level became critical"),
            (.notice, "memory level became warning, down from critical"),
            (.notice, "memory level became normal"), (.info, "memory level became critical"), (.notice, "memory level became normal"),
            (.info, "memory level became critical"), (.notice, "memory level became normal"), (.warning, "memory level became critical"),
        ]
        #expect(book.entries.map(\.level) == expected.map(\.0) && book.entries.map(\.message) == expected.map(\.1))
        let warnings = book.entries.filter { $0.level == .warning }
        #expect(warnings.map { $0["left_out"] } == [nil, nil, "2"])
        #expect(warnings[1]["evidence"] == "headroom" && warnings[1]["shortfall_bytes"] == "3145728" && warnings[1]["level"] == "critical")
    }

    @Test func `actions are logged at info with the results, upkeep at debug`() {
        let book = LogBook(), log = ManagerLog(book.logger, rest: .zero)
        var report = ActionReport(
            eventID: 7, action: .release, level: .warning, evidence: .growth, began: .zero, took: .nanoseconds(3_213_452))
        (report.asked, report.released) = (.mebibytes(2), .mebibytes(1))
        report.before = Footprint(resident: .mebibytes(10))
        report.after = Footprint(resident: .mebibytes(8))
        log.log(report)
        log.log(ActionReport(eventID: 0, action: .makeRoom, level: .normal, evidence: [], began: .zero, took: .zero))
        #expect(book.entries.map(\.level) == [.info, .debug] && book.entries.map(\.message) == ["release", "make room"])
        let entry = book.entries[0]
        #expect(entry["event"] == "7" && entry["released_bytes"] == "1048576" && entry["resident_fall_bytes"] == "2097152" && entry["mode"] == "live")
        #expect(entry["outcome"] == "done" && entry["took"] == "3.21 ms" && book.entries[1]["asked_bytes"] == nil)
    }

    @Test func `names of tasks and handlers reach the log without control characters, and not in full length`() throws {
        let book = LogBook(), log = ManagerLog(book.logger, rest: .zero)
        let name = "import a.csv\n2026-01-01 error: \u{1B}[2J" + String(repeating: "a", count: 2000)
        var report = ActionReport(eventID: 7, action: .release, level: .warning, evidence: .growth, began: .zero, took: .zero)
        report.outcome = .overran([name])
        log.log(report)
        log.ended(ShutdownReport(budget: .zero, drain: .zero, expiry: .zero, stragglers: [name, "b"]))
        let outcome = try #require(book.entries.first?["outcome"]), stragglers = try #require(book.entries.last?["stragglers"])
        #expect(outcome.hasPrefix("overran: import a.csv\u{FFFD}2026") && outcome.count == 1000)
        #expect(stragglers.hasPrefix("import a.csv\u{FFFD}2026") && stragglers.hasSuffix("a, b") && stragglers.count == 123)
        #expect(!(outcome + stragglers).unicodeScalars.contains { $0.value < 32 })
    }

    @Test func `a missing admin socket is a notice with the reason and the setting`() {
        let book = LogBook(), log = ManagerLog(book.logger, rest: .zero)
        #expect(ResourceService.adminPath(.automatic, log, environment: { _ in nil }) == nil)
        #expect(book.entries.map(\.level) == [.notice] && book.entries.map(\.message) == ["did not open the admin socket"])
        let reason = book.entries.first?["reason"] ?? ""
        for word in ["$RUNTIME_DIRECTORY", "$XDG_RUNTIME_DIR", "RuntimeDirectory=", "PLIMSOLL_ADMIN_SOCKET"] {
            #expect(reason.contains(word), "\(reason)")
        }
        #expect(ResourceService.adminPath(.off, log) == nil && ResourceService.adminPath(.path("/run/a"), log) == "/run/a")
        #expect(
            ResourceService.adminPath(.automatic, log, environment: { $0 == "RUNTIME_DIRECTORY" ? "/run/shop" : nil }) == "/run/shop/plimsoll.sock")
        #expect(book.entries.count == 1)
    }

    @Test func `a shedder's refusals are logged at the beginning and the recovery, and a shortage without any is not`() {
        let book = LogBook(), manager = ResourceManager(source: ScriptedPressureSource()), now = Mutex(Duration.zero)
        let shedder = RequestShedder("front", policy: SheddingPolicy(seed: 1), elapsed: { now.withLock { $0 } }, rest: { _ in })
        manager.lifecycle.pausables.add(shedder)
        let log = ShedLog(manager, book.logger)
        func shortage(of requests: Int, polls: Bool) {
            manager.lifecycle.pausables.setPressure(.critical, isQuiescing: false)
            for _ in 0..<requests { #expect(shedder.begin(.sheddable) != nil) }
            if polls { for _ in 0..<2 { log.poll() } }
            now.withLock { $0 += .seconds(2) }
            #expect(shedder.refusedPerSecond == Double(requests) / 2 && manager.status.admissions.first?.refusedPerSecond == Double(requests) / 2)
            manager.lifecycle.pausables.setPressure(.normal, isQuiescing: false)
            #expect(shedder.refusedPerSecond == nil)
        }
        shortage(of: 0, polls: true)
        log.poll()
        #expect(book.entries.isEmpty)
        shortage(of: 3, polls: true)
        for _ in 0..<2 { log.poll() }
        #expect(book.entries.map(\.message) == ["started to refuse requests: memory is short", "stopped refusing requests: 3 refused in 2 s"])
        #expect(book.entries.allSatisfy { $0.level == .notice && $0["shedder"] == "front" } && book.entries.first?["extent"] == "open, quarter")
        #expect(book.entries.last?["refused"] == "3 sheddable" && book.entries.last?["reason"] == "3 arrivals" && book.entries.last?["took"] == "2 s")
        // Two shortages that ended before any poll.
        for _ in 0..<2 { shortage(of: 1, polls: false) }
        log.poll()
        #expect(book.entries.count == 3 && book.entries.last?.message == "stopped refusing requests: 2 refused in 4 s, in 2 shortages")
    }

    @Test func `a running service logs the beginning, the levels and the end, with the stragglers`() async throws {
        let book = LogBook(), source = ScriptedPressureSource()
        var settings = ServiceSettings()
        (settings.shutdownBudget, settings.notifiesServiceManager) = (.milliseconds(200), false)
        // No ladder: on a busy machine the ladder would have given up the task for lack of memory before the shutdown.
        let manager = ResourceManager(source: source, policy: PressurePolicy(ladder: .none))
        let plimsoll = ResourceService(manager, settings: settings, logger: book.logger)
        let stuck = manager.beginBackgroundTask("stuck") { _, _ in }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await plimsoll.run() }
            await until { manager.lifecycle.readiness.isReady }
            source.push(usage: .mebibytes(1010), limit: .gibibytes(1))
            await until { book.entries.contains(where: { $0.message == "memory level became critical" }) }
            manager.beginShutdown(within: settings.shutdownBudget)
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(book.entries.first?.message == "started watching memory" && book.entries.first?["support"] == "announced")
        let critical = book.entries.first { $0.message == "memory level became critical" }
        #expect(critical?["usage_bytes"] == "\(1010 << 20)" && critical?["limit_bytes"] == "\(1 << 30)")
        let last = book.entries.last { $0.message.hasPrefix("stopped watching memory") }
        #expect(last?.message == "stopped watching memory; not everything ended in time")
        #expect(last?["stragglers"] == "stuck" && book.entries.allSatisfy { $0.level <= .warning })
        _ = stuck
    }
}
