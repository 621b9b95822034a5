import ArgumentParser
import Plimsoll
import PlimsollDemos
import PlimsollLifecycle
import PlimsollLinux
import PlimsollService

/// Prints which signals work here, why the others do not, and the remedy for each.
struct DoctorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Report which signals of memory pressure work here, why the others do not, and the remedies.",
        discussion: """
            Without an option, the command inspects its own group, which is not the service's. --pid inspects the groups of a running process, and
            changes nothing there; --socket requests the signals of a running service. Exit status: 0, or 69 if no signal works here.
            """)

    @Option(help: "Number of a running process whose groups to inspect.") var pid: Int32?
    @Option(help: "Admin socket of a running service to query.", completion: .file()) var socket: String?
    @Flag(help: "Print one JSON line instead of text.") var json = false

    func validate() throws {
        if pid != nil, socket != nil { throw ValidationError("Only one of --pid and --socket is allowed.") }
        if let pid, pid < 1 {
            throw ValidationError("--pid is \(pid); allowed is the number of a process, 1 or more.")
        }
    }

    func run() throws {
        if let socket { return try ask(socket) }
        if let pid { return try inspect(pid) }
        let source = LinuxPressureSource()
        let capabilities = source.capabilities.adding(VolatileMemory.signal).adding(HeapAllocator.current.signal)
            .adding(BudgetRegistry.signal).adding(ProcessPrivacy.signal)
        try report(capabilities, try? source.read(at: SteadyClock.now))
    }

    private func inspect(_ pid: Int32) throws {
        try reportingFailure {
            guard let process = ForeignProcess(pid) else {
                throw Failure.unavailable(
                    "cannot inspect process \(pid) because no process has that number; give the number of a running process"
                )
            }
            try report(process.capabilities, try? process.read(at: SteadyClock.now), of: "process \(pid)")
        }
    }

    private func report(_ capabilities: Capabilities, _ reading: PressureReading?, of process: String = "this process")
        throws
    {
        if json {
            Output.line(
                JSONLine.encode(Diagnosis(capabilities: capabilities, reading: reading.map(ReadingRecord.init))))
        } else {
            Output.line(Self.text(capabilities, reading, of: process))
        }
        if capabilities.support == .inert { throw ExitCode(69) }
    }

    private func ask(_ socket: String) throws {
        try reportingFailure {
            let answer = try AdminOptions.failing { () throws(AdminError) in
                let client = try AdminClient(path: socket)
                return try client.decode(client.line(for: AdminRequest(.status)))
            }
            try AdminOptions.check(answer)
            guard let status = answer.status else {
                throw Failure.unavailable("the service at \(socket) reported no status")
            }
            let capabilities = Capabilities(support: .init(rawValue: status.support) ?? .inert, signals: status.signals)
            if json {
                Output.line(JSONLine.encode(Diagnosis(capabilities: capabilities, reading: nil)))
            } else {
                Output.line(Self.signals(capabilities) + "\n\n" + AdminText.status(status))
            }
            if capabilities.support == .inert { throw ExitCode(69) }
        }
    }

    private struct Diagnosis: Encodable {
        var capabilities: Capabilities
        var reading: ReadingRecord?
    }

    static func text(_ capabilities: Capabilities, _ reading: PressureReading?, of process: String = "this process")
        -> String
    {
        let readingText = reading.map { numbers($0, of: process, stall: capabilities["stall"]?.detail ?? "") }
        return signals(capabilities) + "\n\n" + (readingText ?? "No reading is possible.")
    }

    private static func signals(_ capabilities: Capabilities) -> String {
        var lines = ["support: \(capabilities.support.meaning)", ""]
        let width = capabilities.signals.map(\.name.count).max() ?? 0
        for signal in capabilities.signals {
            // Signal names may come from another process, so they are untrusted too.
            lines.append(
                "\(signal.isLive ? "live" : "dead")  \(Text.left(printable(signal.name), width))  \(printable(signal.detail))"
            )
            if let remedy = signal.remedy {
                lines.append(String(repeating: " ", count: width + 8) + "do: \(printable(remedy))")
            }
        }
        return lines.joined(separator: "\n")
    }

    /// Returns a table of the reading's numbers.
    ///
    /// - Parameter stall: detail text of the stall signal; begins with the path that is read.
    private static func numbers(_ reading: PressureReading, of process: String, stall: String) -> String {
        let limit =
            switch reading.boundary {
            case .maximum: "the group's limit, above which the kernel kills"
            case .high: "memory.high, above which the kernel throttles"
            case .machine: "the machine's memory"
            case .none: "none known"
            }
        var rows = [["limit", (reading.limit.map { "\($0), " } ?? "") + limit]]
        rows.append(["usage", "\(reading.usage), of which the working set is \(reading.workingSet)"])
        rows.append(["available", reading.available.map { "\($0) can still be allocated" } ?? "unknown"])
        rows.append(["resident", "\(reading.resident), \(process)"])
        if let total = reading.stall?.some {
            // A group's stall file never lies below /proc. A path below /proc is the machine's file, read where the
            // group has none.
            let whose =
                stall.hasPrefix("/proc/")
                ? "all tasks of the machine, since it was started" : "the group's tasks, since the group was made"
            rows.append(["stalled", "\(total.brief): \(whose)"])
        }
        let idle = reading.boundary == .machine ? reading.machineIdle : reading.idle
        if let file = idle?.file, file > .zero {
            rows.append([
                "inactive", "\(file), page cache not used recently and volatile pages: the kernel reclaims these first",
            ])
            // RSS, memory.current and `anon` go on counting volatile pages until the kernel reclaims them (measured).
            let number =
                reading.boundary == .machine
                ? "MemAvailable, which counts inactive pages as free" : "the working set, which excludes inactive pages"
            rows.append([
                "watch", "\(number); resident memory (RSS) counts volatile pages until the kernel reclaims them",
            ])
        }
        if let taken = reading.lazyFreed, taken > .zero {
            rows.append(["reclaimed", "\(taken) of volatile memory by the kernel since the group was made"])
        }
        if let events = reading.events {
            rows.append([
                "events",
                "met the limit \(events.max) times, memory.high \(events.high) times, OOM kills \(events.oomKill)",
            ])
        }
        return rows.map { "\(Text.left($0[0], 10))  \($0[1])" }.joined(separator: "\n")
    }
}

extension Capabilities.Support {
    /// Name of the support, with an explanation.
    fileprivate var meaning: String {
        switch self {
        case .announced: "announced (the service manager's variables name what to watch)"
        case .ownGroup: "ownGroup (the own control group)"
        case .machine: "machine (no limit on the own group: the machine as a whole)"
        case .events: "events (of the own group only)"
        case .custom: "custom (the application's own source)"
        case .polling: "polling (nothing wakes us; files are read at intervals)"
        case .inert: "inert (nothing is known: no cgroup file system and no /proc can be read)"
        }
    }
}
