import Foundation
import Glibc
import Plimsoll
import PlimsollDemos

/// Measures the cost of a supervisor with many idle units. The supervisor is a separate process, observed from
/// outside.
struct IdleFleet {
    let units: Int
    let seconds: Double

    func measure() throws { try ScratchDirectory.with("fleet", measure) }

    private func measure(in directory: String) throws {
        let lines = (0..<units).map { "  u\($0): {command: [/bin/sleep, infinity], importance: \($0 % 1000)}" }
        try File.write("version: 1\nunits:\n" + lines.joined(separator: "\n") + "\n", to: directory + "/units.yaml")
        // In a group with a limit, so that the supervisor has pressure to watch.
        let group = try GroupMaker().make("fleet", limit: .gibibytes(2))
        defer {
            for directory in group.directories {
                LimitedGroup(version: group.version, memory: directory + "/fleet-supervisor", stall: nil).remove()
            }
            if !group.remove() { Output.problem("cannot remove \(group.memory)") }
        }
        let supervisor = try group.startPart(
            [
                "supervise", directory + "/units.yaml", "--directory", directory, "--json", "--prefix", "fleet",
                "--own-leaf",
            ], endsWithParent: false)
        defer { supervisor.signal(SIGTERM); supervisor.end(within: .seconds(30)) }
        let deadline = SteadyClock.now + .seconds(60)
        while processes(below: group.memory) < units {
            guard SteadyClock.now < deadline, supervisor.poll() == nil else {
                throw Failure.failed("cannot start \(units) units")
            }
            SteadyClock.sleep(.milliseconds(100))
        }
        SteadyClock.sleep(.seconds(3))
        let before = switches(of: supervisor.pid)
        SteadyClock.sleep(.seconds(seconds))
        let wakeups = Double(switches(of: supervisor.pid) - before) / seconds
        let resident =
            (ControlFile.text("/proc/\(supervisor.pid)/statm") ?? "").split(separator: " ").dropFirst().first.flatMap {
                Int($0)
            } ?? 0
        Output.line(
            "figure supervisor.rss \(Text.number(Double(resident * Int(sysconf(Int32(_SC_PAGESIZE)))) / 1_048_576, decimals: 2)) MiB"
        )
        Output.line("figure supervisor.idle.wakeups \(Text.number(wakeups, decimals: 2)) per_second")
    }

    private func processes(below directory: String) -> Int {
        (0..<units).count { !(ControlFile.text("\(directory)/fleet-u\($0)/cgroup.procs") ?? "").isEmpty }
    }

    /// Returns the number of wake-ups of the process's own threads. The runtime's pool wakes up by itself in any
    /// Swift program; its threads are recognized by name and left out.
    private func switches(of process: Int32) -> Int {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/task")) ?? []
        return tasks.reduce(0) { sum, task in
            let status = ControlFile.text("/proc/\(process)/task/\(task)/status") ?? ""
            let name = ControlFile.text("/proc/\(process)/task/\(task)/comm") ?? ""
            guard task == "\(process)" || name.hasPrefix("plimsoll") else { return sum }
            let line = status.split(separator: "\n").first { $0.hasPrefix("voluntary_ctxt_switches:") }
            return sum + (line.flatMap { Int($0.split(whereSeparator: \.isWhitespace).last ?? "") } ?? 0)
        }
    }
}
