import Glibc
import Plimsoll

/// The trio as services of systemd, with the memory of the whole machine for their limit, and one of those who look after services when it is short.
struct PeerPlay {
    /// Who does something when memory is short.
    enum Keeper: String, CaseIterable {
        /// Nobody but the kernel, which kills when nothing is left.
        case kernel
        case earlyoom
        case oomd
        case plimsoll

        /// What does it, as distributions set it up; the supervisor is started with its units.
        var services: [String] {
            switch self {
            case .kernel, .plimsoll: []
            case .earlyoom: ["earlyoom.service"]
            case .oomd: ["systemd-oomd.service", "systemd-oomd.socket"]
            }
        }
    }

    let keeper: Keeper
    /// What the members' sizes are shares of.
    let limit: ByteCount
    /// An empty one, for the services' state.
    let directory: String
    let signals: SignalQueue

    private static let slice = "trio.slice"
    private static let group = "/sys/fs/cgroup/trio.slice"

    /// Plays for so long after all three have begun.
    func play(for length: Duration) throws -> PeerRecord {
        var record = try watch(for: length)
        for name in Trio.members.map(\.name) where Trio.innocent.contains(name) || record.hasEnded(name) {
            record.lost[name] = try UnitService.lost(name, in: directory)
        }
        return record
    }

    private func watch(for length: Duration) throws -> PeerRecord {
        defer { end() }
        try begin()
        var record = PeerRecord(keeper: keeper, length: length)
        let start = SteadyClock.now, before = PeerRecord.Stalls.now
        var view = View(self)
        while case let at = SteadyClock.now - start, at < length {
            record.take(view.look(), at: at)
            if let signal = signals.next(within: .milliseconds(50)), SignalQueue.endings.contains(signal) { throw Self.interruption }
        }
        record.stalls = PeerRecord.Stalls.now - before
        return record
    }

    private static let interruption = Failure.failed("interrupted; the services are ended")

    // MARK: Starting and ending

    private func begin() throws {
        // It acts below those alone that ask for it.
        if keeper == .oomd { try Self.systemctl(["set-property", "--runtime", Self.slice, "ManagedOOMMemoryPressure=kill", "ManagedOOMSwap=kill"]) }
        if !keeper.services.isEmpty { try Self.systemctl(["start"] + keeper.services) }
        if keeper == .plimsoll {
            // As docs/operations/plimsoll.service has it.
            let properties = ["Delegate=yes", "OOMScoreAdjust=-900", "KillMode=mixed"]
            try start("trio", properties, Trio.supervisor(limit: limit, directory: directory, policy: "{}"))
        } else {
            for member in Trio.members { try start("trio-\(member.name)", [], member.arguments(limit: limit, directory: directory)) }
        }
        let deadline = SteadyClock.now + .seconds(60)
        while !Trio.members.allSatisfy({ UnitService.accepted($0.name, in: directory) ?? 0 > 0 }) {
            guard SteadyClock.now < deadline else { throw Failure.failed("the services do not begin to work") }
            SteadyClock.sleep(.milliseconds(20))
        }
    }

    private func start(_ unit: String, _ properties: [String], _ arguments: [String]) throws {
        let options = properties.flatMap { ["--property", $0] }
        try Self.run("systemd-run", ["--quiet", "--collect", "--unit", unit, "--slice", Self.slice] + options + [Trio.program] + arguments)
    }

    /// Ends who still grows, for else nobody might get to it, and asks all others to end, which saves them. Nothing remains of the play, however it went.
    private func end() {
        for member in Trio.members where member.growth > .zero { try? ControlFile.write("1", to: group(of: member.name) + "/cgroup.kill") }
        try? Self.systemctl(["stop", Self.slice] + keeper.services)
    }

    private static func systemctl(_ arguments: [String]) throws { try run("systemctl", arguments) }

    private static func run(_ program: String, _ arguments: [String]) throws {
        let ending = try ChildProcess("/usr/bin/" + program, [program] + arguments).waitForEnd()
        guard ending == .exited(0) else {
            throw Failure.failed("\(([program] + arguments).joined(separator: " ")) ended with status \(ending.status)")
        }
    }

    // MARK: Looking

    /// What is seen of the members from outside.
    private struct View {
        let play: PeerPlay
        private let killsBefore = Self.kills
        private var accepted: [String: Int] = [:]

        init(_ play: PeerPlay) { self.play = play }

        private static var kills: Int { ControlFile.number("/proc/vmstat", key: "oom_kill") ?? 0 }

        mutating func look() -> PeerRecord.Look {
            var look = PeerRecord.Look()
            for name in Trio.members.map(\.name) {
                if !(ControlFile.text(play.group(of: name) + "/cgroup.procs") ?? "").isEmpty { look.alive.insert(name) }
                let count = UnitService.accepted(name, in: play.directory)
                if accepted.updateValue(count ?? 0, forKey: name) != count { look.serving.insert(name) }
            }
            // After who is there: the kernel counts before anybody is gone.
            look.kills = Self.kills - killsBefore
            return look
        }
    }

    private func group(of name: String) -> String { Self.group + (keeper == .plimsoll ? "/trio.service/trio-\(name)" : "/trio-\(name).service") }
}
