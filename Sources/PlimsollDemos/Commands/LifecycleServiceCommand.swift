import ArgumentParser
import Glibc
import Plimsoll

/// The service of `demo lifecycle`, in a separate process.
struct LifecycleServiceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_lifecycle-service", abstract: "Part of `demo lifecycle`.", shouldDisplay: false)

    @Option var directory: String
    /// Background allowance and termination grace, both in seconds.
    @Option var allowance: Double
    @Option var grace: Double

    func run() throws {
        // Block signals on the first thread, before other threads exist. A signal blocked in all threads stays
        // pending until `SignalQueue` reads it.
        let signals = SignalQueue()
        let service = LifecycleService(directory: directory, allowance: .seconds(allowance), grace: .seconds(grace))
        let life = Task {
            do {
                try await service.run()
                return ExitCode.success
            } catch {
                Output.error("plimsoll: \(error)")
                return ExitCode.failure
            }
        }
        let listener = PlainThread {
            while let line = readLine() {
                guard let request = LifecycleRequest(rawValue: line) else { continue }
                Task {
                    do { try await service.take(request) } catch { Output.error("plimsoll: \(request): \(error)") }
                }
            }
            // End of input: the parent is gone.
            kill(getpid(), SIGTERM)
        }
        listener?.detach()
        Task { LifecycleServiceCommand.exit(withError: await life.value) }
        while !(signals.next(within: .seconds(60)).map(SignalQueue.endings.contains) ?? false) {}
        life.cancel()
        while true { pause() }
    }
}
