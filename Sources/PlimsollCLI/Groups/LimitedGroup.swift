import Glibc
import Plimsoll
import PlimsollLinux

/// A group of our own with a limit: made, watched and removed by us alone.
final class LimitedGroup: Sendable {
    let version: ControlGroup.Version
    /// Its directory where memory is accounted.
    let memory: String
    /// Its directory where the kernel keeps stall times: the same on version 2, a second one of version 2 on a hybrid host.
    let stall: String?

    init(version: ControlGroup.Version, memory: String, stall: String?) {
        self.version = version
        self.memory = memory
        self.stall = stall
    }

    /// Every directory a process must enter to be in this group.
    var directories: [String] { stall == nil || stall == memory ? [memory] : [memory, stall!] }

    // MARK: Limits

    /// Sets the limit beyond which the kernel kills.
    func setLimit(_ limit: ByteCount) throws(ControlFileError) {
        try ControlFile.write("\(limit.bytes)", to: file(two: "memory.max", one: "memory.limit_in_bytes"))
    }

    /// Sets the limit beyond which the kernel throttles; version 1 has none.
    func setHigh(_ limit: ByteCount) throws(ControlFileError) {
        try ControlFile.write("\(limit.bytes)", to: memory + "/memory.high")
    }

    /// Keeps swap from hiding what the limit would do.
    func forbidSwap(beyond limit: ByteCount) {
        switch version {
        case .v2: try? ControlFile.write("0", to: memory + "/memory.swap.max")
        case .v1:
            // Met first, this limit keeps the other one's from being counted: set only where there is swap (Linux 6.18 counts it nowhere).
            let hasSwap = (ControlFile.text("/proc/swaps")?.split(separator: "\n").count ?? 0) > 1
            if hasSwap { try? ControlFile.write("\(limit.bytes)", to: memory + "/memory.memsw.limit_in_bytes") }
        }
    }

    // MARK: What it shows

    /// What is charged, page cache included.
    var usage: ByteCount { number(two: "memory.current", one: "memory.usage_in_bytes") ?? .zero }

    /// The most that ever was charged; `nil` on kernels before 5.19 with version 2.
    var peak: ByteCount? { number(two: "memory.peak", one: "memory.max_usage_in_bytes") }

    /// Processes the kernel has killed for want of memory here.
    var kills: Int { ControlFile.number(file(two: "memory.events", one: "memory.oom_control"), key: "oom_kill") ?? 0 }

    /// Times usage met the limit, harmless reclaim of page cache included.
    var limitHits: Int {
        switch version {
        case .v2: ControlFile.number(memory + "/memory.events", key: "max") ?? 0
        case .v1: ControlFile.number(memory + "/memory.failcnt") ?? 0
        }
    }

    /// Time in which at least one process stalled on memory; `nil` where the kernel keeps no stall times.
    var stalled: Duration? {
        guard let text = stall.flatMap({ ControlFile.text($0 + "/memory.pressure") }), let line = text.split(separator: "\n").first,
            let total = line.split(separator: " ").last, total.hasPrefix("total="), let microseconds = Int(total.dropFirst(6))
        else { return nil }
        return .microseconds(microseconds)
    }

    /// Of the usage, what the kernel can't take by itself, and what orchestrators count. Volatile pages are on the lists of files: on the
    /// inactive one, which the working set leaves out, until the kernel passes over those that were read since.
    var parts: (fixed: ByteCount, workingSet: ByteCount) {
        let statistics = ControlFile.text(memory + "/memory.stat") ?? "", prefix = version == .v2 ? "" : "total_"
        let inactive = ControlFile.value(of: prefix + "inactive_file", in: statistics) ?? 0
        let active = ControlFile.value(of: prefix + "active_file", in: statistics) ?? 0
        let usage = usage
        return (max(.zero, usage - ByteCount(inactive + active)), max(.zero, usage - ByteCount(inactive)))
    }

    /// What cannot be reclaimed by dropping page cache.
    var pinned: ByteCount {
        let keys = version == .v2 ? ("file", "shmem") : ("total_cache", "total_shmem")
        let statistics = ControlFile.text(memory + "/memory.stat") ?? ""
        func count(_ key: String) -> Int { ControlFile.value(of: key, in: statistics) ?? 0 }
        return usage - ByteCount(max(0, count(keys.0) - count(keys.1)))
    }

    // MARK: The end

    /// Removes it. Processes that have just ended linger for some milliseconds; those that have not are not ours to end.
    ///
    /// - Returns: whether it is gone.
    @discardableResult
    func remove() -> Bool {
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
    private func number(two: String, one: String) -> ByteCount? { ControlFile.number(file(two: two, one: one)).map { ByteCount($0) } }
}
