import Glibc
import Plimsoll
import PlimsollDemos

/// Runs the trio as services of systemd, limited by the memory of the whole machine, with one keeper that acts on
/// shortage.
struct PeerPlay {
    /// The program that acts when memory is short.
    enum Keeper: String, CaseIterable {
        /// Only the kernel, which kills when no memory is left.
        case kernel
        case earlyoom
        case oomd
        case plimsoll

        /// Services of the keeper, set up as in distributions. The supervisor is started with its units.
        var services: [String] {
            switch self {
            case .kernel, .plimsoll: []
            case .earlyoom: ["earlyoom.service"]
            case .oomd: ["systemd-oomd.service", "systemd-oomd.socket"]
            }
        }
    }

    let keeper: Keeper
    /// Base of the members' sizes, which are shares.
    let limit: ByteCount
    /// An empty directory for the services' state.
    let directory: String
    let signals: SignalQueue

    private static let slice = "trio.slice"
    private static let group = "/sys/fs/cgroup/trio.slice"

    /// Plays for `length` after all three have begun.
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
            record.take(view.poll(), at: at)
            if let signal = signals.next(within: .milliseconds(50)), SignalQueue.endings.contains(signal) {
                throw Self.interruption
            }
        }
        record.stalls = PeerRecord.Stalls.now - before
        return record
    }

    private static let interruption = Failure.failed("interrupted; the services are ended")

    // MARK: Starting and ending

    private func begin() throws {
        // systemd-oomd acts only below units that opt in.
        if keeper == .oomd {
            try Self.systemctl([
                "set-property", "--runtime", Self.slice, "ManagedOOMMemoryPressure=kill", "ManagedOOMSwap=kill",
            ])
        }
        if !keeper.services.isEmpty { try Self.systemctl(["start"] + keeper.services) }
        if keeper == .plimsoll {
            // Properties as in docs/operations/plimsoll.service.
            let properties = ["Delegate=yes", "OOMScoreAdjust=-900", "KillMode=mixed"]
            try start("trio", properties, Trio.supervisor(limit: limit, directory: directory, policy: "{}"))
        } else {
            for member in Trio.members {
                try start("trio-\(member.name)", [], member.arguments(limit: limit, directory: directory))
            }
        }
        let deadline = SteadyClock.now + .seconds(60)
        while !Trio.members.allSatisfy({ UnitService.accepted($0.name, in: directory) ?? 0 > 0 }) {
            guard SteadyClock.now < deadline else { throw Failure.failed("the services did not start to work") }
            SteadyClock.sleep(.milliseconds(20))
        }
    }

    private func start(_ unit: String, _ properties: [String], _ arguments: [String]) throws {
        let options = properties.flatMap { ["--property", $0] }
        try Self.run(
            "systemd-run",
            ["--quiet", "--collect", "--unit", unit, "--slice", Self.slice] + options + [Trio.program] + arguments)
    }

    /// Kills members that still grow, because under shortage `systemctl` may not get to run. Asks all others to end,
    /// so that they save. No part of the play remains, on success or failure.
    private func end() {
        for member in Trio.members where member.growth > .zero {
            try? ControlFile.write("1", to: group(of: member.name) + "/cgroup.kill")
        }
        try? Self.systemctl(["stop", Self.slice] + keeper.services)
    }

    private static func systemctl(_ arguments: [String]) throws { try run("systemctl", arguments) }

    private static func run(_ program: String, _ arguments: [String]) throws {
        let ending = try ChildProcess("/usr/bin/" + program, [program] + arguments).waitForEnd()
        guard ending == .exited(0) else {
            throw Failure.failed("\(([program] + arguments).joined(separator: " ")) ended with status \(ending.status)")
        }
    }

    // MARK: Observing

    /// The members as seen from outside.
    private struct View {
        let play: PeerPlay
        private let killsBefore = Self.kills
        private var accepted: [String: Int] = [:]

        init(_ play: PeerPlay) { self.play = play }

        private static var kills: Int { ControlFile.number("/proc/vmstat", key: "oom_kill") ?? 0 }

        mutating func poll() -> PeerRecord.Sample {
            var sample = PeerRecord.Sample()
            for name in Trio.members.map(\.name) {
                if !(ControlFile.text(play.group(of: name) + "/cgroup.procs") ?? "").isEmpty {
                    sample.alive.insert(name)
                }
                let count = UnitService.accepted(name, in: play.directory)
                if accepted.updateValue(count ?? 0, forKey: name) != count { sample.serving.insert(name) }
            }
            // Read after the processes: the kernel counts a kill before the process is gone.
            sample.kills = Self.kills - killsBefore
            return sample
        }
    }

    private func group(of name: String) -> String {
        Self.group + (keeper == .plimsoll ? "/trio.service/trio-\(name)" : "/trio-\(name).service")
    }
}
