import Glibc
package import Plimsoll
import PlimsollLinux
import PlimsollSupervisor

/// Runs three services in a group with a limit, with or without a supervisor: an important one, a bystander, and one
/// that grows.
///
/// Without a supervisor, the kernel kills the largest one when memory runs out, which is the important one.
package final class Trio {
    package struct Member {
        package var name: String
        var role: ServiceUnit.Role
        var importance: Int
        /// Shares of the limit.
        var size: Double
        package var growth = 0.0

        /// Returns arguments for this program, with `directory` for saved state.
        package func arguments(limit: ByteCount, directory: String, pace: Double = 1) -> [String] {
            let growth = limit * (growth * pace)
            return [
                "_unit", "--name", name, "--directory", directory, "--size", "\((limit * size).bytes)", "--growth",
                "\(growth.bytes)",
            ]
        }
    }

    package static let members = [
        Member(name: "important", role: .foreground, importance: 900, size: 0.42),
        Member(name: "bystander", role: .background, importance: 500, size: 0.15),
        Member(name: "hog", role: .background, importance: 100, size: 0.04, growth: 0.12),
    ]
    /// Members that do not grow.
    package static let innocent = members.filter { $0.growth == 0 }.map(\.name)

    private let limit: ByteCount
    private let directory: String
    private let pace: Double
    let group: LimitedGroup
    private let start: Duration
    private let signals: SignalQueue
    package var record: TrioRecord
    /// The supervisor, or the members if there is no supervisor.
    private(set) var parts: [(name: String, process: ChildProcess)] = []
    /// Members that have been seen to run.
    private var begun: Set<String> = []
    private var line = PressureLevel.normal
    /// Called with each observed event.
    var onEvent: (TrioEvent, Duration) -> Void = { _, _ in }

    /// Creates the group.
    ///
    /// - Parameters:
    ///   - directory: empty directory for the services' state and the supervisor's sockets; short, as socket paths
    ///     have 107 bytes at most.
    ///   - pace: factor on the hog's growth.
    package init(limit: ByteCount, directory: String, maker: GroupMaker, signals: SignalQueue, pace: Double = 1) throws
    {
        (self.limit, self.directory, self.signals, self.pace) = (limit, directory, signals, pace)
        group = try maker.make("trio", limit: limit)
        start = SteadyClock.now
        record = TrioRecord(limit: limit, start: start)
    }

    /// Plays for `length`, or until `quietPeriod` after the last action on a member.
    package func play(isSupervised: Bool, for length: Duration, quietPeriod: Duration = .seconds(3)) throws
        -> TrioRecord
    {
        defer { cleanUp() }
        record.isSupervised = isSupervised
        if isSupervised { try startSupervisor() } else { try startAlone() }
        let end = start + length
        while SteadyClock.now < end {
            if let signal = signals.next(within: .milliseconds(20)), SignalQueue.endings.contains(signal) {
                throw Self.interruption
            }
            try poll()
            if let last = record.lastAct, SteadyClock.now - start > last + quietPeriod, record.isDecided { break }
        }
        record.length = SteadyClock.now - start
        for member in Self.members { record.isAlive[member.name] = !processes(of: member.name).isEmpty }
        finish()
        for member in Self.members { record.lost[member.name] = try UnitService.lost(member.name, in: directory) }
        return record
    }

    private static let interruption = Failure.failed("interrupted; the services are ended")

    // MARK: - Starting

    /// Returns the arguments that start a supervisor with the three members, without the program's name. Writes the
    /// units file. The names of the groups begin with "trio".
    package static func supervisor(limit: ByteCount, directory: String, policy: String, pace: Double = 1) throws
        -> [String]
    {
        var units = "version: 1\npolicy: \(policy)\nunits:\n"
        for member in members {
            let command = ([program] + member.arguments(limit: limit, directory: directory, pace: pace)).map {
                "\"\($0)\""
            }.joined(separator: ", ")
            units +=
                "  \(member.name): {command: [\(command)], role: \(member.role.rawValue), importance: \(member.importance), restart: never}\n"
        }
        try File.write(units, to: directory + "/units.yaml")
        return [
            "supervise", directory + "/units.yaml", "--directory", directory, "--json", "--prefix", "trio",
            "--own-leaf",
        ]
    }

    package func startSupervisor() throws {
        let arguments = try Self.supervisor(limit: limit, directory: directory, policy: "{roomHold: 60s}", pace: pace)
        parts.append(("supervisor", try group.startPart(arguments, endsWithParent: false)))
    }

    private func startAlone() throws {
        for member in Self.members {
            let arguments = member.arguments(limit: limit, directory: directory, pace: pace)
            parts.append((member.name, try group.startPart(arguments, endsWithParent: false)))
        }
    }

    /// Path of this program's file, from which each unit is started.
    package static let program: String = {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 4096) { path in
            let length = readlink("/proc/self/exe", path.baseAddress!, path.count)
            return String(decoding: UnsafeRawBufferPointer(path)[..<max(0, length)], as: UTF8.self)
        }
    }()

    package var supervisor: ChildProcess? { parts.first { $0.name == "supervisor" }?.process }

    // MARK: - Watching

    package func poll() throws {
        let at = SteadyClock.now - start
        // Check the processes before reading the supervisor's records: the supervisor announces an end before acting.
        // The kernel counts a kill before the process is gone.
        let running = Set(Self.members.map(\.name).filter { !processes(of: $0).isEmpty })
        record.kills = kills
        for line in parts.flatMap({ $0.process.output?.lines() ?? [] }) {
            guard let audit = try? AuditRecord(parsing: line) else { continue }
            onEvent(.audit(record.take(audit)), at)
        }
        begun.formUnion(running)
        for member in Self.members
        where begun.contains(member.name) && !running.contains(member.name) && record.endings[member.name] == nil {
            onEvent(.ended(member.name, record.takeEnd(of: member.name, at: at)), at)
        }
        if let ending = supervisor?.poll(), !record.isOver {
            // Ctrl-C in a terminal reaches all processes at once.
            throw signals.endingArrived() == nil
                ? Failure.failed("the supervisor ended with status \(ending.status)") : Self.interruption
        }
        guard at - (record.samples.last?.at ?? .seconds(-1)) > .milliseconds(100) else { return }
        let sample = TrioRecord.Sample(at: at, usage: group.usage, charges: Self.members.map { charge(of: $0.name) })
        record.samples.append(sample)
        let line = TrioRecord.line(passedBy: sample.usage, limit: limit)
        if line != self.line { onEvent(.line(line, sample.usage), at) }
        self.line = line
    }

    // MARK: - The end

    private func finish() {
        record.isOver = true
        for (_, process) in parts { process.signal(SIGTERM) }
        for (_, process) in parts { process.end(within: .seconds(15)) }
    }

    /// Removes all processes and groups, on success or failure.
    package func cleanUp() {
        finish()
        killUnits()
        // A supervisor that was killed has not removed these groups, the last of which holds the lock of the prefix. No
        // supervisor can remove the group in which the supervisor runs.
        for name in Self.members.map({ "trio-\($0.name)" }) + ["trio-supervisor", "trio.lock"] {
            for directory in group.directories {
                LimitedGroup(version: group.version, memory: "\(directory)/\(name)", stall: nil).remove()
            }
        }
        if !group.remove() { Output.problem("cannot remove \(group.memory)") }
    }
}

// Observations of each member. The supervisor gives each member a separate group; without a supervisor, all share one
// group.
extension Trio {
    private func directory(of name: String, in parent: String) -> String { "\(parent)/trio-\(name)" }

    func charge(of name: String) -> ByteCount {
        guard record.isSupervised else { return resident(name) }
        let file = group.version == .v2 ? "memory.current" : "memory.usage_in_bytes"
        return ControlFile.number("\(directory(of: name, in: group.memory))/\(file)").map { ByteCount($0) } ?? .zero
    }

    /// Returns the private resident memory of a member in a shared group. File pages are left out, since the
    /// program's file would count for each member.
    private func resident(_ name: String) -> ByteCount {
        guard let process = processes(of: name).first else { return .zero }
        let pages = (ControlFile.text("/proc/\(process)/statm") ?? "").split(separator: " ").compactMap { Int($0) }
        return pages.count > 2 ? ByteCount((pages[1] - pages[2]) * Int(sysconf(Int32(_SC_PAGESIZE)))) : .zero
    }

    func processes(of name: String) -> [pid_t] {
        guard record.isSupervised else {
            return parts.filter { $0.name == name && $0.process.poll() == nil }.map(\.process.pid)
        }
        return (ControlFile.text("\(directory(of: name, in: group.memory))/cgroup.procs") ?? "").split(separator: "\n")
            .compactMap { pid_t($0) }
    }

    /// Number of processes that the kernel killed, here or in a member's group: version 1 counts kills only in the
    /// process's own group.
    var kills: Int {
        guard group.version == .v1 else { return group.kills }
        return Self.members.reduce(group.kills) { sum, member in
            sum + LimitedGroup(version: .v1, memory: directory(of: member.name, in: group.memory), stall: nil).kills
        }
    }

    /// Returns the member's directory on version 2, which has the freezer.
    package func freezerDirectory(of name: String) -> String { directory(of: name, in: group.stall ?? group.memory) }

    /// Kills the remaining members, in case no supervisor does.
    func killUnits() {
        for member in Self.members {
            for process in processes(of: member.name) { kill(process, SIGKILL) }
        }
    }
}
