import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos

/// Compares the supervisor with its peers: the kernel alone, earlyoom, and systemd-oomd.
struct PeersBenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "peers",
        abstract:
            "Run three services on a whole machine under the kernel alone, earlyoom, systemd-oomd, and the supervisor.",
        discussion:
            "Run in a virtual machine with systemd, as `make vm-peers` boots one: the command uses up the machine's memory."
    )

    @Flag(help: "Use up the memory of this machine; whatever else runs here may be killed.") var wholeMachine = false
    @Option(help: "Keepers of the services, separated by commas.") var keepers = PeerPlay.Keeper.allCases.map(
        \.rawValue
    ).joined(separator: ",")
    @Option(help: "Runs with each keeper.") var runs = 2
    @Option(help: "Seconds of each run.") var seconds = 30.0

    func validate() throws {
        guard wholeMachine else {
            throw ValidationError(
                "Give --whole-machine: the command uses up the memory of the machine; use a virtual one.")
        }
        try Allowed.count(runs, "--runs", in: 1...100)
        try Allowed.seconds(seconds, "--seconds", in: 1...600)
        let _: [PeerPlay.Keeper] = try Allowed.list(keepers, "--keepers")
    }

    func run() throws {
        try reportingFailure {
            guard access("/run/systemd/system", F_OK) == 0, access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0,
                getuid() == 0
            else {
                throw Failure.unavailable(
                    "the services are systemd's with cgroup version 2, which root starts here; use make vm-peers")
            }
            let signals = SignalQueue(), limit = available,
                hasSwap = (ControlFile.text("/proc/swaps") ?? "").split(separator: "\n").count > 1
            var records: [PeerRecord] = []
            for keeper in try Allowed.list(keepers, "--keepers") as [PeerPlay.Keeper] {
                for _ in 1...runs {
                    records.append(
                        try ScratchDirectory.with("peers") { directory in
                            try PeerPlay(keeper: keeper, limit: limit, directory: directory, signals: signals).play(
                                for: .seconds(seconds))
                        })
                    Output.line("# " + records.last!.row.joined(separator: "; "))
                }
            }
            Output.line(
                "\(limit) for the services, \(hasSwap ? "with" : "without") swap; each run takes \(Text.number(seconds)) s"
            )
            Output.line(Text.table(PeerRecord.header, records.map(\.row)))
            report(records, "supervisor.trio" + (hasSwap ? "-swap" : ""))
        }
    }

    private func report(_ records: [PeerRecord], _ name: String) {
        for keeper in PeerPlay.Keeper.allCases {
            let own = records.filter { $0.keeper == keeper }
            guard !own.isEmpty else { continue }
            Bench.figure("\(name).\(keeper.rawValue)", Double(own.count(where: \.survived)), "of_\(own.count)")
            let lost = own.reduce(0) { $0 + $1.lost.values.reduce(0, +) }
            Bench.figure("\(name).\(keeper.rawValue).state-lost", Double(lost), "orders")
            let unserved = own.reduce(Duration.zero) { $0 + $1.unserved } / own.count
            Bench.figure("\(name).\(keeper.rawValue).not-served", unserved.inSeconds, "s")
        }
    }

    /// Memory available for services now.
    private var available: ByteCount {
        let line = (ControlFile.text("/proc/meminfo") ?? "").split(separator: "\n").first {
            $0.hasPrefix("MemAvailable:")
        }
        return .kibibytes(line?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0)
    }
}
