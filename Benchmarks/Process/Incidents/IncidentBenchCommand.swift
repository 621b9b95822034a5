import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Runs the incidents of `simulate incidents` on the real kernel, side by side, each in a separate group.
struct IncidentBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "incidents",
        abstract:
            "Run situations that controllers of memory pressure failed at, on the running kernel: cgroup version 2.")

    @Option(help: "Incidents to run, separated by commas.") var only = Incident.allCases.map(\.rawValue).joined(
        separator: ",")
    @Option(help: "Limit of each group.") var limit = ByteCount.mebibytes(96)
    @Option(help: "Directory on a disk.", completion: .directory) var directory = "."
    @Option(help: "Directory on a tmpfs, mounted with nr_inodes=0.", completion: .directory) var held = "/dev/shm"

    func validate() throws {
        try Allowed.size(limit, "--limit", in: .mebibytes(64) ... .gibibytes(1))
        let _: [Incident] = try Allowed.list(only, "--only")
    }

    func run() throws {
        try reportingFailure {
            do { try play(Allowed.list(only, "--only")) } catch let refusal as GroupMaker.Refusal {
                throw Failure.unavailable("\(refusal)\nWhat to do: \(GroupMaker.Refusal.remedy).")
            }
        }
    }

    private func play(_ incidents: [Incident]) throws {
        var trials: [IncidentTrial] = []
        defer { for trial in trials { trial.cleanUp() } }
        for incident in incidents {
            trials.append(
                try IncidentTrial(incident, limit: limit, directory: incident == .heldDentries ? held : directory))
        }
        var wrong: [String] = []
        for trial in trials {
            let (outcome, names, rises) = try trial.finish()
            let judgement = trial.incident.judge(outcome), levels = outcome.levels
            let changes = zip(levels, levels.dropFirst()).count { $0 != $1 }
            Output.line(
                "# \(trial.incident.rawValue): \(levels.count) readings, at most \(levels.max() ?? .normal), at last \(levels.last ?? .normal), "
                    + "\(changes) changes\(names > 0 ? ", \(names) names" : ""); expected: \(judgement.expected)")
            for rise in rises { Output.line("#   \(rise)") }
            Output.line("figure incident.\(trial.incident.rawValue).right \(judgement.isMet ? 1 : 0) of_1")
            if !judgement.isMet { wrong.append(trial.incident.rawValue) }
        }
        guard wrong.isEmpty else { throw Failure.failed("the outcome is wrong: \(wrong.joined(separator: ", "))") }
    }
}

/// One incident under way, with its groups and processes.
private final class IncidentTrial {
    let incident: Incident
    private let limit: ByteCount
    /// Group with the effective limit. `inner` holds its children if a neighbour shares that limit.
    private let outer: LimitedGroup
    private var inner: [LimitedGroup] = []
    private var neighbour: ChildProcess?
    private let service: ChildProcess

    init(_ incident: Incident, limit: ByteCount, directory: String) throws {
        (self.incident, self.limit) = (incident, limit)
        outer = try GroupMaker().make("incident-\(incident.rawValue)", limit: limit)
        var made: [LimitedGroup] = []
        do {
            guard outer.version == .v2 else {
                throw Failure.unavailable("memory is on cgroup version 1 here; run `make vm`")
            }
            let part = [
                "_incident", "--incident", incident.rawValue, "--limit", "\(limit.bytes)", "--directory", directory,
            ]
            if incident == .lowerFloor {
                try ControlFile.write("+memory", to: outer.memory + "/cgroup.subtree_control")
                for name in ["service", "neighbour"] {
                    let path = outer.memory + "/" + name
                    guard mkdir(path, 0o755) == 0 else {
                        throw Failure.failed("cannot use \(path): \(String(cString: strerror(errno)))")
                    }
                    made.append(LimitedGroup(version: .v2, memory: path, stall: path))
                }
                try made[0].setLimit(limit * 2.67)
                neighbour = try made[1].startPart(part + ["--neighbour"])
            }
            service = try (made.first ?? outer).startPart(part)
        } catch {
            neighbour?.end(within: .zero)
            for group in made + [outer] { group.remove() }
            throw error
        }
        inner = made
    }

    /// Waits for the end of the incident.
    func finish() throws -> (IncidentOutcome, names: Int, rises: [String]) {
        let deadline = SteadyClock.now + IncidentLoad.stride * IncidentLoad.ticks * 4
        while service.poll() == nil {
            guard SteadyClock.now < deadline else {
                throw Failure.failed("\(incident.rawValue) did not end")
            }
            SteadyClock.sleep(.milliseconds(20))
        }
        var outcome = IncidentOutcome()
        outcome.survives = service.ending == .exited(0) && ([outer] + inner).allSatisfy { $0.kills == 0 }
        let result = service.output?.lines().compactMap {
            try? JSONLine.decode(IncidentPartCommand.Result.self, from: $0)
        }.first
        guard let result else { return (outcome, 0, []) }
        outcome.levels = result.levels.map { $0 == "0" ? .normal : $0 == "1" ? .warning : .critical }
        outcome.ends = result.ends
        outcome.cacheShare = Double(result.cacheBytes) / Double(limit.bytes)
        return (outcome, result.names, result.rises)
    }

    func cleanUp() {
        service.end(within: .zero)
        neighbour?.end(within: .zero)
        for group in inner + [outer] where !group.remove() {
            Output.problem("cannot remove \(group.memory)")
        }
    }
}
