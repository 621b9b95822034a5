import ArgumentParser
import Glibc
import Plimsoll
import PlimsollLifecycle
import PlimsollLinux
import PlimsollSupervisor
import Synchronization

/// A service for the supervisor's demo, tests and benchmarks. The service accepts orders, holds memory, and grows if
/// so configured.
///
/// The count of accepted orders is written to a file at once. The difference to the saved count tells afterwards how
/// many orders were lost.
package final class UnitService: Sendable {
    /// Behaviour of a service.
    struct Habits: Sendable {
        var name: String
        /// Directory of the service's state and of the file with the number of accepted orders.
        var directory: String
        /// Memory held from the beginning.
        var size: ByteCount
        /// Memory allocated each second besides, regardless of pressure messages.
        var growth: ByteCount = .zero
        /// Time of shortage after which the service asks to be suspended; `nil` for never.
        var suspendAfter: Duration?
    }

    let manager: ResourceManager
    private let habits: Habits
    private let orders = Counter()
    private let ballast = Mutex<[Ballast]>([])
    private let accepted: Int32

    init(_ habits: Habits) throws {
        self.habits = habits
        // Except for that request, the service does not react to pressure by itself: the supervisor decides.
        let ladder =
            try habits.suspendAfter.map { try EscalationLadder([Rung(at: .warning, after: $0, .suspend)]) } ?? .none
        manager = ResourceManager(
            source: LinuxPressureSource(), policy: PressurePolicy(ladder: ladder), time: SteadyClock.timekeeper)
        let path = Self.acceptedFile(habits.name, in: habits.directory)
        accepted = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard accepted >= 0 else { throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))") }
    }

    deinit { close(accepted) }

    /// Runs until the task is cancelled.
    func run(ready: @Sendable () -> Void) async throws {
        let ticker = Ticker("orders", every: .milliseconds(10)) { [self] _ in accept() }
        manager.lifecycle.pausables.add(ticker)
        manager.lifecycle.preserve(
            "orders", in: Self.store(habits.name, in: habits.directory),
            snapshot: { [orders] in Array("\(orders.count)".utf8) },
            restore: { [orders] bytes in orders.set(Int(String(decoding: bytes, as: UTF8.self)) ?? 0) })
        hold(habits.size)
        let link = try? SupervisorLink(manager)
        defer { link?.close() }
        try await manager.lifecycle.launch()
        ready()
        if habits.growth > .zero { PlainThread { [self] in grow() }?.detach() }
        try await manager.run()
        ticker.cancel()
    }

    private func accept() {
        orders.add()
        var count = orders.count
        pwrite(accepted, &count, 8, 0)
    }

    // MARK: Memory

    /// Memory that is never given back.
    // Unchecked: no code touches the memory once made, and the memory ends with the process.
    private struct Ballast: @unchecked Sendable {
        let memory: RegionMemory
    }

    private func hold(_ size: ByteCount) {
        guard let memory = try? RegionMemory(size) else { return }
        ballast.withLock { $0.append(Ballast(memory: memory)) }
    }

    private func grow() {
        let step = ByteCount.mebibytes(1), pause = Duration.seconds(Double(step.bytes) / Double(habits.growth.bytes))
        var next = SteadyClock.now
        while true {
            hold(step)
            next += pause
            SteadyClock.sleep(until: next)
        }
    }

    // MARK: Judging

    /// Returns the number of orders that the service had accepted and not saved when it ended.
    package static func lost(_ name: String, in directory: String) throws -> Int {
        guard let accepted = accepted(name, in: directory) else {
            throw Failure.failed("cannot use \(acceptedFile(name, in: directory)): \(String(cString: strerror(errno)))")
        }
        // The store wraps the saved count, which stands at the end.
        let bytes = try store(name, in: directory).read("orders") ?? []
        let digits = bytes.reversed().prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
        return max(0, accepted - (Int(String(decoding: digits.reversed(), as: UTF8.self)) ?? 0))
    }

    /// Returns the number of orders accepted so far; `nil` if the service has never begun.
    package static func accepted(_ name: String, in directory: String) -> Int? {
        let file = open(acceptedFile(name, in: directory), O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var accepted = 0
        pread(file, &accepted, 8, 0)
        return accepted
    }

    private static func acceptedFile(_ name: String, in directory: String) -> String {
        directory + "/" + name + ".accepted"
    }
    private static func store(_ name: String, in directory: String) -> FileStateStore {
        FileStateStore(directory: directory + "/" + name + ".state")
    }
}

/// Standard output and standard error of a command that must never wait for a reader. Threads write the lines. Lines
/// that do not fit are dropped and counted.
final class PatientOutput: Sendable {
    private let output: LineWriter
    private let errors: LineWriter

    /// Starts the writers.
    ///
    /// - Parameter isJSON: true if lines on standard output are JSON.
    init(isJSON: Bool) throws {
        let output = LineWriter(STDOUT_FILENO) { trouble in
            guard case .dropped(let count) = trouble else { return nil }
            return Array((isJSON ? #"{"dropped":\#(count),"what":"dropped"}"# : Self.loss(count)).utf8) + [10]
        }
        let errors = LineWriter(STDERR_FILENO) { trouble in
            if case .dropped(let count) = trouble {
                Array("\(Output.program): \(Self.loss(count))\n".utf8)
            } else {
                nil
            }
        }
        guard let output, let errors else {
            throw Failure.failed(
                "cannot start a thread for its output; check the limit of processes (pids.max, RLIMIT_NPROC)"
            )
        }
        (self.output, self.errors) = (output, errors)
    }

    private static func loss(_ count: Int) -> String {
        "\(count) lines were dropped here because the reader was too slow"
    }

    func line(_ text: String) { output.write(Array((text + "\n").utf8)) }
    func error(_ text: String) { errors.write(Array((text + "\n").utf8)) }

    /// Writes the rest, for at most two seconds each.
    func finish() { for writer in [output, errors] { writer.finish(within: .seconds(2)) } }
}

/// A service under a supervisor, in a separate process.
struct UnitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_unit", abstract: "Part of `demo supervisor`.", shouldDisplay: false)

    @Option var name: String
    @Option var directory: String
    @Option var size: ByteCount
    @Option var growth: ByteCount = .zero
    @Option(help: "Request suspension once memory has been short for this many milliseconds.") var suspendAfter: Int?

    func run() throws {
        // Block signals on the first thread, before other threads exist. A signal blocked in all threads stays
        // pending until `SignalQueue` reads it.
        let signals = SignalQueue()
        let habits = UnitService.Habits(
            name: name, directory: directory, size: size, growth: growth,
            suspendAfter: suspendAfter.map { .milliseconds($0) })
        let service = try UnitService(habits)
        let life = Task {
            do {
                try await service.run { Output.line("ready") }
                return ExitCode.success
            } catch {
                Output.problem("\(error)")
                return ExitCode.failure
            }
        }
        Task { UnitCommand.exit(withError: await life.value) }
        while !(signals.next(within: .seconds(3600)).map(SignalQueue.endings.contains) ?? false) {}
        life.cancel()
        while true { pause() }
    }
}
