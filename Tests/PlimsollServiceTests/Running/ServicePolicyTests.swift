import Foundation
import Logging
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

/// Runs a service with these settings until the first reading, and returns the log.
private func logged(by settings: ServiceSettings) async throws -> [LogBook.Entry] {
    let source = ScriptedPressureSource(), book = LogBook()
    let service = ResourceService(ResourceManager(source: source), settings: settings, logger: book.logger)
    try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await service.run() }
        source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
        await until("the first reading") { service.manager.level == .critical }
        group.cancelAll()
        try await group.waitForAll()
    }
    return book.entries
}

/// Managers that run without a service, in a program that links this product.
@Suite struct PlainManagerTests {
    @Test func `a manager that runs alone has no log, no link and no admin socket, although this product is linked`() async throws {
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source), book = LogBook()
        var settings = ServiceSettings()
        settings.adminSocket = .path("/nowhere/plain.sock")
        let service = ResourceService(manager, settings: settings, logger: book.logger)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await manager.run() }
            source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
            await until("the first reading") { manager.level == .critical }
            group.cancelAll()
            try await group.waitForAll()
        }
        // A service would have logged the start and the failure to listen.
        #expect(book.entries.isEmpty)
        _ = service
    }

    @Test func `an admin socket that cannot listen is a notice with the reason, and the service goes on`() async throws {
        var settings = ServiceSettings()
        settings.adminSocket = .path("/nowhere/service.sock")
        let entries = try await logged(by: settings).filter { $0.message == "did not open the admin socket" }
        #expect(entries.map(\.level) == [.notice])
        #expect(entries.first?["reason"]?.contains("/nowhere/service.sock") == true, "\(entries)")
    }
}

@Suite struct ServiceBlackBoxTests {
    @Test func `a black box that cannot be kept is a notice with the reason, and the service goes on`() async throws {
        var settings = ServiceSettings()
        settings.blackBox = "/nowhere/plimsoll.box"
        let entries = try await logged(by: settings).filter { $0.message == "did not open the black box" }
        #expect(entries.map(\.level) == [.notice])
        #expect(entries.first?["reason"]?.contains("/nowhere/plimsoll.box: the directory does not exist") == true, "\(entries)")
    }

    @Test func `the next run warns of an end without notice, and names the command that shows the record`() async throws {
        let folder = FileManager.default.temporaryDirectory.path + "/plimsoll-box-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        var settings = ServiceSettings()
        settings.blackBox = folder + "/plimsoll.box"
        let warnings = { (entries: [LogBook.Entry]) in entries.filter { $0.message == "the previous run did not end in good order" } }
        #expect(try await warnings(logged(by: settings)).isEmpty)
        #expect(try await warnings(logged(by: settings)).isEmpty, "after an end in good order")
        // The file as a kill leaves it: without the mark of the end.
        let file = try #require(FileHandle(forUpdatingAtPath: folder + "/plimsoll.box"))
        try file.seek(toOffset: 2048)
        try file.write(contentsOf: Data([0, 0, 0, 0]))
        try file.close()
        let entries = try await warnings(logged(by: settings))
        #expect(entries.map(\.level) == [.warning])
        #expect(entries.first?["end"]?.hasPrefix("likely killed for memory: 4 MiB of 1 GiB were available") == true, "\(entries)")
        #expect(entries.first?["details"] == "plimsoll autopsy \(folder)/plimsoll.box")
    }

    @Test func `the black box lies in the service manager's directory, or at the path of the setting`() throws {
        func standard(_ variables: [String: String]) -> String? { ServiceSettings.standardBlackBox { variables[$0] } }
        #expect(standard([:]) == nil && standard(["RUNTIME_DIRECTORY": ""]) == nil && standard(["RUNTIME_DIRECTORY": "run"]) == nil)
        #expect(standard(["STATE_DIRECTORY": "/var/lib/shop"]) == nil, "a write to a mapped file on a disk may block")
        #expect(standard(["RUNTIME_DIRECTORY": "/run/shop/"]) == "/run/shop/plimsoll.box")
        #expect(standard(["RUNTIME_DIRECTORY": "/run/a:/run/b"]) == "/run/a/plimsoll.box")
        var settings = ServiceSettings()
        settings.blackBox = "/before"
        #expect(try ServiceSettings(environment: ["PLIMSOLL_BLACK_BOX": "off"], defaults: settings).blackBox == nil)
        #expect(try ServiceSettings(environment: ["PLIMSOLL_BLACK_BOX": "/srv/box"], defaults: settings).blackBox == "/srv/box")
        #expect(try ServiceSettings(environment: [:], defaults: settings).blackBox == "/before")
        #expect(
            try ServiceSettings(environment: ["PLIMSOLL_BLACK_BOX": "auto"], defaults: settings).blackBox
                == ServiceSettings.standardBlackBox())
        #expect(throws: ConfigurationProblem.self) { try ServiceSettings(environment: ["PLIMSOLL_BLACK_BOX": "box"]) }
    }
}

@Suite struct ServicePolicyTests {
    private func service(_ environment: [String: String], over policy: PressurePolicy, _ book: LogBook = LogBook()) throws -> ResourceService {
        let manager = ResourceManager(source: ScriptedPressureSource(), policy: policy)
        return ResourceService(manager, settings: try ServiceSettings(environment: environment), logger: book.logger)
    }

    @Test func `the environment's policy settings hold for a manager made without them, and the rest stays as made`() throws {
        var policy = PressurePolicy.standard
        policy.handlerBudget = .seconds(9)
        policy.ladder = .none
        let service = try service(
            ["PLIMSOLL_DRY_RUN": "true", "PLIMSOLL_STALL_CRITICAL": "0.7", "PLIMSOLL_BACKGROUND_MAX_TASKS": "2"], over: policy)
        let adopted = service.manager.policy
        #expect(adopted.thresholds.stallCritical == 0.7 && adopted.handlerBudget == .seconds(9) && adopted.ladder == .none)
        #expect(adopted.isDryRun && service.manager.isDryRun && adopted.mostBackgroundTasks == 2)
        let tasks = (0..<3).map { service.manager.beginBackgroundTask("task \($0)") { _, _ in } }
        #expect(tasks.map(\.isActive) == [true, true, false])
        for task in tasks { task.end() }
    }

    @Test func `C20 a service joins a life cycle before its manager runs, and readiness reports that nothing was launched`() throws {
        let status = try service([:], over: .standard).manager.status.lifecycle
        #expect(status.state == "notRunning" && !status.isReady && status.reason == "not launched")
    }

    @Test func `a policy without settings stays the manager's own`() throws {
        var policy = PressurePolicy.standard
        policy.thresholds.stallCritical = 0.9
        policy.isDryRun = true
        #expect(try service(["PLIMSOLL_SHUTDOWN_BUDGET": "3s"], over: policy).manager.policy == policy)
    }

    @Test func `a hand-set dry run survives a service whose settings do not mention dry run`() throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        manager.isDryRun = true
        for environment in [[:], ["PLIMSOLL_STALL_CRITICAL": "0.7"]] {
            let service = ResourceService(manager, settings: try ServiceSettings(environment: environment), logger: LogBook().logger)
            #expect(service.manager.isDryRun)
        }
        #expect(manager.policy.thresholds.stallCritical == 0.7)
    }

    @Test func `settings that contradict the manager's policy are logged and leave that policy unchanged`() throws {
        var policy = PressurePolicy.standard
        policy.thresholds.warningMargin.share = 0.05
        policy.thresholds.criticalMargin.share = 0.04
        let book = LogBook()
        let service = try service(["PLIMSOLL_CRITICAL_SHARE": "0.15"], over: policy, book)
        #expect(service.manager.policy == policy)
        #expect(book.entries.map(\.level) == [.error] && book.entries[0]["reason"]?.contains("warning") == true, "\(book.entries)")
    }
}
