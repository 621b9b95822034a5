import ArgumentParser
import Glibc
import Plimsoll

/// A service under a supervisor, in a separate process.
struct UnitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_unit", abstract: "Part of `demo supervisor`.", shouldDisplay: false)

    @Option var name: String
    @Option var directory: String
    @Option var size: ByteCount
    @Option var growth: ByteCount = .zero
    @Option(help: "It asks to stand still once memory has been short for so many milliseconds.") var suspendAfter: Int?

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
                Output.error("plimsoll: \(error)")
                return ExitCode.failure
            }
        }
        Task { UnitCommand.exit(withError: await life.value) }
        while !(signals.next(within: .seconds(3600)).map(SignalQueue.endings.contains) ?? false) {}
        life.cancel()
        while true { pause() }
    }
}
