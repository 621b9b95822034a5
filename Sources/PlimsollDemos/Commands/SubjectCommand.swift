import ArgumentParser
import Plimsoll
import PlimsollLinux

/// One run of the stress harness, in a separate process.
struct SubjectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_subject", abstract: "Part of `stress`.", shouldDisplay: false)

    @Option var scenario: String
    @Option var protection: String
    @Option var limit: ByteCount
    @Option var seed: UInt64
    @Option var directory: String

    func run() async throws {
        guard let scenario = Scenario(rawValue: scenario), let protection = Protection(rawValue: protection) else {
            throw ValidationError("unknown scenario or protection")
        }
        let subject = try reportingFailure {
            try Subject(scenario, protection, limit: limit, seed: seed, directory: directory)
        }
        switch protection {
        case .none, .volatile:
            let (began, crossed) = try await endure(subject)
            Output.line(JSONLine.encode(subject.result([], began: began, crossed: crossed)))
        case .reactive:
            let manager = ResourceManager(
                source: LinuxPressureSource(), time: SteadyClock.timekeeper, onTurn: { subject.noteTurn($1) })
            manager.register(subject.cache.purgeable)
            async let _: Void = manager.run()
            let (began, crossed) = try await endure(subject)
            Output.line(JSONLine.encode(subject.result(manager.reports, began: began, crossed: crossed)))
        }
    }

    private func endure(_ subject: Subject) async throws -> (began: Duration, crossed: Duration?) {
        try await PlainThread.run { try reportingFailure { try subject.endure() } }
    }
}
