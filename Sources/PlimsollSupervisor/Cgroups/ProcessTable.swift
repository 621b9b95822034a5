import CPlimsollSupervisor
import Glibc
import PlimsollLinux

/// The line of `/proc/PID/stat`.
package struct ProcessStat: Hashable, Sendable {
    package var pid: Int32
    /// One letter: `R`, `S`, `D`, `T` stopped, `t` traced, `Z` ended and not waited for, `X` gone.
    package var state: UInt8
    package var parent: Int32
    package var session: Int32
    /// Start time in clock ticks since boot. With the pid, distinguishes a process from a later one.
    package var started: UInt64

    /// The name stands in parentheses and may contain any byte, including parentheses and newlines. The other fields
    /// follow the last `)` (K41).
    package init?(_ text: some BidirectionalCollection<UInt8>) {
        guard let open = text.firstIndex(of: UInt8(ascii: "(")), let close = text.lastIndex(of: UInt8(ascii: ")")),
            open < close
        else { return nil }
        let fields = text[text.index(after: close)...].split(whereSeparator: {
            $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\n")
        })
        func number<Number: FixedWidthInteger>(_ field: some Sequence<UInt8>) -> Number? {
            Number(String(decoding: Array(field), as: UTF8.self))
        }
        // Indices count from the state, field 3 of proc_pid_stat(5): parent 4, session 6, start time 22.
        guard fields.count > 19, fields[0].count == 1, let state = fields[0].first,
            let pid: Int32 = number(text[..<open].filter { $0 != UInt8(ascii: " ") }),
            let parent: Int32 = number(fields[1]),
            let session: Int32 = number(fields[3]), let started: UInt64 = number(fields[19])
        else { return nil }
        (self.pid, self.state, self.parent, self.session, self.started) = (pid, state, parent, session, started)
    }

    /// True if the process will run no more.
    package var isOver: Bool { state == UInt8(ascii: "Z") || state == UInt8(ascii: "X") }
}

/// The processes of the machine, for units without a group.
package enum ProcessTable {
    /// Returns the stat of a process; `nil` if there is none of that pid.
    package static func stat(of pid: Int32) -> ProcessStat? {
        guard case .success(let text) = GroupText.read("/proc/\(pid)/stat") else { return nil }
        return ProcessStat(text)
    }

    /// Returns true if a process has ended. False if that can't be found out now.
    static func isOver(_ pid: Int32) -> Bool {
        if let stat = stat(of: pid) { return stat.isOver }
        // When descriptors or memory are short, the text can't be read although the process exists.
        return kill(pid, 0) != 0 && errno == ESRCH
    }

    /// Returns the real, effective, saved and file system user of a process. Empty if there is none of that pid, or
    /// the process is not visible.
    static func users(of pid: Int32) -> Set<UInt32> {
        guard case .success(let text) = GroupText.read("/proc/\(pid)/status") else { return [] }
        return users(in: text)
    }

    /// Parses the `Uid:` line of `/proc/PID/status`. A name can't contain a line end there.
    package static func users(in status: [UInt8]) -> Set<UInt32> {
        let line = status.split(separator: UInt8(ascii: "\n")).first { $0.starts(with: "Uid:".utf8) }
        return Set(
            String(decoding: line?.dropFirst(4) ?? [], as: UTF8.self).split(whereSeparator: \.isWhitespace).compactMap {
                UInt32($0)
            })
    }

    /// Returns the names after `prefix-` among the groups of the process (`/proc/PID/cgroup`).
    static func units(of pid: Int32, prefix: String) -> Set<String> {
        guard case .success(let text) = GroupText.read("/proc/\(pid)/cgroup") else { return [] }
        return units(in: text, prefix: prefix)
    }

    package static func units(in text: [UInt8], prefix: String) -> Set<String> {
        let start = Array("\(prefix)-".utf8)
        let parts = text.split { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "\n") }
        return Set(
            parts.filter { $0.starts(with: start) }.map { String(decoding: $0.dropFirst(start.count), as: UTF8.self) })
    }

    /// Returns all visible processes, except those that end during the walk.
    static func all() -> [ProcessStat] {
        HostKernel.listing(of: "/proc").names.compactMap { Int32($0).flatMap { stat(of: $0) } }
    }

    /// A process that leads others, perhaps after its end: its descendants and its session.
    struct Leader: Hashable {
        var pid: Int32
        /// Start time in clock ticks since boot; `nil` if the time could not be read.
        var started: UInt64?
    }

    /// Returns the pids of `leaders`, without those that other processes have by now (K38). The kernel gives a pid to
    /// no other process while the session has members, so the pid of an ended leader still stands for the session.
    static func pids(of leaders: Set<Leader>, among processes: [ProcessStat]) -> Set<Int32> {
        let present = Dictionary(processes.map { ($0.pid, $0.started) }) { first, _ in first }
        return Set(
            leaders.filter { leader in
                guard let started = leader.started, let now = present[leader.pid] else { return true }
                return started == now
            }.map(\.pid))
    }

    /// Returns the trees of `leaders`, without processes that only have the pid of a leader.
    static func tree(of leaders: Set<Leader>) -> Set<Int32> {
        guard !leaders.isEmpty else { return [] }
        let processes = all()
        return tree(of: pids(of: leaders, among: processes), among: processes)
    }

    /// Returns `leaders`, all their descendants, and all processes in the leaders' sessions. The sessions include
    /// processes whose parent has ended.
    package static func tree(of leaders: Set<Int32>) -> Set<Int32> {
        leaders.isEmpty ? [] : tree(of: leaders, among: all())
    }

    package static func tree(of leaders: Set<Int32>, among processes: [ProcessStat]) -> Set<Int32> {
        let children = Dictionary(grouping: processes, by: \.parent)
        // A session that no leader created is shared with other processes, perhaps with the supervisor.
        let led = processes.filter { leaders.contains($0.session) || leaders.contains($0.pid) }
        var found: Set<Int32> = [], waiting = led.map(\.pid)
        while let pid = waiting.popLast() {
            if found.insert(pid).inserted { waiting += children[pid, default: []].map(\.pid) }
        }
        return found
    }

    /// Sends a signal once to each listed process that needs the signal. Opens the pidfds before listing the processes
    /// again (K38). Returns the number of processes reached.
    ///
    /// - Parameter atOnce: Number of pidfds that are open at a time. A group may have more processes than the supervisor
    ///   may have descriptors.
    static func signal(_ signal: Int32, atOnce: Int = 64, to list: () -> Set<Int32>) -> Int {
        let wanted = list().filter { pid in
            guard pid != getpid(), let stat = stat(of: pid), !stat.isOver else { return false }
            let isStopped = stat.state == UInt8(ascii: "T")
            return signal == SIGSTOP ? !isStopped : signal == SIGCONT ? isStopped : true
        }
        var left = Array(wanted), reached = 0
        while !left.isEmpty {
            let files = left.suffix(atOnce).map { (pid: $0, file: plimsoll_pidfd_open($0)) }
            left.removeLast(files.count)
            let still = list()
            for (pid, file) in files where file >= 0 {
                if still.contains(pid), plimsoll_pidfd_signal(file, signal) == 0 { reached += 1 }
                close(file)
            }
        }
        return reached
    }
}
