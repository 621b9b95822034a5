import Glibc
package import Plimsoll
package import PlimsollLinux

/// A control group with a limit, which this program alone makes, watches and removes.
package final class LimitedGroup: Sendable {
    package let version: ControlGroup.Version
    /// Directory with the memory accounting.
    package let memory: String
    /// Directory with the kernel's stall times: equal to `memory` on version 2, a second, version 2 directory on a
    /// hybrid host.
    package let stall: String?

    package init(version: ControlGroup.Version, memory: String, stall: String?) {
        self.version = version
        self.memory = memory
        self.stall = stall
    }

    /// Directories that a process must enter to be in this group.
    package var directories: [String] { stall == nil || stall == memory ? [memory] : [memory, stall!] }

    // MARK: Limits

    /// Sets the limit beyond which the kernel kills.
    package func setLimit(_ limit: ByteCount) throws(ControlFileError) {
        try ControlFile.write("\(limit.bytes)", to: file(two: "memory.max", one: "memory.limit_in_bytes"))
    }

    /// Sets the limit beyond which the kernel throttles; version 1 has none.
    func setHigh(_ limit: ByteCount) throws(ControlFileError) {
        try ControlFile.write("\(limit.bytes)", to: memory + "/memory.high")
    }

    /// Disables swap for the group, so that swap does not hide the effect of the limit.
    func forbidSwap(beyond limit: ByteCount) {
        switch version {
        case .v2: try? ControlFile.write("0", to: memory + "/memory.swap.max")
        case .v1:
            // Set the memsw limit only where there is swap. If usage meets that limit first, hits of the memory limit
            // are not counted (Linux 6.18 counts such hits nowhere).
            let hasSwap = (ControlFile.text("/proc/swaps")?.split(separator: "\n").count ?? 0) > 1
            if hasSwap { try? ControlFile.write("\(limit.bytes)", to: memory + "/memory.memsw.limit_in_bytes") }
        }
    }

    // MARK: Readings

    /// Memory charged, page cache included.
    package var usage: ByteCount { number(two: "memory.current", one: "memory.usage_in_bytes") ?? .zero }

    /// Highest memory charge so far; `nil` on kernels before 5.19 with version 2.
    package var peak: ByteCount? { number(two: "memory.peak", one: "memory.max_usage_in_bytes") }

    /// Number of processes that the kernel has OOM-killed here.
    package var kills: Int {
        ControlFile.number(file(two: "memory.events", one: "memory.oom_control"), key: "oom_kill") ?? 0
    }

    /// Number of times that usage met the limit, harmless reclaim of page cache included.
    package var limitHits: Int {
        switch version {
        case .v2: ControlFile.number(memory + "/memory.events", key: "max") ?? 0
        case .v1: ControlFile.number(memory + "/memory.failcnt") ?? 0
        }
    }

    /// Time in which at least one process stalled on memory; `nil` where the kernel keeps no stall times.
    package var stalled: Duration? {
        guard let text = stall.flatMap({ ControlFile.text($0 + "/memory.pressure") }),
            let line = text.split(separator: "\n").first,
            let total = line.split(separator: " ").last, total.hasPrefix("total="),
            let microseconds = Int(total.dropFirst(6))
        else { return nil }
        return .microseconds(microseconds)
    }

    /// Usage that the kernel cannot reclaim by itself, and the working set that orchestrators count. Volatile pages
    /// are on the file LRU lists. They stay on the inactive list, which the working set leaves out, until the kernel
    /// scans pages that were read since.
    var parts: (fixed: ByteCount, workingSet: ByteCount) {
        let statistics = ControlFile.text(memory + "/memory.stat") ?? "", prefix = version == .v2 ? "" : "total_"
        let inactive = ControlFile.value(of: prefix + "inactive_file", in: statistics) ?? 0
        let active = ControlFile.value(of: prefix + "active_file", in: statistics) ?? 0
        let usage = usage
        return (max(.zero, usage - ByteCount(inactive + active)), max(.zero, usage - ByteCount(inactive)))
    }

    /// Memory that cannot be reclaimed by dropping page cache.
    package var pinned: ByteCount {
        let keys = version == .v2 ? ("file", "shmem") : ("total_cache", "total_shmem")
        let statistics = ControlFile.text(memory + "/memory.stat") ?? ""
        func count(_ key: String) -> Int { ControlFile.value(of: key, in: statistics) ?? 0 }
        return usage - ByteCount(max(0, count(keys.0) - count(keys.1)))
    }

    // MARK: Removal

    /// Removes the group. Processes that have just ended linger for some milliseconds, so this method retries.
    /// Running processes are left alone.
    ///
    /// - Returns: true if the group is gone.
    @discardableResult
    package func remove() -> Bool {
        directories.reduce(true) { gone, directory in
            var attempts = 0
            while rmdir(directory) == -1, errno == EBUSY, attempts < 400 {
                SteadyClock.sleep(.milliseconds(5))
                attempts += 1
            }
            return gone && access(directory, F_OK) != 0
        }
    }

    private func file(two: String, one: String) -> String { memory + "/" + (version == .v2 ? two : one) }
    private func number(two: String, one: String) -> ByteCount? {
        ControlFile.number(file(two: two, one: one)).map { ByteCount($0) }
    }
}
