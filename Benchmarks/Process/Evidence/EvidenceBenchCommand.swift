import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollLinux

/// Kills services with a black box, and reads their records.
struct EvidenceBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "evidence", abstract: "Kill services with a black box at random moments, and read what is left.")

    @Option(help: "Number of services to kill.") var kills = 50
    @Option(help: "Seed of the moments.") var seed: UInt64 = 1
    @Option(help: "Limit of each service.") var limit = ByteCount.mebibytes(128)
    @Option(help: "Number of services at a time.") var parallel = 2

    func validate() throws {
        try Allowed.count(kills, "--kills", in: 1...1000)
        try Allowed.count(parallel, "--parallel", in: 1...16)
        try Allowed.size(limit, "--limit", in: .mebibytes(64) ... .gibibytes(1))
    }

    func run() throws {
        try reportingFailure {
            do {
                try ScratchDirectory.with("evidence") { directory in
                    try kill(in: directory)
                    try measureTurns("\(directory)/idle.box")
                }
            } catch let refusal as GroupMaker.Refusal {
                throw Failure.unavailable("\(refusal)\nWhat to do: \(GroupMaker.Refusal.remedy).")
            }
        }
    }

    private func kill(in directory: String) throws {
        let signals = SignalQueue()
        var open: [BlackBoxKill] = [], ended: [BlackBoxKill.Finding] = [], next = 0
        defer { for kill in open { kill.cleanUp() } }
        while ended.count < kills {
            while open.count < parallel, next < kills {
                open.append(
                    try BlackBoxKill(next, seed: seed, limit: limit, file: "\(directory)/\(next).box"))
                next += 1
            }
            if let signal = signals.next(within: .milliseconds(2)), SignalQueue.endings.contains(signal) {
                throw Failure.failed("interrupted")
            }
            for (index, kill) in open.enumerated().reversed() where kill.isOver() {
                open.remove(at: index)
                let finding = try kill.finding()
                Output.line("# \(finding.text)")
                ended.append(finding)
            }
        }
        func count(_ name: String, _ part: KeyPath<BlackBoxKill.Finding, Bool>) {
            Output.line("figure \(name) \(ended.count { $0[keyPath: part] }) of_\(kills)")
        }
        count("blackbox.whole", \.isWhole)
        count("blackbox.named", \.isNamed)
        let oom = ended.filter { $0.means == .limit }
        Output.line("figure blackbox.oom-told \(oom.count { $0.saysOutOfMemory }) of_\(oom.count)")
        Bench.figure("blackbox.file", Double(BoxFile.size) / 1024, "KiB")
    }

    /// Measures a turn of the loop without and with a black box, interleaved.
    private func measureTurns(_ box: String) throws {
        var differences: [Double] = [], turns: [Double] = []
        for _ in 0..<5 {
            let bare = try Bench(limit: limit * 2).idle(
                cache: limit * 0.5, live: limit, timed: true, warmUp: .seconds(4), for: .seconds(8))
            let recorded = try Bench(limit: limit * 2).idle(
                cache: limit * 0.5, live: limit, timed: true, box: box, warmUp: .seconds(4), for: .seconds(8))
            guard let less = bare.turnProcessorMicroseconds, let more = recorded.turnProcessorMicroseconds else {
                throw Failure.failed("the idle service measured no turn")
            }
            differences.append(more - less)
            turns.append(less)
        }
        Bench.figure("blackbox.turn", median(differences) ?? 0, "us")
        Bench.figure("blackbox.turn-without", median(turns) ?? 0, "us")
    }
}
