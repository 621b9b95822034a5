import Logging
import Plimsoll
import PlimsollLifecycle
import PlimsollService
import PlimsollTesting
import ServiceLifecycle
import Synchronization
import TestSupport
import Testing

/// The events of a run, in order.
final class Events: Sendable {
    private let all = Mutex<[String]>([])
    func add(_ event: String) { all.withLock { $0.append(event) } }
    var list: [String] { all.withLock { $0 } }
}

extension LogBook {
    /// True if the start of a shutdown is logged.
    var isShuttingDown: Bool { entries.contains { $0.message == "started to shut down" } }
}

/// A condition that a test sets.
final class Flag: Sendable {
    private let value = Mutex(false)
    var isSet: Bool { value.withLock { $0 } }
    func set() { value.withLock { $0 = true } }
}

/// A manager's service in a group.
@Suite(.timeLimit(.minutes(5))) struct ServiceGroupTests {
    /// Serves until a graceful shutdown.
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

    private func service(
        _ settings: ServiceSettings = ServiceSettings(), _ time: Timekeeper = .running,
        _ logger: Logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    ) -> ResourceService {
        ResourceService(ResourceManager(source: ScriptedPressureSource(), time: time), settings: settings, logger: logger)
    }

    /// Runs a group of `services` until `until` holds, then shuts the group down.
    private func run(_ services: [any Service], until: @Sendable @escaping () -> Bool) async throws {
        let group = group(services)
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            await TestSupport.until("the state that the group is run for", until)
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
    }

    @Test func `the beacon is notified of a shutdown first: no longer ready, no new token, while the server still serves`() async throws {
        let plimsoll = service(), manager = plimsoll.manager, events = Events()
        let server = Server(events: events) {
            events.add("ready \(manager.lifecycle.readiness.isReady), \(manager.lifecycle.readiness.reason ?? "")")
            let task = manager.beginBackgroundTask("late") { _, _ in }
            events.add("late task \(task.refusal?.contains("has shut down") == true ? "refused" : "begun")")
        }
        try await run([plimsoll, server, plimsoll.shutdownBeacon]) { manager.lifecycle.readiness.isReady && !events.list.isEmpty }
        #expect(events.list == ["serving", "ready false, the process is shutting down", "late task refused", "served"])
        let report = try #require(manager.shutdownReport)
        #expect(report.budget == .seconds(25) && report.stragglers.isEmpty && report.drain >= .zero)
    }

    @Test func `a manager without a beacon ends gracefully all the same`() async throws {
        let plimsoll = service(), manager = plimsoll.manager, events = Events()
        try await run([plimsoll, Server(events: events)]) { manager.lifecycle.readiness.isReady && !events.list.isEmpty }
        #expect(manager.shutdownReport != nil && manager.isShuttingDown)
    }

    @Test func `a running task is asked to stop after a share of the budget, and named as a straggler otherwise`() async throws {
        var settings = ServiceSettings()
        settings.shutdownBudget = .seconds(300)
        let book = LogBook(), clock = ManualClock(), events = Events()
        let plimsoll = service(settings, clock.timekeeper, book.logger), manager = plimsoll.manager
        let good = manager.beginBackgroundTask("good") { task, reason in
            events.add("asked good \(reason)")
            task.end()
        }
        let stuck = manager.beginBackgroundTask("stuck") { _, reason in events.add("asked stuck \(reason)") }
        async let shutdown: Void = run([plimsoll, plimsoll.shutdownBeacon]) { manager.lifecycle.readiness.isReady }
        await until { book.isShuttingDown }
        clock.advance(by: .seconds(149))
        #expect(events.list.isEmpty)
        clock.advance(by: .seconds(1))
        // The clock stands still until both have been asked and one has ended, however late the threads of a busy
        // machine run.
        await until { !good.isActive && events.list.count >= 2 }
        // In the last 2 s the given-up tasks may end.
        clock.advance(by: .seconds(148))
        try await shutdown
        let report = try #require(manager.shutdownReport)
        #expect(report.stragglers == ["stuck"] && report.asked == 2)
        #expect(Set(events.list) == ["asked good shutdown", "asked stuck shutdown"])
        #expect(!good.isActive && manager.status.tasks.givenUp == 1 && manager.status.tasks.expired == 1)
        let last = book.entries.last { $0.message.hasPrefix("stopped watching memory") }
        #expect(last?.level == .warning && last?["stragglers"] == "stuck" && last?["given_up"] == "1" && last?["asked"] == "2")
        _ = stuck
    }

    // MARK: Tasks of three shapes

    /// The place where the work of a background task runs.
    enum Shape: CaseIterable, Sendable {
        /// In the `run()` of a service, which awaits the work.
        case awaited
        /// In a task that no service knows.
        case detached
        /// In a task of a service, which is notified of the shutdown before the wait for the task.
        case owned
    }

    /// A service with a background task that runs until cancelled or until `isDone` holds.
    struct Exporter: Service {
        let manager: ResourceManager
        let events: Events
        let shape: Shape
        var isDone: @Sendable () -> Bool = { false }

        func run() async throws {
            switch shape {
            case .awaited: await export()
            case .detached: Task { await export() }
            case .owned:
                let work = Task { await export() }
                try await gracefulShutdown()
                await work.value
            }
            try await gracefulShutdown()
        }

        private func export() async {
            try? await manager.withBackgroundTask("export") { [events, isDone] _ in
                events.add("working")
                await until("the cancellation of the export") { Task.isCancelled || isDone() }
            } onExpiration: { [events] _, reason in
                events.add("asked, \(reason)")
            }
            events.add("ended")
        }
    }

    private func exporting(
        _ shape: Shape, budget: Duration = .seconds(300), isDone: @escaping @Sendable () -> Bool = { false }
    ) -> (manager: ResourceManager, services: [any Service], book: LogBook, clock: ManualClock, events: Events) {
        var settings = ServiceSettings()
        let book = LogBook(), clock = ManualClock(), events = Events()
        settings.shutdownBudget = budget
        let plimsoll = service(settings, clock.timekeeper, book.logger), manager = plimsoll.manager
        let exporter = Exporter(manager: manager, events: events, shape: shape, isDone: isDone)
        return (manager, [plimsoll, exporter, plimsoll.shutdownBeacon], book, clock, events)
    }

    @Test(arguments: Shape.allCases)
    func `a task is asked after a share of the budget, for each order of the services`(shape: Shape) async throws {
        let (manager, services, book, clock, events) = exporting(shape)
        async let shutdown: Void = run(services) { manager.lifecycle.readiness.isReady && events.list == ["working"] }
        await until { book.isShuttingDown }
        clock.advance(by: .seconds(149))
        #expect(events.list == ["working"])
        clock.advance(by: .seconds(1))
        try await shutdown
        await until { events.list.last == "ended" }
        #expect(Set(events.list) == ["working", "asked, shutdown", "ended"])
        let report = try #require(manager.shutdownReport)
        #expect(report.asked == 1 && report.stragglers.isEmpty && report.drain + report.expiry == .seconds(150))
        #expect(book.entries.allSatisfy { $0.level < .warning })
    }

    @Test(arguments: Shape.allCases)
    func `a task that ends within the share is not asked, and the shutdown waits no longer`(shape: Shape) async throws {
        let isDone = Flag()
        let (manager, services, book, clock, events) = exporting(shape) { isDone.isSet }
        async let shutdown: Void = run(services) { manager.lifecycle.readiness.isReady && events.list == ["working"] }
        await until { book.isShuttingDown }
        clock.advance(by: .seconds(20))
        isDone.set()
        try await shutdown
        let report = try #require(manager.shutdownReport)
        #expect(events.list == ["working", "ended"] && report.asked == 0 && report.drain + report.expiry == .seconds(20))
    }

    @Test func `a service that does not end is cancelled within the budget, and the asked tasks are named`() async throws {
        struct Stubborn: Service {
            let events: Events
            func run() async throws {
                defer { events.add("cancelled") }
                try await untilCancelled()
            }
        }
        struct NotedBeacon: Service {
            let beacon: ShutdownBeacon
            let isOver: Flag
            func run() async throws {
                try await beacon.run()
                isOver.set()
            }
        }
        var settings = ServiceSettings()
        let book = LogBook(), clock = ManualClock(), events = Events(), isOver = Flag()
        settings.shutdownBudget = .seconds(300)
        let plimsoll = service(settings, clock.timekeeper, book.logger), manager = plimsoll.manager
        let stuck = manager.beginBackgroundTask("stuck") { _, _ in events.add("asked") }
        let ends = manager.beginBackgroundTask("ends") { task, _ in task.end() }
        let beacon = NotedBeacon(beacon: plimsoll.shutdownBeacon, isOver: isOver)
        async let shutdown: Void = run([plimsoll, Stubborn(events: events), beacon]) { manager.lifecycle.readiness.isReady }
        // The beacon ends once all limits of the shutdown are scheduled. The log tells the start only.
        await until { isOver.isSet }
        clock.advance(by: .seconds(150))
        await until { events.list == ["asked"] && !ends.isActive }
        // The task is given up 2 s before the end. Services are cancelled a second later.
        clock.advance(by: .seconds(148))
        await until { !stuck.isActive }
        #expect(events.list == ["asked"])
        clock.advance(by: .seconds(1))
        var overrun: ShutdownOverrun?
        do { try await shutdown } catch let error as ShutdownOverrun { overrun = error }
        #expect(overrun?.description.hasPrefix("cannot end the group in good order within shutdown.budget") == true)
        #expect(events.list == ["asked", "cancelled"] && manager.shutdownReport?.stragglers == ["stuck"])
        let warning = book.entries.first { $0.level == .warning }
        #expect(warning?.message == "cancelled services that did not end within the shutdown's budget")
        #expect(warning?["stragglers"] == "stuck" && warning?["given_up"] == "1" && warning?["asked"] == "2")
        #expect(warning?["tasks"] == "stuck, ends")
    }

    @Test func `a group cancelled in a shutdown asks tasks at once`() async throws {
        let (manager, services, book, _, events) = exporting(.detached)
        let group = group(services)
        let running = Task { try await group.run() }
        await until { manager.lifecycle.readiness.isReady && events.list == ["working"] }
        await group.triggerGracefulShutdown()
        await until { book.isShuttingDown }
        running.cancel()
        // The clock stands still.
        _ = try? await running.value
        await until { events.list.last == "ended" }
        #expect(Set(events.list) == ["working", "asked, shutdown", "ended"] && manager.shutdownReport?.asked == 1)
    }

    @Test func `a cancelled group ends the manager, too`() async throws {
        let plimsoll = service(), manager = plimsoll.manager, events = Events()
        let group = group([plimsoll, Server(events: events)])
        let running = Task { try await group.run() }
        await until { !events.list.isEmpty }
        running.cancel()
        _ = try? await running.value
        #expect(manager.shutdownReport != nil)
    }

    @Test func `a drain delay keeps the others serving while the process already reports not ready`() async throws {
        var settings = ServiceSettings()
        // Longer than any test waits: the delay ends once the test has seen it.
        settings.drainDelay = .seconds(600)
        let plimsoll = service(settings), manager = plimsoll.manager, events = Events()
        let beacon = HurriedBeacon(beacon: plimsoll.shutdownBeacon) { events.list.contains("not ready, serving") }
        let group = group([plimsoll, Server(events: events), beacon])
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

    @Test func `a drain delay ends without a call`() async throws {
        var settings = ServiceSettings()
        settings.drainDelay = .milliseconds(1)
        let plimsoll = service(settings), manager = plimsoll.manager
        try await run([plimsoll, plimsoll.shutdownBeacon]) { manager.lifecycle.readiness.isReady }
        #expect(manager.shutdownReport?.stragglers == [])
    }

    @Test func `a disabled manager neither polls nor acts, and ends like any other`() async throws {
        var settings = ServiceSettings()
        settings.isEnabled = false
        settings.shutdownTaskShare = 0
        let source = ScriptedPressureSource(), manager = ResourceManager(source: source), events = Events()
        let plimsoll = ResourceService(manager, settings: settings, logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        manager.observe(from: .normal) { events.add("\($0.level)") }
        source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
        let task = manager.beginBackgroundTask("work") { task, _ in task.end() }
        try await run([plimsoll, plimsoll.shutdownBeacon]) { manager.lifecycle.readiness.isReady }
        #expect(events.list.isEmpty && manager.status.memory == nil && !task.isActive && manager.shutdownReport?.stragglers == [])
    }
}
