import Plimsoll

/// One group on the way from ours to the top of what can be seen, with its limits and, where it has one, what is charged to it.
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

    /// The last `memory.stat`, and when it was read.
    private(set) var stat = MemoryStat()
    private var statReadAt: Duration?
    private var statUsage = 0
    private var slab = SlabReclaim()
    /// Usage has come so near the limit that what is reclaimable decides, and is not yet well away again.
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

    /// The tighter of the two limits.
    var limit: Int { min(maximum, high) }
    var isFinite: Bool { limit != KernelText.unlimited }
    var boundary: PressureReading.Boundary { high < maximum ? .high : .maximum }
    /// The file that the tighter limit is in.
    var limitFile: KernelFile { high < maximum ? highFile ?? maximumFile : maximumFile }

    /// Whether `memory.high` leaves a braking distance below the limit that kills: then crossing it is slow, and reported at once.
    var hasBrake: Bool {
        high < maximum && (maximum == KernelText.unlimited || maximum - high >= min(maximum / 10, 32 << 20))
    }

    /// Reads the limits again. False if the group can't be read: it was removed.
    func readLimits(total: Int) -> Bool {
        guard let maximum = maximumFile.read(KernelText.limit) else { return false }
        self.maximum = maximum > total ? KernelText.unlimited : maximum
        // A kernel from before memory.high, or a file masked away, has no such limit to obey.
        let high = highFile?.read(KernelText.limit) ?? KernelText.unlimited
        self.high = high > total ? KernelText.unlimited : high
        return true
    }

    /// Bytes charged here and below, page cache included; `nil` if it can't be read.
    func usage() -> Int? { usageFile.read(KernelText.bytes) }

    /// Bytes that can still be charged when `usage` are.
    ///
    /// `memory.stat` costs ten times `memory.current`, so it is read only where its numbers could have changed a decision; between, the last ones
    /// stand, and available never jumps by switching from one estimate to another.
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

    /// Far from the limit once a second will do. Close to it what cannot be reclaimed grows in one of two ways: usage grows with it, or usage
    /// stands at the limit and page cache gives way to it.
    private func isStatOutdated(usage: Int, free: Int, at now: Duration) -> Bool {
        guard isClose else { return statReadAt.isDue(after: .seconds(1), at: now) }
        let step = limit / 512
        return abs(usage - statUsage) > step || free < step || statReadAt.isDue(after: .milliseconds(250), at: now)
    }
}

extension Duration? {
    /// Whether what was last done then is to be done again. A clock that went backwards makes everything due.
    func isDue(after interval: Duration, at now: Duration) -> Bool {
        guard let self else { return true }
        return now - self >= interval || now < self
    }
}
