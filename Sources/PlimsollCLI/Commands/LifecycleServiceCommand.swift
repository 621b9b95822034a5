import ArgumentParser
import Glibc
import Plimsoll

/// The service of `demo lifecycle`, in a process of its own.
struct LifecycleServiceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "_lifecycle-service", abstract: "Part of `demo lifecycle`.", shouldDisplay: false)

    @Option var directory: String
    /// In seconds, both.
    @Option var allowance: Double
    @Option var grace: Double

    func run() throws {
        // Here on the first thread, before there are others: a signal that is blocked in all of them is kept until it is asked for.
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
            // The parent is gone.
            kill(getpid(), SIGTERM)
        }
        listener?.detach()
        Task { PlimsollCommand.exit(withError: await life.value) }
        while !(signals.next(within: .seconds(60)).map(SignalQueue.endings.contains) ?? false) {}
        life.cancel()
        while true { pause() }
    }
}
