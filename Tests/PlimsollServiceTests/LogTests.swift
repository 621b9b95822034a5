import Logging
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollService

/// Keeps what is logged.
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
    private func event(_ level: PressureLevel, _ id: UInt64 = 1) -> PressureEvent {
        PressureEvent(id: id, level: level, previous: .normal, shortfall: .mebibytes(3), timeLeft: nil, evidence: .headroom)
    }

    @Test func `entering critical is the only warning, once in a while, and how many were left out is said`() {
        let book = LogBook(), manager = ResourceManager(source: ScriptedPressureSource()), now = Mutex(Duration.zero)
        let log = ManagerLog(book.logger, rest: .seconds(60), clock: { now.withLock { $0 } })
        for (second, level) in [(0, PressureLevel.warning), (1, .critical), (2, .normal), (10, .critical), (20, .critical), (61, .critical)] {
            now.withLock { $0 = .seconds(second) }
            log.tell(event(level), manager)
        }
        let warnings = book.entries.filter { $0.level >= .warning }
        #expect(warnings.map(\.message) == ["memory is critical", "memory is critical"] && warnings.map { $0["left_out"] } == [nil, "2"])
        #expect(book.entries.count == 6 && book.entries.filter { $0.level == .info }.count == 4)
        #expect(warnings[0]["evidence"] == "headroom" && warnings[0]["shortfall_bytes"] == "3145728" && warnings[0]["level"] == "critical")
    }

    @Test func `actions are told at info with what they brought, upkeep at debug`() {
        let book = LogBook(), log = ManagerLog(book.logger, rest: .zero)
        var report = ActionReport(eventID: 7, action: .release, level: .warning, evidence: .growth, began: .zero, took: .milliseconds(12))
        (report.asked, report.released) = (.mebibytes(2), .mebibytes(1))
        report.before = Footprint(resident: .mebibytes(10))
        report.after = Footprint(resident: .mebibytes(8))
        log.tell(report)
        log.tell(ActionReport(eventID: 0, action: .makeRoom, level: .normal, evidence: [], began: .zero, took: .zero))
        #expect(book.entries.map(\.level) == [.info, .debug] && book.entries.map(\.message) == ["release", "make room"])
        let entry = book.entries[0]
        #expect(entry["event"] == "7" && entry["released_bytes"] == "1048576" && entry["resident_fall_bytes"] == "2097152" && entry["mode"] == "live")
        #expect(entry["outcome"] == "done" && entry["seconds"] == "0.012" && book.entries[1]["asked_bytes"] == nil)
    }

    @Test func `a running service logs its beginning, its levels and its end, with those who did not end in time`() async throws {
        let book = LogBook(), source = ScriptedPressureSource()
        var settings = ServiceSettings()
        (settings.logger, settings.shutdownBudget, settings.notifiesServiceManager) = (book.logger, .milliseconds(200), false)
        // Nothing is done about it: on a busy machine the task would have been given up for want of memory before the shutdown.
        settings.policy.ladder = .none
        let manager = ResourceManager(source: source, settings: settings)
        let stuck = manager.beginBackgroundTask("stuck") { _, _ in }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            await until { manager.lifecycle.readiness.isReady }
            source.push(usage: .mebibytes(1010), limit: .gibibytes(1))
            await until { book.entries.contains(where: { $0.message == "memory is critical" }) }
            manager.beginShutdown(within: settings.shutdownBudget)
            group.cancelAll()
            try await group.waitForAll()
        }
        #expect(book.entries.first?.message == "watching memory" && book.entries.first?["footing"] == "announced")
        let critical = book.entries.first { $0.message == "memory is critical" }
        #expect(critical?["usage_bytes"] == "\(1010 << 20)" && critical?["limit_bytes"] == "\(1 << 30)")
        let last = book.entries.last { $0.message.hasPrefix("memory is watched") }
        #expect(last?.message == "memory is watched no longer; not everything ended in time")
        #expect(last?["stragglers"] == "stuck" && book.entries.allSatisfy { $0.level <= .warning })
        _ = stuck
    }
}
