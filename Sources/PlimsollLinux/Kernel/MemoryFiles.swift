#if canImport(Glibc) && !PLIMSOLL_INERT
package import Plimsoll

/// The values of `memory.stat` for a group and all below, in bytes.
package struct MemoryStat: Equatable, Sendable {
    var inactiveFile = 0
    var activeFile = 0
    var dirty = 0
    var writeback = 0
    var slabReclaimable = 0
    /// Number of `MADV_FREE` pages that the kernel has reclaimed since the group was made; only grows. `nil` where they
    /// are not counted (version 1).
    var lazyFreedPages: Int?

    /// Bytes that can be reclaimed without writing: the file lists except dirty pages, and half of the reclaimable
    /// slab. Half is the estimate for a slab of which nothing is known; `SlabReclaim` learns better.
    ///
    /// Reclaim itself walks the file lists, and `MemAvailable` is computed from them. Clean page cache is on these
    /// lists whether read once or often. `MADV_FREE` pages are on them, though counted as `anon`. tmpfs and locked
    /// pages are not, though counted as `file`. Where nothing is locked the sum is `file - shmem` plus lazily freed
    /// pages. Only half of the slab counts, because objects in use hold their pages.
    package var reclaimable: Int { cleanFile + slabReclaimable / 2 }

    /// Bytes on the file lists that can be reclaimed without writing.
    var cleanFile: Int { max(0, inactiveFile + activeFile - dirty - writeback) }

    /// Bytes of the inactive file list that can be reclaimed without writing: page cache not used lately, and lazily
    /// freed pages.
    var idleFile: Int { min(inactiveFile, cleanFile) }

    /// Parses a version 2 text, or with `isVersion1` the `total_` lines of a version 1 text. Returns `nil` without the
    /// two file lists.
    package init?(_ text: Span<UInt8>, isVersion1: Bool) {
        var inactive: Int?
        var active: Int?
        var (dirty, writeback, slab) = (0, 0, 0)
        var lazyFreed: Int?
        KernelText.forEachPair(in: text) { key, value in
            if KernelText.matches(text, key, isVersion1 ? "total_inactive_file" : "inactive_file") { inactive = value }
            if KernelText.matches(text, key, isVersion1 ? "total_active_file" : "active_file") { active = value }
            if KernelText.matches(text, key, isVersion1 ? "total_dirty" : "file_dirty") { dirty = value }
            if KernelText.matches(text, key, isVersion1 ? "total_writeback" : "file_writeback") { writeback = value }
            if isVersion1 { return }
            if KernelText.matches(text, key, "slab_reclaimable") { slab = value }
            if KernelText.matches(text, key, "pglazyfreed") { lazyFreed = value }
        }
        guard let inactive, let active else { return nil }
        // No machine has an exabyte, and sums of smaller numbers can't overflow.
        func plausible(_ value: Int) -> Int { min(value, 1 << 60) }
        self.inactiveFile = plausible(inactive)
        self.activeFile = plausible(active)
        self.dirty = plausible(dirty)
        self.writeback = plausible(writeback)
        self.slabReclaimable = plausible(slab)
        // These are pages: at most as many as make an exabyte.
        lazyFreedPages = lazyFreed.map { min($0, 1 << 48) }
    }

    /// Creates unknown values, so that no bytes count as reclaimable.
    init() {}
}

/// The values of `/proc/meminfo`, in bytes.
package struct MachineMemory: Equatable, Sendable {
    /// `MemTotal`.
    package var total: Int
    /// `MemAvailable`, or `MemFree` where the kernel has no such line.
    package var available: Int
    /// `MemFree`: memory that is free without any reclaim. Equals `available` where the kernel has no such line.
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

/// Parser of resident pages in `/proc/self/statm`.
package enum ProcessMemory {
    /// Returns the second number of the line; `nil` without one.
    package static func residentPages(_ text: Span<UInt8>) -> Int? {
        var position = 0
        guard KernelText.number(in: text, at: &position) != nil, position < text.count,
            text[position] == KernelText.space
        else { return nil }
        position += 1
        return KernelText.number(in: text, at: &position).map { Int(clamping: min($0, 1 << 50)) }
    }
}

extension PressureReading.EventCounts {
    /// Parses `memory.events`. Returns `nil` without `max` and `oom_kill`, which every version of the file has.
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

    /// Returns the `oom_kill` line of `memory.events.local`, `memory.events` or version 1's `memory.oom_control`.
    /// Kernels before 4.13 have none.
    static func oomKills(_ text: Span<UInt8>) -> Int? {
        var kills: Int?
        KernelText.forEachPair(in: text) { key, value in
            if KernelText.matches(text, key, "oom_kill") { kills = value }
        }
        return kills
    }
}

extension PressureReading.StallTotals {
    /// Parses `memory.pressure`. Returns `nil` without a `some` line that has a total. The averages lag two seconds and
    /// are ignored.
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

    /// Returns the number after ` total=`, to the end of the word.
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
#endif
