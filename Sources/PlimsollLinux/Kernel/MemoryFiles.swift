package import Plimsoll

/// What `memory.stat` says of a group and all below it, in bytes.
package struct MemoryStat: Equatable, Sendable {
    var inactiveFile = 0
    var activeFile = 0
    var dirty = 0
    var writeback = 0
    var slabReclaimable = 0
    /// Pages given up with `MADV_FREE` that the kernel has taken since the group was made; only ever grows. `nil` where it isn't counted (version 1).
    var lazyFreedPages: Int?

    /// Bytes that reclaim can have without writing anything: all on the file lists but what is dirty, and half of the slab that calls itself reclaimable.
    /// Half stands for a slab of which nothing is known; `SlabReclaim` learns better.
    ///
    /// The file lists are what reclaim itself walks, and what `MemAvailable` is made of. Clean page cache stands on them whether
    /// read once or often; pages given up with `MADV_FREE` stand on them, though counted as `anon`; tmpfs and locked pages do not, though counted as `file`.
    /// Where nothing is locked the sum is `file - shmem` plus lazily freed pages. Half of the slab, because objects in use hold their pages.
    package var reclaimable: Int { cleanFile + slabReclaimable / 2 }

    /// Bytes on the file lists that reclaim can have without writing.
    var cleanFile: Int { max(0, inactiveFile + activeFile - dirty - writeback) }

    /// What of the inactive file list can be had without writing: page cache not used lately, and lazily freed pages.
    var idleFile: Int { min(inactiveFile, cleanFile) }

    /// A version 2 text, or with `isVersion1` the `total_` lines of a version 1 text. `nil` without the two file lists.
    package init?(_ text: Span<UInt8>, isVersion1: Bool) {
        var inactive: Int?
        var active: Int?
        var (dirty, writeback, slab) = (0, 0, 0)
        var lazyFreed: Int?
        if isVersion1 {
            KernelText.forEachPair(in: text) { key, value in
                if KernelText.matches(text, key, "total_inactive_file") { inactive = value }
                if KernelText.matches(text, key, "total_active_file") { active = value }
                if KernelText.matches(text, key, "total_dirty") { dirty = value }
                if KernelText.matches(text, key, "total_writeback") { writeback = value }
            }
        } else {
            KernelText.forEachPair(in: text) { key, value in
                if KernelText.matches(text, key, "inactive_file") { inactive = value }
                if KernelText.matches(text, key, "active_file") { active = value }
                if KernelText.matches(text, key, "file_dirty") { dirty = value }
                if KernelText.matches(text, key, "file_writeback") { writeback = value }
                if KernelText.matches(text, key, "slab_reclaimable") { slab = value }
                if KernelText.matches(text, key, "pglazyfreed") { lazyFreed = value }
            }
        }
        guard let inactive, let active else { return nil }
        // No machine has an exabyte; sums of smaller numbers can't overflow.
        func plausible(_ value: Int) -> Int { min(value, 1 << 60) }
        self.inactiveFile = plausible(inactive)
        self.activeFile = plausible(active)
        self.dirty = plausible(dirty)
        self.writeback = plausible(writeback)
        self.slabReclaimable = plausible(slab)
        // Pages here: no more of them than would make an exabyte.
        lazyFreedPages = lazyFreed.map { min($0, 1 << 48) }
    }

    /// Nothing known, so nothing counts as reclaimable.
    init() {}
}

/// What `/proc/meminfo` says, in bytes.
package struct MachineMemory: Equatable, Sendable {
    /// `MemTotal`.
    package var total: Int
    /// `MemAvailable`, or `MemFree` where the kernel has no such line.
    package var available: Int
    /// `MemFree`: free without taking anything from anybody. All that is available where the kernel has no such line.
    package var free: Int
    /// `Inactive(file)`: page cache not used lately, and lazily freed pages.
    package var inactiveFile: Int

    package init?(_ text: Span<UInt8>) {
        var (total, available, free): (Int?, Int?, Int?) = (nil, nil, nil)
        var inactiveFile = 0
        KernelText.forEachPair(in: text) { key, value in
            if KernelText.matches(text, key, "MemTotal") { total = value }
            if KernelText.matches(text, key, "MemAvailable") { available = value }
            if KernelText.matches(text, key, "MemFree") { free = value }
            if KernelText.matches(text, key, "Inactive(file)") { inactiveFile = value }
        }
        guard let total, total > 0, let available = available ?? free else { return nil }
        self.total = total
        self.available = min(available, total)
        self.free = min(free ?? available, total)
        self.inactiveFile = min(inactiveFile, total)
    }
}

/// Resident pages in `/proc/self/statm`.
package enum ProcessMemory {
    /// The second number of the line; `nil` without one.
    package static func residentPages(_ text: Span<UInt8>) -> Int? {
        var position = 0
        guard KernelText.number(in: text, at: &position) != nil, position < text.count, text[position] == KernelText.space else { return nil }
        position += 1
        return KernelText.number(in: text, at: &position).map { Int(clamping: min($0, 1 << 50)) }
    }
}

extension PressureReading.EventCounts {
    /// The text of `memory.events`. `nil` without `max` and `oom_kill`, which every version of it has.
    package init?(_ text: Span<UInt8>) {
        var (high, max, oom, oomKill): (Int, Int?, Int, Int?) = (0, nil, 0, nil)
        KernelText.forEachPair(in: text) { key, value in
            if KernelText.matches(text, key, "high") { high = value }
            if KernelText.matches(text, key, "max") { max = value }
            if KernelText.matches(text, key, "oom") { oom = value }
            if KernelText.matches(text, key, "oom_kill") { oomKill = value }
        }
        guard let max, let oomKill else { return nil }
        self.init(high: high, max: max, oom: oom, oomKill: oomKill)
    }

    /// The `oom_kill` line of version 1's `memory.oom_control`; kernels before 4.13 have none.
    static func oomKills(_ text: Span<UInt8>) -> Int? {
        var kills: Int?
        KernelText.forEachPair(in: text) { key, value in
            if KernelText.matches(text, key, "oom_kill") { kills = value }
        }
        return kills
    }
}

extension PressureReading.StallTotals {
    /// The text of `memory.pressure`. `nil` without a `some` line that has a total; its averages lag two seconds and are passed over.
    package init?(_ text: Span<UInt8>) {
        var (some, full): (UInt64?, UInt64?) = (nil, nil)
        var position = 0
        while position < text.count {
            let start = position
            while position < text.count, text[position] != KernelText.newline { position += 1 }
            let line = start..<position
            position += 1
            guard line.count > 5 else { continue }
            let kind = line.lowerBound..<line.lowerBound + 5
            if KernelText.matches(text, kind, "some ") { some = Self.total(text, line) }
            if KernelText.matches(text, kind, "full ") { full = Self.total(text, line) }
        }
        guard let some else { return nil }
        self.init(some: Self.duration(some), full: Self.duration(full ?? 0))
    }

    /// The number behind ` total=`, to the end of its word.
    private static func total(_ text: Span<UInt8>, _ line: Range<Int>) -> UInt64? {
        var start = line.lowerBound
        while start + 7 < line.upperBound {
            if KernelText.matches(text, start..<start + 7, " total=") {
                var position = start + 7
                let value = KernelText.number(in: text, at: &position)
                return position == line.upperBound || text[position] == KernelText.space ? value : nil
            }
            start += 1
        }
        return nil
    }

    private static func duration(_ microseconds: UInt64) -> Duration { .microseconds(Int64(clamping: microseconds)) }
}
