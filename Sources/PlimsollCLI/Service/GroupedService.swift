import ArgumentParser
import Glibc
import Logging
import Plimsoll
import PlimsollLinux
import PlimsollService
import ServiceLifecycle
import UnixSignals

/// A group of services that are idle, until SIGTERM.
struct GroupedServiceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "_grouped", abstract: "Part of `bench service`.", shouldDisplay: false)

    @Flag(help: "Without the library, for comparison.") var bare = false

    func run() async throws {
        var settings = ConfigurationProblem.orExit { () throws(ConfigurationProblem) in try ServiceSettings.fromEnvironment() }
        settings.logger = Logger(label: "plimsoll") { _ in SwiftLogNoOpLogHandler() }
        let manager = ResourceManager(source: LinuxPressureSource(), settings: settings)
        manager.register(PurgeableCache<Int, Int>("numbers", limit: .mebibytes(1)))
        let services: [any Service] = bare ? [IdleServer()] : [manager, IdleServer(), manager.shutdownBeacon]
        let group = ServiceGroup(
            configuration: .init(
                services: services.map { .init(service: $0) }, gracefulShutdownSignals: [.sigterm],
                logger: Logger(label: "group") { _ in SwiftLogNoOpLogHandler() }))
        try await group.run()
    }

    /// Says that it is up, and serves nobody.
    struct IdleServer: Service {
        func run() async throws {
            Output.line("ready")
            try await gracefulShutdown()
        }
    }
}

/// From SIGTERM to the end of an idle service.
struct ServiceBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "service")

    @Option(help: "Runs of each.") var runs = 20

    func validate() throws { try Allowed.count(runs, "--runs", in: 1...1000) }

    func run() throws {
        try reportingFailure {
            var with: [Double] = [], without: [Double] = []
            // In turn, so that a change of the machine's mood meets both alike.
            for _ in 0..<runs {
                with.append(try Self.measure([]))
                without.append(try Self.measure(["--bare"]))
            }
            guard let middle = median(with), let bare = median(without), let slowest = with.max() else { return }
            Bench.figure("service.sigterm-exit", middle, "ms")
            Bench.figure("service.sigterm-exit.slowest", slowest, "ms")
            Bench.figure("service.sigterm-exit.bare", bare, "ms")
        }
    }

    /// Milliseconds.
    private static func measure(_ arguments: [String]) throws -> Double {
        let signals = SignalQueue(), child = try ChildProcess(ChildProcess.itself, ["plimsoll", "_grouped"] + arguments, readsOutput: true)
        defer { child.end(within: .zero) }
        var isUp = false
        while !isUp {
            guard let lines = child.output?.lines(), child.ending == nil else { break }
            isUp = lines.contains("ready")
            if !isUp { _ = signals.next(within: .milliseconds(5)) }
        }
        // Everything that begins beside the service has begun by then.
        _ = signals.next(within: .milliseconds(100))
        let began = SteadyClock.now
        child.signal(SIGTERM)
        while child.poll() == nil, SteadyClock.now - began < .seconds(30) { _ = signals.next(within: .seconds(1)) }
        let took = SteadyClock.now - began, ending = child.end(within: .zero)
        guard ending == .exited(0) else { throw Failure.failed("the service ended with status \(ending.status) instead of 0") }
        return took.milliseconds
    }
}
