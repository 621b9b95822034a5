import Logging
import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollService

/// A program that links this product still runs managers that no service surrounds.
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
        // The service would have said that it begins, and that it can't listen there.
        #expect(book.entries.isEmpty)
        _ = service
    }

    @Test func `an admin socket that cannot listen is a notice with the reason, and the service goes on`() async throws {
        let source = ScriptedPressureSource(), book = LogBook()
        var settings = ServiceSettings()
        settings.adminSocket = .path("/nowhere/service.sock")
        let service = ResourceService(ResourceManager(source: source), settings: settings, logger: book.logger)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await service.run() }
            source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
            await until("the first reading") { service.manager.level == .critical }
            group.cancelAll()
            try await group.waitForAll()
        }
        let entries = book.entries.filter { $0.message == "did not open the admin socket" }
        #expect(entries.map(\.level) == [.notice])
        #expect(entries.first?["reason"]?.contains("/nowhere/service.sock") == true, "\(entries)")
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
