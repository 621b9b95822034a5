import ArgumentParser
import Plimsoll
import PlimsollLinux

/// Says which signals work here, why the others do not, and what to do about it.
struct DoctorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor", abstract: "Say which signals of memory pressure work here, why the others don't, and what to do.",
        discussion: "Exit status: 0, or 69 if nothing at all can be known here.")

    @Flag(help: "One JSON line instead of text.") var json = false

    func run() throws {
        let source = LinuxPressureSource()
        let capabilities = source.capabilities.adding(VolatileMemory.signal).adding(HeapAllocator.current.signal).adding(ProcessPrivacy.signal)
        let reading = try? source.read(at: SteadyClock.now)
        if json {
            Output.line(JSONLine.encode(Diagnosis(capabilities: capabilities, reading: reading.map(ReadingRecord.init))))
        } else {
            Output.line(Self.text(capabilities, reading))
        }
        if capabilities.footing == .inert { throw ExitCode(69) }
    }

    private struct Diagnosis: Encodable {
        var capabilities: Capabilities
        var reading: ReadingRecord?
    }

    static func text(_ capabilities: Capabilities, _ reading: PressureReading?) -> String {
        var lines = ["footing: \(capabilities.footing.meaning)", ""]
        let width = capabilities.signals.map(\.name.count).max() ?? 0
        for signal in capabilities.signals {
            lines.append("\(signal.isLive ? "live" : "dead")  \(Text.left(signal.name, width))  \(printable(signal.detail))")
            if let remedy = signal.remedy { lines.append(String(repeating: " ", count: width + 8) + "do: \(printable(remedy))") }
        }
        lines.append("")
        lines.append(reading.map(numbers) ?? "Nothing could be read.")
        return lines.joined(separator: "\n")
    }

    private static func numbers(_ reading: PressureReading) -> String {
        let limit =
            switch reading.boundary {
            case .maximum: "the group's limit, beyond which the kernel kills"
            case .high: "memory.high, beyond which the kernel throttles"
            case .machine: "the machine's memory"
            case .none: "none known"
            }
        var rows = [["limit", (reading.limit.map { "\($0), " } ?? "") + limit]]
        rows.append(["usage", "\(reading.usage), of which the working set is \(reading.workingSet)"])
        rows.append(["available", reading.available.map { "\($0) can still be allocated" } ?? "unknown"])
        rows.append(["resident", "\(reading.resident), this process"])
        if let stall = reading.stall { rows.append(["stalled", "\(Text.number(stall.some.inSeconds, decimals: 3)) s since the group was made"]) }
        let idle = reading.boundary == .machine ? reading.machineIdle : reading.idle
        if let file = idle?.file, file > .zero {
            rows.append(["inactive", "\(file), page cache not used lately and volatile pages: the kernel takes these first"])
            // RSS, memory.current and `anon` go on counting volatile pages until the kernel takes them (measured).
            let number = reading.boundary == .machine ? "MemAvailable, which counts them as free" : "the working set, which leaves them out"
            rows.append(["watch", "\(number); resident memory (RSS) counts volatile pages until they are taken"])
        }
        if let taken = reading.lazyFreed, taken > .zero {
            rows.append(["taken", "\(taken) of volatile memory by the kernel since the group was made"])
        }
        if let events = reading.events {
            rows.append(["events", "met the limit \(events.max) times, memory.high \(events.high) times, OOM kills \(events.oomKill)"])
        }
        return rows.map { "\(Text.left($0[0], 10))  \($0[1])" }.joined(separator: "\n")
    }
}

extension Capabilities.Footing {
    /// The footing and what stands behind the word.
    fileprivate var meaning: String {
        switch self {
        case .announced: "announced (the service manager's variables name what to watch)"
        case .ownGroup: "ownGroup (the own control group)"
        case .machine: "machine (no limit on the own group: the machine as a whole)"
        case .events: "events (of the own group only)"
        case .polling: "polling (nothing wakes us; files are read at intervals)"
        case .inert: "inert (nothing is known: no cgroup file system and no /proc can be read)"
        }
    }
}
