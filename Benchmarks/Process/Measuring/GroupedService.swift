import ArgumentParser
import Glibc
import Logging
import Plimsoll
import PlimsollDemos
import PlimsollLinux
import PlimsollService
import ServiceLifecycle
import UnixSignals

/// The place of a background task in a service that is shut down.
enum TaskShape: String, CaseIterable, ExpressibleByArgument {
    /// In the `run()` of a service, which awaits the task.
    case awaited
    /// In a task that no service knows.
    case detached
    /// In a task of a service, which waits for the task after the shutdown signal.
    case owned
}

/// A group of idle services that runs until SIGTERM, optionally with a background task that does not end by itself.
struct GroupedServiceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_grouped", abstract: "Part of `plimsoll-bench service`.", shouldDisplay: false)

    @Flag(help: "Run without the library, for comparison.") var bare = false
    @Option(help: "Run a background task of that shape.") var task: TaskShape?
    @Option(help: "Seconds of the shutdown's budget.") var budget: Double?

    func validate() throws { try Allowed.seconds(budget, "--budget", in: 0.1...600) }

    func run() async throws {
        var settings = ConfigurationProblem.orExit { () throws(ConfigurationProblem) in
            try ServiceSettings.fromEnvironment()
        }
        let logger = Logger(label: "plimsoll") { _ in SwiftLogNoOpLogHandler() }
        if let budget { settings.shutdownBudget = .seconds(budget) }
        let manager = ResourceManager(source: LinuxPressureSource())
        let plimsoll = ResourceService(manager, settings: settings, logger: logger)
        manager.register(PurgeableCache<Int, Int>("numbers", limit: .mebibytes(1)))
        let services: [any Service] =
            if let task { [plimsoll, Exporter(manager: manager, shape: task), plimsoll.shutdownBeacon] } else if bare {
                [IdleServer()]
            } else {
                [plimsoll, IdleServer(), plimsoll.shutdownBeacon]
            }
        let group = ServiceGroup(
            configuration: .init(
                services: services.map { .init(service: $0) }, gracefulShutdownSignals: [.sigterm],
                logger: logger))
        try await group.run()
    }

    /// A service that reports `ready` and has no clients.
    struct IdleServer: Service {
        func run() async throws {
            Output.line("ready")
            try await gracefulShutdown()
        }
    }
}

/// A service with a background task that works for an hour. When asked to stop, the task saves for another hour.
private struct Exporter: Service {
    let manager: ResourceManager
    let shape: TaskShape

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
        try? await manager.withBackgroundTask("export") { _ in
            Output.line("ready")
            try await Task.sleep(for: .seconds(3600))
        } onExpiration: { _, _ in
            Output.line("asked")
            try? await Task.sleep(for: .seconds(3600))
        }
    }
}

/// Measures the time from SIGTERM to the end of an idle service, and of services with a long background task.
struct ServiceBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "service")

    @Option(help: "Runs of each measurement.") var runs = 20
    @Option(help: "Seconds of the budget of a shutdown with a background task.") var budget = 4.0

    func validate() throws {
        try Allowed.count(runs, "--runs", in: 1...1000)
        try Allowed.seconds(budget, "--budget", in: 0.5...600)
    }

    func run() throws {
        try reportingFailure {
            var with: [Double] = [], without: [Double] = []
            // Alternate, so that drift of the machine affects both alike.
            for _ in 0..<runs {
                with.append(try Self.measure([]))
                without.append(try Self.measure(["--bare"]))
            }
            guard let middle = median(with), let bare = median(without), let slowest = with.max() else { return }
            Bench.figure("service.sigterm-exit", middle, "ms")
            Bench.figure("service.sigterm-exit.slowest", slowest, "ms")
            Bench.figure("service.sigterm-exit.bare", bare, "ms")
            try measureBudget()
        }
    }

    /// Measures how far a shutdown exceeds its budget, and the share of the budget after which the task is asked to
    /// stop.
    private func measureBudget() throws {
        var over: [Double] = []
        for shape in TaskShape.allCases {
            let end = try Self.end(["--task", shape.rawValue, "--budget", "\(budget)"], within: .seconds(budget + 30))
            guard let asked = end.asked else {
                throw Failure.failed("the \(shape.rawValue) task was not asked to stop; the figure is inconclusive")
            }
            over.append(max(0, end.took.inSeconds - budget))
            Bench.figure("shutdown.over-budget.\(shape.rawValue)", over.last ?? .nan, "s")
            Bench.figure("shutdown.asked-after.\(shape.rawValue)", asked.inSeconds / budget, "ratio")
            Bench.figure("shutdown.ended-after.\(shape.rawValue)", end.took.inSeconds / budget, "ratio")
        }
        Bench.figure("shutdown.over-budget", over.max() ?? .nan, "s")
    }

    /// Returns milliseconds.
    private static func measure(_ arguments: [String]) throws -> Double {
        try end(arguments, within: .seconds(30)).took.milliseconds
    }

    /// Returns the time from SIGTERM to the end, and to the request that the service's task stop.
    private static func end(_ arguments: [String], within limit: Duration) throws -> (took: Duration, asked: Duration?)
    {
        let signals = SignalQueue(),
            child = try ChildProcess(
                ChildProcess.itself, ["plimsoll-bench", "_grouped"] + arguments, readsOutput: true)
        defer { child.end(within: .zero) }
        var isUp = false
        while !isUp {
            guard let lines = child.output?.lines(), child.ending == nil else { break }
            isUp = lines.contains("ready")
            if !isUp { _ = signals.next(within: .milliseconds(5)) }
        }
        // By then, everything that starts beside the service has started.
        _ = signals.next(within: .milliseconds(100))
        let began = SteadyClock.now
        var asked: Duration?
        child.signal(SIGTERM)
        // SIGCHLD reports the end at once. The task's request is seen within 10 ms.
        while child.poll() == nil, SteadyClock.now - began < limit {
            _ = signals.next(within: .milliseconds(10))
            if asked == nil, child.output?.lines().contains("asked") == true { asked = SteadyClock.now - began }
        }
        let took = SteadyClock.now - began, ending = child.end(within: .zero)
        guard ending == .exited(0) else {
            throw Failure.failed("the service ended with status \(ending.status) instead of 0")
        }
        return (took, asked)
    }
}
