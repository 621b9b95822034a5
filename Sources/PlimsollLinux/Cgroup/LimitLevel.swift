#if canImport(Glibc) && !PLIMSOLL_INERT
import Plimsoll

/// One group on the way from ours to the highest visible one, with limits and charged memory, where present.
final class LimitLevel {
    /// The next level up that has the memory controller.
    var parent: LimitLevel?
    let directory: String
    let version: ControlGroup.Version
    let maximumFile: KernelFile
    /// Version 2 only.
    let highFile: KernelFile?
    let usageFile: KernelFile
    let statFile: KernelFile

    /// Bytes; `KernelText.unlimited` for none. A limit above the machine's memory counts as none.
    private(set) var maximum = KernelText.unlimited
    private(set) var high = KernelText.unlimited

    /// The last `memory.stat`, and the time of that reading.
    private(set) var stat = MemoryStat()
    private var statReadAt: Duration?
    private var statUsage = 0
    private var slab = SlabReclaim()
    /// True from when usage comes so near the limit that reclaimable memory matters, until usage is well below again
    /// (hysteresis).
    private var isClose = false

    init(_ directory: String, _ version: ControlGroup.Version, _ kernel: any Kernel, _ buffer: TextBuffer) {
        self.directory = directory
        self.version = version
        let isVersion1 = version == .v1
        maximumFile = KernelFile(directory + (isVersion1 ? "/memory.limit_in_bytes" : "/memory.max"), kernel, buffer)
        highFile = isVersion1 ? nil : KernelFile(directory + "/memory.high", kernel, buffer)
        usageFile = KernelFile(directory + (isVersion1 ? "/memory.usage_in_bytes" : "/memory.current"), kernel, buffer)
        statFile = KernelFile(directory + "/memory.stat", kernel, buffer)
    }

    /// True if another group has taken the place of the one that was opened.
    var isReplaced: Bool { maximumFile.hasLostGroup || usageFile.hasLostGroup }

    /// The tighter of the two limits.
    var limit: Int { min(maximum, high) }
    var isFinite: Bool { limit != KernelText.unlimited }
    var boundary: PressureReading.Boundary { high < maximum ? .high : .maximum }
    var limitFile: KernelFile { high < maximum ? highFile ?? maximumFile : maximumFile }

    /// True if `memory.high` leaves room for throttling below the hard limit. Then crossing `memory.high` is slow, and
    /// reported at once.
    var hasBrake: Bool {
        high < maximum && (maximum == KernelText.unlimited || maximum - high >= min(maximum / 10, 32 << 20))
    }

    /// Reads the limits again. Returns false if the group was removed, even if another group has the path by now.
    func readLimits(total: Int) -> Bool {
        guard let maximum = maximumFile.read(KernelText.limit) else { return false }
        self.maximum = maximum > total ? KernelText.unlimited : maximum
        // A kernel from before memory.high, or a masked file, has no such limit.
        let high = highFile?.read(KernelText.limit) ?? KernelText.unlimited
        self.high = high > total ? KernelText.unlimited : high
        return !isReplaced
    }

    /// Returns the file with the count of processes killed in this group alone. The counts of a version 2 group also
    /// include all groups below, and so the kills of neighbours under one limit (K25).
    func openKillsFile(_ kernel: any Kernel, _ buffer: TextBuffer) -> KernelFile {
        // Version 1 counts a kill in the group of the killed process, and in no other (memcg_memory_event).
        if version == .v1 { return KernelFile(directory + "/memory.oom_control", kernel, buffer) }
        let local = KernelFile(directory + "/memory.events.local", kernel, buffer)
        // Linux before 5.2 has no such file. A file that can't be opened for now is tried again at each reading.
        let isThere = local.open() || local.failure?.isLasting == false
        return isThere ? local : KernelFile(directory + "/memory.events", kernel, buffer)
    }

    /// Returns the bytes charged here and below, page cache included; `nil` if they can't be read.
    func usage() -> Int? { usageFile.read(KernelText.bytes) }

    /// Returns the bytes that can still be charged at `usage`.
    ///
    /// `memory.stat` costs ten times `memory.current`, so it is read only where the numbers could change a decision. In
    /// between the last numbers are used. So available memory never jumps by switching between estimates.
    func available(usage: Int, growthFloor: Int, at now: Duration) -> Int {
        let free = max(-KernelText.unlimited / 2, limit - usage)
        if free < growthFloor { isClose = true } else if free > growthFloor + growthFloor / 4 { isClose = false }
        if isStatOutdated(usage: usage, free: free, at: now) {
            (statReadAt, statUsage) = (now, usage)
            let isVersion1 = version == .v1
            stat = statFile.read { MemoryStat($0, isVersion1: isVersion1) } ?? MemoryStat()
            slab.learn(stat, usage: usage, limit: limit)
        }
        return min(limit, max(0, free + min(usage, stat.cleanFile + slab.reclaimable(of: stat.slabReclaimable))))
    }

    /// Far from the limit one reading a second is enough. Close to the limit, memory that cannot be reclaimed grows in
    /// one of two ways. Either usage grows too, or usage stays at the limit and page cache shrinks.
    private func isStatOutdated(usage: Int, free: Int, at now: Duration) -> Bool {
        guard isClose else { return statReadAt.isDue(after: .seconds(1), at: now) }
        let step = limit / 512
        return abs(usage - statUsage) > step || free < step || statReadAt.isDue(after: .milliseconds(250), at: now)
    }
}

extension Duration? {
    /// Returns true if the work last done at this time is due again. A clock that went backwards makes all work due.
    func isDue(after interval: Duration, at now: Duration) -> Bool {
        guard let self else { return true }
        return now - self >= interval || now < self
    }
}
#endif
