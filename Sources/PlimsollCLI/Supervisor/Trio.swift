import Glibc
import Plimsoll
import PlimsollLinux
import PlimsollSupervisor

/// Three services in a group with a limit: one that matters, a bystander, and one that takes more and more. With a supervisor, or without.
///
/// Without, the kernel ends the largest when it comes to that, which is the one that matters.
final class Trio {
    struct Member {
        var name: String
        var role: ServiceUnit.Role
        var importance: Int
        /// Shares of the limit.
        var size: Double
        var growth = 0.0
    }

    static let members = [
        Member(name: "important", role: .foreground, importance: 900, size: 0.42),
        Member(name: "bystander", role: .background, importance: 500, size: 0.15),
        Member(name: "hog", role: .background, importance: 100, size: 0.04, growth: 0.12),
    ]

    private let limit: ByteCount
    private let directory: String
    private let group: LimitedGroup
    private let start: Duration
    var record: TrioRecord
    private var parts: [(name: String, process: ChildProcess)] = []
    private let signals: SignalQueue

    /// - Parameter directory: an empty one, for the services' state and the supervisor's sockets; kept short, as those have paths of 107 bytes at most.
    init(limit: ByteCount, directory: String, maker: GroupMaker, signals: SignalQueue) throws {
        (self.limit, self.directory, self.signals) = (limit, directory, signals)
        group = try maker.make("trio", limit: limit)
        start = SteadyClock.now
        record = TrioRecord(limit: limit, start: start)
    }

    /// Plays for `length`, or until `settled` after the last thing that was done to anybody.
    func play(isSupervised: Bool, for length: Duration, settled: Duration = .seconds(3)) throws -> TrioRecord {
        defer { cleanUp() }
        record.isSupervised = isSupervised
        if isSupervised { try startSupervisor() } else { try startAlone() }
        let end = start + length
        while SteadyClock.now < end {
            try look()
            if let last = record.lastAct, SteadyClock.now - start > last + settled, record.isDecided { break }
            if let signal = signals.next(within: .milliseconds(20)), SignalQueue.endings.contains(signal) { throw Failure.failed("interrupted") }
        }
        try look()
        record.kills = group.kills
        record.length = SteadyClock.now - start
        for member in Self.members { record.isAlive[member.name] = !processes(of: member.name).isEmpty }
        finish()
        for member in Self.members { record.lost[member.name] = try UnitService.lost(member.name, in: directory) }
        return record
    }

    // MARK: - Starting

    private func arguments(_ member: Member) -> [String] {
        [
            "_unit", "--name", member.name, "--directory", directory, "--size", "\((limit * member.size).bytes)", "--growth",
            "\((limit * member.growth).bytes)",
        ]
    }

    func startSupervisor() throws {
        var units = "version: 1\npolicy: {roomHold: 60s}\nunits:\n"
        for member in Self.members {
            let command = (["/proc/self/exe"] + arguments(member)).map { "\"\($0)\"" }.joined(separator: ", ")
            units += "  \(member.name): {command: [\(command)], role: \(member.role.rawValue), importance: \(member.importance), restart: never}\n"
        }
        try File.write(units.replacing("/proc/self/exe", with: Self.program), to: directory + "/units.yaml")
        let supervisor = try group.startPart(
            ["supervise", directory + "/units.yaml", "--directory", directory, "--json", "--prefix", "trio", "--own-leaf"], leashed: false)
        parts.append(("supervisor", supervisor))
    }

    private func startAlone() throws {
        for member in Self.members { parts.append((member.name, try group.startPart(arguments(member), leashed: false))) }
    }

    /// This program's file: a unit starts it anew.
    private static let program: String = {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 4096) { path in
            let length = readlink("/proc/self/exe", path.baseAddress!, path.count)
            return String(decoding: UnsafeRawBufferPointer(path)[..<max(0, length)], as: UTF8.self)
        }
    }()

    // MARK: - Watching

    func look() throws {
        let at = SteadyClock.now - start
        for (name, process) in parts {
            for line in process.output?.lines() ?? [] {
                if let audit = try? AuditRecord(parsing: line) { record.take(audit) }
            }
            if process.poll() != nil, name == "supervisor", !record.isOver {
                throw Failure.failed("the supervisor ended with status \(process.ending?.status ?? 0)")
            }
        }
        guard at - (record.samples.last?.at ?? .seconds(-1)) > .milliseconds(100) else { return }
        record.samples.append(.init(at: at, usage: group.usage, charges: Self.members.map { charge(of: $0.name) }))
    }

    private func charge(of name: String) -> ByteCount {
        guard record.isSupervised else {
            guard let process = parts.first(where: { $0.name == name })?.process, process.poll() == nil else { return .zero }
            let text = ControlFile.text("/proc/\(process.pid)/statm") ?? "", words = text.split(separator: " ")
            return words.count > 1 ? ByteCount((Int(words[1]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE)))) : .zero
        }
        let file = group.version == .v2 ? "memory.current" : "memory.usage_in_bytes"
        return ControlFile.number("\(group.memory)/trio-\(name)/\(file)").map { ByteCount($0) } ?? .zero
    }

    private func processes(of name: String) -> [Substring] {
        guard record.isSupervised else {
            return parts.filter { $0.name == name && $0.process.poll() == nil }.map { Substring("\($0.process.pid)") }
        }
        return (ControlFile.text("\(group.memory)/trio-\(name)/cgroup.procs") ?? "").split(separator: "\n")
    }

    var supervisor: ChildProcess? { parts.first { $0.name == "supervisor" }?.process }

    /// Whether the kernel holds one of them still.
    var isAnyFrozen: Bool {
        Self.members.contains { member in
            ControlFile.number(eventsDirectory(of: member.name) + "/cgroup.events", key: "frozen") == 1
        }
    }

    /// Of version 2, which has the freezer.
    func eventsDirectory(of name: String) -> String { "\(group.stall ?? group.memory)/trio-\(name)" }

    /// Ends what is left of them, where nobody else does any more.
    func killUnits() {
        for member in Self.members {
            for process in processes(of: member.name) { if let pid = Int32(process) { kill(pid, SIGKILL) } }
        }
    }

    // MARK: - The end

    private func finish() {
        record.isOver = true
        for (_, process) in parts { process.signal(SIGTERM) }
        for (_, process) in parts { process.end(within: .seconds(15)) }
    }

    func cleanUp() {
        for (_, process) in parts where process.poll() == nil { process.end(within: .seconds(15)) }
        for member in Self.members {
            // The supervisor removes them unless it was killed.
            for directory in group.directories {
                LimitedGroup(version: group.version, memory: "\(directory)/trio-\(member.name)", stall: nil).remove()
            }
        }
        if !group.remove() { Output.error("plimsoll: \(group.memory) could not be removed") }
    }
}
