import Foundation
import Glibc
import Plimsoll
import PlimsollDemos
import PlimsollSupervisor

/// State of a fleet as seen from outside, from the kernel and from its units.
struct FleetGroups {
    let root: GroupRoot
    let prefix: String
    let directory: String

    init(prefix: String, directory: String) {
        (self.prefix, self.directory) = (prefix, directory)
        root = GroupRoot(prefix: prefix)
    }

    private func text(_ unit: String, _ candidates: [(Hierarchy, String)]) -> String? {
        for (hierarchy, file) in candidates {
            guard let parent = root.parents[hierarchy],
                let text = ControlFile.text("\(parent)/\(prefix)-\(unit)/\(file)")
            else { continue }
            return text.trimmingCharacters(in: .whitespacesAndNewlines)
        }
        return nil
    }

    func isFrozen(_ unit: String) -> Bool {
        guard let text = text(unit, [(.unified, "cgroup.freeze"), (.freezer, "freezer.state")]) else { return false }
        return text == "1" || text == "FROZEN" || text == "FREEZING"
    }

    func isThrottled(_ unit: String) -> Bool {
        guard let text = text(unit, [(.unified, "cpu.max"), (.cpu, "cpu.cfs_quota_us")]) else { return false }
        return !text.hasPrefix("max") && text != "-1"
    }

    /// Returns true if the unit's memory.max differs from the configured limit, or memory.high is set.
    func isLimited(_ unit: String) -> Bool {
        guard let limit = text(unit, [(.unified, "memory.max"), (.memory, "memory.limit_in_bytes")]) else {
            return false
        }
        let high = text(unit, [(.unified, "memory.high")]) ?? "max"
        return limit != "\(KillPhase.limit.bytes)" || high != "max"
    }

    /// Returns the unit's processes, zombies left out.
    func processes(_ unit: String) -> [Int32] {
        let pids = Hierarchy.allCases.flatMap { hierarchy -> [Int32] in
            guard let parent = root.parents[hierarchy] else { return [] }
            return (ControlFile.text("\(parent)/\(prefix)-\(unit)/cgroup.procs") ?? "").split(separator: "\n")
                .compactMap { Int32($0) }
        }
        return Set(pids).filter { Self.isRunning($0) }.sorted()
    }

    /// Paths of the existing groups with this prefix.
    var names: [String] {
        root.parents.values.flatMap { parent in
            ((try? FileManager.default.contentsOfDirectory(atPath: parent)) ?? []).filter { $0.hasPrefix(prefix + "-") }
                .map { parent + "/" + $0 }
        }
    }

    /// Ends and removes all that is left.
    func clear() {
        for pid in Self.processes(with: directory) where pid != getpid() { kill(pid, SIGKILL) }
        for path in names {
            _ = try? ControlFile.write("0", to: path + "/cgroup.freeze")
            for pid in (ControlFile.text(path + "/cgroup.procs") ?? "").split(separator: "\n").compactMap({ Int32($0) })
            { kill(pid, SIGKILL) }
        }
        let deadline = SteadyClock.now + .seconds(5)
        while !names.isEmpty, SteadyClock.now < deadline {
            for path in names { rmdir(path) }
            SteadyClock.sleep(.milliseconds(2))
        }
    }

    // MARK: - Processes

    /// Returns the process ids that a unit has started with; each process wrote down its own.
    static func starts(of unit: String, in directory: String) -> [Int32] {
        (ControlFile.text("\(directory)/\(unit).starts") ?? "").split(separator: "\n").compactMap { Int32($0) }
    }

    static func isRunning(_ pid: Int32) -> Bool {
        guard let text = ControlFile.text("/proc/\(pid)/stat"), let end = text.lastIndex(of: ")") else { return false }
        let state = text[text.index(after: end)...].first { $0 != " " }
        return state != "Z" && state != "X"
    }

    static var processes: [Int32] {
        ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { Int32($0) }
    }

    /// Returns the processes whose command names `directory`: a supervisor, and its guard, which is a copy of the
    /// supervisor.
    static func processes(with directory: String) -> [Int32] {
        processes.filter { pid in
            let words = (ControlFile.text("/proc/\(pid)/cmdline") ?? "").split(separator: "\0")
            return words.contains("_fleet") && words.contains(Substring(directory)) && isRunning(pid)
        }
    }

    static func thread(_ name: String, of process: Int32) -> pid_t? {
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/task")) ?? []
        return threads.first { ControlFile.text("/proc/\(process)/task/\($0)/comm") == name + "\n" }.flatMap {
            Int32($0)
        }
    }
}
