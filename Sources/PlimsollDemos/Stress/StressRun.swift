import Glibc
import Plimsoll

/// One subject under way, with its group and process.
final class StressRun {
    let scenario: Scenario
    let protection: Protection
    private let limit: ByteCount
    private let group: LimitedGroup
    private let child: ChildProcess
    private let deadline: Duration
    private var result: SubjectResult?
    private var problem: String?

    enum Outcome: Equatable {
        case survived(SubjectResult)
        case killed
        /// Proves nothing either way.
        case invalid(String)
    }

    init(
        _ scenario: Scenario, _ protection: Protection, limit: ByteCount, seed: UInt64, directory: String,
        allowsSwap: Bool, number: Int
    ) throws {
        self.scenario = scenario
        self.protection = protection
        self.limit = limit
        deadline = SteadyClock.now + scenario.patience(limit: limit)
        group = try GroupMaker().make("stress-\(number)", limit: limit, allowsSwap: allowsSwap)
        do {
            child = try group.startPart([
                "_subject", "--scenario", scenario.rawValue, "--protection", protection.rawValue, "--limit",
                "\(limit.bytes)",
                "--seed", "\(seed)", "--directory", directory,
            ])
        } catch {
            group.remove()
            throw error
        }
    }

    /// Returns the outcome, once the run has ended.
    func poll() -> Outcome? {
        let ending = child.poll()
        for line in child.output?.lines() ?? [] {
            if line == "ready" { lowerLimit() } else { result = try? JSONLine.decode(SubjectResult.self, from: line) }
        }
        if let ending { return outcome(ending) }
        if SteadyClock.now > deadline {
            child.end(within: .zero)
            return .invalid("the run took longer than \(Text.number(scenario.patience(limit: limit).inSeconds)) s")
        }
        return nil
    }

    func cleanUp() {
        child.end(within: .zero)
        if !group.remove() {
            Output.problem("cannot remove \(group.directories.joined(separator: ", "))")
        }
    }

    private func outcome(_ ending: ChildProcess.Ending) -> Outcome {
        if let problem { return .invalid(problem) }
        let kills = group.kills
        if ending == .exited(0), kills == 0, let result {
            return result.wrongBytes == 0
                ? .survived(result) : .invalid("\(result.wrongBytes) wrong bytes in the values that the cache kept")
        }
        if ending == .signalled(SIGKILL), kills > 0 { return .killed }
        return .invalid("the process ended with status \(ending.status) and \(kills) OOM kills")
    }

    private func lowerLimit() {
        do {
            try group.setLimit(limit * 0.5)
        } catch {
            problem = "cannot lower the limit: \(error)"
            child.end(within: .zero)
        }
    }
}
