import Glibc
import Plimsoll
import PlimsollLinux

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

    /// True if the kernel still holds a member frozen.
    package var isAnyFrozen: Bool {
        Self.members.contains { member in
            ControlFile.number(freezerDirectory(of: member.name) + "/cgroup.events", key: "frozen") == 1
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
