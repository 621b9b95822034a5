import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos

/// Entry point of the process.
@main
enum Program {
    static func main() { MainThread.run(BenchCommand.self) }
}

/// The command `plimsoll-bench`: measures the library's cost to a service with enough memory, and the effect of
/// releasing memory. Part of `make bench`.
struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plimsoll-bench", abstract: "Measure the costs of the library; part of `make bench`.",
        subcommands: [
            IdleBench.self, ResidentBench.self, FalseAlarmBench.self, BufferCommand.self, TortureCommand.self,
            GiveBackBench.self, VolatileCacheBench.self, TraceBench.self, TimersBench.self, LifecycleBenchCommand.self,
            TaskBenchCommand.self, SupervisorBenchCommand.self, PeersBenchCommand.self, HostileBenchCommand.self,
            IncidentBenchCommand.self, WorthBenchCommand.self, EvidenceBenchCommand.self, HeapBenchCommand.self,
            ServiceBenchCommand.self,
            AdminBenchCommand.self,
            DemoCommands.supervise,
            VolatileFootprintCommand.self, VolatileFaultsCommand.self, TaskFootprintCommand.self, IdlerCommand.self,
            ChurnCommand.self, GroupedServiceCommand.self, AdminServiceCommand.self, FleetCommand.self,
            HostileCommand.self, IncidentPartCommand.self, SaturateCommand.self, StateCommand.self,
            MachineUnitCommand.self, BlackBoxPartCommand.self, HeapPartCommand.self, HeldHeapCommand.self,
        ] + DemoCommands.parts)
}

/// Measures wake-ups, processor time and the length of a turn, far from the limit and near the limit.
struct IdleBench: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "idle")

    @Option(help: "Seconds of each measurement.") var seconds = 60.0

    func validate() throws { try Allowed.seconds(seconds, "--seconds", in: 1...3600) }

    func run() throws {
        try reportingFailure {
            let limit = ByteCount.mebibytes(512)
            let far = try Bench(limit: limit).idle(cache: limit * 0.125, for: .seconds(seconds))
            Bench.figure("idle.wakeups", far.wakeupsPerSecond, "per_second")
            Bench.figure("idle.cpu", far.processorPercent, "percent")
            // 22 % left, just above the warning line at 20 %: as close to the limit as possible with nothing to do.
            let near = try Bench(limit: limit).idle(
                cache: limit * 0.25, live: limit * 0.50, warmUp: .seconds(8), for: .seconds(seconds))
            Bench.figure("near.wakeups", near.wakeupsPerSecond, "per_second")
            Bench.figure("near.cpu", near.processorPercent, "percent")
            Bench.figure("near.purges", Double(near.purges), "count")
            // A separate run: reading clocks in each turn would count as the library's work above.
            let timed = try Bench(limit: limit).idle(
                cache: limit * 0.25, live: limit * 0.50, timed: true, warmUp: .seconds(8),
                for: .seconds(min(10, seconds)))
            if let turn = timed.turnProcessorMicroseconds { Bench.figure("loop.turn", turn, "us") }
            if let turn = timed.turnWallMicroseconds { Bench.figure("loop.turn-wall", turn, "us") }
        }
    }
}

/// Measures the resident memory (RSS) that the library adds.
struct ResidentBench: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "rss")

    @Option(help: "Runs of each measurement.") var runs = 5

    func validate() throws { try Allowed.count(runs, "--runs", in: 1...100) }

    func run() throws {
        try reportingFailure {
            var with: [Double] = [], without: [Double] = []
            // Alternate the two cases, so that drift of the machine affects both alike.
            for _ in 0..<runs {
                for managed in [false, true] {
                    let result = try Bench(limit: .mebibytes(512)).idle(
                        cache: .mebibytes(16), managed: managed, warmUp: .seconds(1), for: .seconds(1))
                    if managed {
                        with.append(Double(result.residentBytes))
                    } else {
                        without.append(Double(result.residentBytes))
                    }
                }
            }
            guard let with = median(with), let without = median(without) else { return }
            Bench.figure("rss.without", without / 1_048_576, "MiB")
            Bench.figure("rss.added", (with - without) / 1_048_576, "MiB")
        }
    }
}

/// Counts false alarms: page-cache churn and short stalls beside an idle service whose group stays at the limit.
struct FalseAlarmBench: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "false-alarm")

    @Option(help: "Seconds of churn.") var seconds = 600.0
    @Option(help: "Directory on a disk for the file of the churn.", completion: .directory) var directory =
        "."

    func validate() throws { try Allowed.seconds(seconds, "--seconds", in: 5...7200) }

    func run() throws {
        try reportingFailure {
            if let type = FileSystem.type(of: directory), type == "tmpfs" || type == "ramfs" {
                throw Failure.unavailable(
                    "\(printable(directory)) is in memory (\(type)); name a directory on a disk with --directory")
            }
            let limit = ByteCount.mebibytes(256)
            let file = try Churn.makeFile(limit * 1.5, in: directory)
            defer { unlink(file) }
            var hits = 0, stalled: Duration?
            let result = try Bench(limit: limit).idle(
                cache: limit * 0.25, for: .seconds(seconds),
                beside: { group in
                    try group.startPart(["_churn", "--file", file, "--seconds", "\(seconds + 30)"])
                },
                atEnd: { group in
                    hits = group.limitHits
                    stalled = group.stalled
                })
            Bench.figure("false-alarm.purges", Double(result.purges), "count")
            Bench.figure("false-alarm.above-warning", Double(result.aboveWarning), "count")
            Bench.figure("false-alarm.warnings", Double(result.warnings), "count")
            // The claim includes that the group was at its limit and did stall.
            Bench.figure("false-alarm.limit-hits", Double(hits), "count")
            if let stalled { Bench.figure("false-alarm.stalled", stalled.milliseconds, "ms") }
            if hits == 0 { throw Failure.failed("the group never met its limit; the measurement is inconclusive") }
        }
    }
}

/// An idle service, in a separate process.
struct IdlerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_idler", abstract: "Part of `plimsoll-bench`.", shouldDisplay: false)

    @Option var cache: ByteCount
    @Option var live: ByteCount
    @Option var seconds: Double
    @Option var warmUp: Double
    @Flag var managed = false
    @Flag var timed = false
    @Option var box: String?

    func run() async throws {
        let idler = Idler(cache: cache, live: live)
        Output.line(
            JSONLine.encode(
                try await idler.idle(
                    managed: managed, timed: timed, box: box, warmUp: .seconds(warmUp), for: .seconds(seconds))))
    }
}

/// A neighbour that churns page cache, in a separate process.
struct ChurnCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "_churn", abstract: "Part of `plimsoll-bench`.", shouldDisplay: false)

    @Option var file: String
    @Option var seconds: Double

    func run() throws { try reportingFailure { try Churn().run(file, for: .seconds(seconds)) } }
}
