import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Four processes under one limit and one supervisor, whose streams of requests shift, with a burst in between.
struct MachineBench {
    let limit: ByteCount
    /// Seconds of each half, and requests a second of each process.
    let seconds: Double
    let rate: Double

    struct Outcome {
        /// Microseconds of load time.
        var cost: Double
        /// Mean bytes of all caches together.
        var held: Int
        var kills: Int
    }

    /// Returns the least cost with memory of `bytes`, with the best division of each half.
    func leastCost(bytes: Int) -> Double {
        let split = StaticSplit()
        return (0...1).reduce(0) { $0 + MachineMix.leastCost(half: $1, count: count, bytes: bytes, split) }
    }

    private var count: Int { Int(seconds * rate) }
    private static let prefix = "worth"

    /// Runs the four processes.
    ///
    /// - Parameter byWorth: true if the supervisor divides the memory for caches by worth.
    func play(byWorth: Bool) throws -> Outcome {
        try ScratchDirectory.with("machine") { directory in
            let group = try GroupMaker().make("machine", limit: limit)
            try File.write(units(directory, byWorth: byWorth), to: directory + "/units.yaml")
            let supervisor = try group.startPart([
                "supervise", directory + "/units.yaml", "--directory", directory, "--audit", directory + "/audit",
                "--prefix", Self.prefix, "--own-leaf",
            ])
            defer { clear(group, supervisor) }
            let results = try wait(for: supervisor, in: directory)
            var outcome = Outcome(cost: 0, held: 0, kills: kills(group))
            for (index, halves) in results.enumerated() {
                for (misses, held) in halves {
                    outcome.cost += Double(misses) * MachineMix.loads[index]
                    outcome.held += held / halves.count
                }
            }
            report(results, directory)
            return outcome
        }
    }

    private func units(_ directory: String, byWorth: Bool) -> String {
        var text = "version: 1\npolicy: {division: \(byWorth ? "worth" : "proportional")}\nunits:\n"
        for (index, name) in MachineMix.names.enumerated() {
            // The last process has the burst.
            let burst = index == MachineMix.names.count - 1 ? limit.bytes / 8 : 0
            let command =
                [
                    Trio.program, "_worth-unit", "--number", "\(index)", "--results", "\(directory)/\(name).txt",
                    "--count",
                    "\(count)", "--rate", "\(rate)", "--burst", "\(burst)",
                ] + (byWorth ? ["--by-worth"] : [])
            let list = command.map { "\"\($0)\"" }.joined(separator: ", ")
            text += "  \(name): {command: [\(list)], role: foreground, restart: never, trustsWorth: true}\n"
        }
        return text
    }

    /// Returns the misses and the mean bytes of each process by halves.
    private func wait(for supervisor: ChildProcess, in directory: String) throws -> [[(misses: Int, held: Int)]] {
        let deadline = SteadyClock.now + .seconds(4 * seconds + 60)
        func results() -> [[(misses: Int, held: Int)]] {
            MachineMix.names.compactMap { name in
                guard let text = ControlFile.text("\(directory)/\(name).txt") else { return nil }
                let halves = text.split(separator: "\n").map { $0.split(separator: " ").compactMap { Int($0) } }
                return halves.count == 2 ? halves.map { ($0[0], $0[1]) } : nil
            }
        }
        while results().count < MachineMix.names.count {
            guard SteadyClock.now < deadline else { throw Failure.failed("a process of the four has not ended") }
            guard supervisor.poll() == nil else { throw Failure.failed("the supervisor has ended") }
            _ = supervisor.output?.lines()
            SteadyClock.sleep(.milliseconds(100))
        }
        return results()
    }

    private func report(_ results: [[(misses: Int, held: Int)]], _ directory: String) {
        let audit = ControlFile.text(directory + "/audit") ?? ""
        let moves = audit.split(separator: "\n").count {
            $0.contains(#""action":"share""#) && $0.contains(#""bytes":"#)
        }
        let parts = results.map { halves in
            halves.map { "\($0.misses * 100 / max(1, count)) % at \($0.held >> 20) MiB" }.joined(separator: ", then ")
        }
        Output.line("# misses of each process: \(parts.joined(separator: "; ")); \(moves) shares told")
    }

    private func kills(_ group: LimitedGroup) -> Int {
        guard group.version == .v1 else { return group.kills }
        return MachineMix.names.reduce(group.kills) { sum, name in
            sum + LimitedGroup(version: .v1, memory: "\(group.memory)/\(Self.prefix)-\(name)", stall: nil).kills
        }
    }

    private func clear(_ group: LimitedGroup, _ supervisor: ChildProcess) {
        supervisor.signal(SIGTERM)
        supervisor.end(within: .seconds(15))
        for name in MachineMix.names.map({ "\(Self.prefix)-\($0)" }) + [
            "\(Self.prefix)-supervisor", "\(Self.prefix).lock",
        ] {
            for directory in group.directories {
                let members = ControlFile.text("\(directory)/\(name)/cgroup.procs") ?? ""
                for process in members.split(separator: "\n").compactMap({ pid_t($0) }) { kill(process, SIGKILL) }
                LimitedGroup(version: group.version, memory: "\(directory)/\(name)", stall: nil).remove()
            }
        }
        if !group.remove() { Output.problem("cannot remove \(group.memory)") }
    }
}
