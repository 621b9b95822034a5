import Logging
import Plimsoll
import PlimsollService
import PlimsollTesting
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing

/// What happens, in the order in which it does.
final class Events: Sendable {
    private let all = Mutex<[String]>([])
    func add(_ event: String) { all.withLock { $0.append(event) } }
    var list: [String] { all.withLock { $0 } }
}

/// A manager in a group of services.
@Suite(.timeLimit(.minutes(5))) struct ServiceGroupTests {
    /// Serves until it is shut down gracefully.
    struct Server: Service {
        let events: Events
        var onShutdown: @Sendable () -> Void = {}

        func run() async throws {
            events.add("serving")
            try await gracefulShutdown()
            onShutdown()
            events.add("served")
        }
    }

    /// A beacon whose delay is cut short once `end` holds.
    struct HurriedBeacon: Service {
        let beacon: ShutdownBeacon
        let end: @Sendable () -> Bool

        func run() async throws {
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                tasks.addTask { try await beacon.run() }
                tasks.addTask { await until { end() || Task.isCancelled } }
                _ = try await tasks.next()
                tasks.cancelAll()
                try await tasks.waitForAll()
            }
        }
    }

    private func group(_ services: [any Service], _ logger: Logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        -> ServiceGroup
    {
        ServiceGroup(configuration: .init(services: services.map { .init(service: $0) }, logger: logger))
    }

    private func manager(_ settings: ServiceSettings = ServiceSettings(), _ time: Timekeeper = .running) -> ResourceManager {
        let manager = ResourceManager(source: ScriptedPressureSource(), policy: settings.policy, time: time, isHosted: true)
        manager.serviceSettings = settings
        if settings.logger == nil { manager.serviceSettings.logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }) }
        return manager
    }

    /// Runs the group of these until `until` holds, then shuts it down.
    private func run(_ services: [any Service], until: @Sendable @escaping () -> Bool) async throws {
        let group = group(services)
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            await TestSupport.until("the state that the group is run for", until)
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
    }

    @Test func `the beacon hears of a shutdown first: no longer ready, no new token, while the server still serves`() async throws {
        let manager = manager(), events = Events()
        let server = Server(events: events) {
            events.add("ready \(manager.lifecycle.readiness.isReady), \(manager.lifecycle.readiness.reason ?? "")")
            let task = manager.beginBackgroundTask("late") { _, _ in }
            events.add("late task \(task.refusal?.contains("after shutdown") == true ? "refused" : "begun")")
        }
        try await run([manager, server, manager.shutdownBeacon]) { manager.lifecycle.readiness.isReady && !events.list.isEmpty }
        #expect(events.list == ["serving", "ready false, the process is being shut down", "late task refused", "served"])
        let report = try #require(manager.shutdownReport)
        #expect(report.budget == .seconds(25) && report.stragglers.isEmpty && report.drain >= .zero)
    }

    @Test func `without a beacon the manager ends gracefully all the same`() async throws {
        let manager = manager(), events = Events()
        try await run([manager, Server(events: events)]) { manager.lifecycle.readiness.isReady && !events.list.isEmpty }
        #expect(manager.shutdownReport != nil && manager.isShuttingDown)
    }

    @Test func `what runs has the rest of the budget, is asked to stop, and is named if it does not`() async throws {
        var settings = ServiceSettings()
        settings.shutdownBudget = .seconds(300)
        let clock = ManualClock(), manager = manager(settings, clock.timekeeper), events = Events()
        let good = manager.beginBackgroundTask("good") { task, reason in
            events.add("asked good \(reason)")
            task.end()
        }
        let stuck = manager.beginBackgroundTask("stuck") { _, reason in events.add("asked stuck \(reason)") }
        async let shutdown: Void = run([manager, manager.shutdownBeacon]) { manager.lifecycle.readiness.isReady }
        // Time stands still until both have been asked and the one has ended, however late a busy machine's threads come.
        await until { !good.isActive && events.list.count >= 2 }
        clock.advance(by: settings.shutdownBudget)
        try await shutdown
        let report = try #require(manager.shutdownReport)
        #expect(report.stragglers == ["stuck"] && Set(events.list) == ["asked good shutdown", "asked stuck shutdown"])
        #expect(!good.isActive && manager.status.tasks.givenUp == 1 && manager.status.tasks.expired == 1)
        _ = stuck
    }

    @Test func `a group that is cancelled ends the manager, too`() async throws {
        let manager = manager(), events = Events()
        let group = group([manager, Server(events: events)])
        let running = Task { try await group.run() }
        await until { !events.list.isEmpty }
        running.cancel()
        _ = try? await running.value
        #expect(manager.shutdownReport != nil)
    }

    @Test func `a drain delay keeps the others serving while the process already says that it is not ready`() async throws {
        var settings = ServiceSettings()
        // Longer than anybody waits: it is over once it has been seen.
        settings.drainDelay = .seconds(600)
        let manager = manager(settings), events = Events()
        let beacon = HurriedBeacon(beacon: manager.shutdownBeacon) { events.list.contains("not ready, serving") }
        let group = group([manager, Server(events: events), beacon])
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            await until { manager.lifecycle.readiness.isReady && !events.list.isEmpty }
            await group.triggerGracefulShutdown()
            await until { !manager.lifecycle.readiness.isReady }
            if !events.list.contains("served") { events.add("not ready, serving") }
            try await tasks.waitForAll()
        }
        #expect(events.list == ["serving", "not ready, serving", "served"])
    }

    @Test func `a drain delay ends by itself`() async throws {
        var settings = ServiceSettings()
        settings.drainDelay = .milliseconds(1)
        let manager = manager(settings)
        try await run([manager, manager.shutdownBeacon]) { manager.lifecycle.readiness.isReady }
        #expect(manager.shutdownReport?.stragglers == [])
    }

    @Test func `a manager that is switched off neither looks nor acts, and ends like any other`() async throws {
        var settings = ServiceSettings()
        settings.isEnabled = false
        settings.logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source, settings: settings), events = Events()
        manager.observe(from: .normal) { events.add("\($0.level)") }
        source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
        let task = manager.beginBackgroundTask("work") { task, _ in task.end() }
        try await run([manager, manager.shutdownBeacon]) { manager.lifecycle.readiness.isReady }
        #expect(events.list.isEmpty && manager.status.memory == nil && !task.isActive && manager.shutdownReport?.stragglers == [])
    }
}
