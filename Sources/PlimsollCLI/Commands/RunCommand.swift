import ArgumentParser
import Glibc
import Plimsoll
import PlimsollDemos

/// Runs a command in a separate group and reports the command's memory use and end.
struct RunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Run a command in a group of its own with a limit, and report its memory use and end.",
        discussion:
            "Exit status: the command's own; 128 plus the number of the signal that ended it; 69 if no group can be made."
    )

    @Option(help: "Limit above which the kernel kills, for example 512M.") var memoryMax: ByteCount?
    @Option(help: "Limit above which the kernel throttles (cgroup v2 only).") var memoryHigh: ByteCount?
    @Flag(help: "Report as a JSON line on standard error.") var json = false
    @Argument(parsing: .postTerminator, help: "Command to run, after `--`.") var command: [String] = []

    func validate() throws {
        guard !command.isEmpty else {
            throw ValidationError(
                "No command to run; allowed is: plimsoll run [--memory-max 512M] -- COMMAND ARGUMENT…")
        }
        // A page is the smallest unit that the kernel charges. A shell hardly starts with less than a mebibyte.
        try Allowed.size(memoryMax, "--memory-max", in: .mebibytes(1) ... .gibibytes(1 << 20))
        try Allowed.size(memoryHigh, "--memory-high", in: .mebibytes(1) ... .gibibytes(1 << 20))
    }

    func run() throws {
        let ending = try reportingFailure { try runInGroup() }
        throw ExitCode(ending.status)
    }

    private func runInGroup() throws -> ChildProcess.Ending {
        let signals = SignalQueue()
        let group: LimitedGroup
        do {
            group = try GroupMaker().make("run", limit: memoryMax, high: memoryHigh, allowsSwap: true)
        } catch {
            throw Failure.unavailable("\(error)\nWhat to do: \(GroupMaker.Refusal.remedy).")
        }
        defer {
            // Processes that the command left running belong to the user; do not end them.
            if !group.remove() {
                Output.error("plimsoll run: left \(group.memory), because processes of the command still run in it")
            }
        }

        let began = SteadyClock.now
        let child = try group.start(command[0], command)
        var peak = ByteCount.zero
        while child.poll() == nil {
            // Kernels without memory.peak: the largest of ten samples a second.
            if let signal = signals.nextToPassOn(within: .milliseconds(100)) { child.signal(signal) }
            peak = max(peak, group.usage)
        }
        let report = RunReport(
            command: command[0], ending: child.waitForEnd(), took: SteadyClock.now - began, limit: memoryMax,
            peak: group.peak ?? peak, kills: group.kills, limitHits: group.limitHits, stalled: group.stalled)
        Output.error(json ? JSONLine.encode(report.record) : report.description)
        return child.waitForEnd()
    }
}

/// Memory use and end of a command under a limit.
struct RunReport {
    var command: String
    var ending: ChildProcess.Ending
    var took: Duration
    var limit: ByteCount?
    var peak: ByteCount
    var kills: Int
    var limitHits: Int
    var stalled: Duration?

    /// One human-readable line.
    var description: String {
        let end =
            switch ending {
            case .exited(let status): "exit status \(status)"
            case .signalled(SIGKILL) where kills > 0: "killed by the kernel for lack of memory"
            case .signalled(let signal): "ended by signal \(signal)"
            }
        var parts = [
            "\(end) after \(Text.number(took.inSeconds, decimals: 2)) s",
            "peak \(peak)" + (limit.map { " of \($0)" } ?? ""),
        ]
        parts.append("\(kills) OOM kills")
        parts.append("met the limit \(limitHits) times")
        parts.append(stalled.map { "stalled \(Text.number($0.milliseconds)) ms" } ?? "stall time unknown")
        return "plimsoll run: \(printable(command)): " + parts.joined(separator: ", ")
    }

    struct Record: Encodable {
        var command: String, exitStatus: Int32? = nil, signal: Int32? = nil, seconds: Double, limitBytes: Int?,
            peakBytes: Int
        var oomKills: Int, limitHits: Int, stalledMicroseconds: Int?
    }

    var record: Record {
        var record = Record(
            command: command, seconds: took.inSeconds, limitBytes: limit?.bytes, peakBytes: peak.bytes, oomKills: kills,
            limitHits: limitHits,
            stalledMicroseconds: stalled.map { Int($0.inSeconds * 1e6) })
        switch ending {
        case .exited(let status): record.exitStatus = status
        case .signalled(let signal): record.signal = signal
        }
        return record
    }
}
