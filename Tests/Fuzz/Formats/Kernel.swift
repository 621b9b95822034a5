@testable import Plimsoll
@testable import PlimsollLinux
@testable import PlimsollSupervisor

let kernelFormats = [
    Format(name: "memory-files") { bytes in
        for isVersion1 in [false, true] {
            if let stat = MemoryStat(bytes.span, isVersion1: isVersion1) {
                require(stat.reclaimable >= 0, "reclaimable memory is not negative")
            }
        }
        if let memory = MachineMemory(bytes.span) {
            require(0 <= memory.available && memory.available <= memory.total, "available memory is within the machine's")
        }
        if let limit = KernelText.limit(bytes.span) { require(limit >= 0, "a limit is not negative") }
        if let counts = PressureReading.EventCounts(bytes.span) { require(counts.max >= 0, "counts are not negative") }
        if let totals = PressureReading.StallTotals(bytes.span) { require(totals.some >= .zero, "times are not negative") }
        _ = PressureReading.EventCounts.oomKills(bytes.span)
        _ = ProcessMemory.residentPages(bytes.span)
        _ = KernelText.bytes(bytes.span)
        _ = StallThreshold(bytes.span)
    },
    // /proc/self/cgroup, a zero byte, and /proc/self/mountinfo.
    Format(name: "mounts") { bytes in
        let parts = bytes.split(separator: 0, maxSplits: 1, omittingEmptySubsequences: false).map(Array.init)
        let membership = Membership(parts[0]), mounts = MountTable(parts.last ?? [])
        for mount in mounts.unified + mounts.memory {
            for path in [membership.unified, membership.memory, "/a/b"].compactMap({ $0 }) {
                if case .directory(let place, let top) = mount.place(of: path) {
                    require(place.utf8.starts(with: top.utf8), "a group's directory lies below the mount")
                }
            }
        }
    },
    Format(name: "processes") { bytes in
        for lock in LockTable(bytes).locks { require(lock.pid > 0 || lock.pid == -1, "a lock has an owner") }
        _ = LockTable.isLocked(bytes)
        for mapping in CleanPages.mappings(in: bytes) {
            require(mapping.start < mapping.end && mapping.resident > .zero, "a mapping has bytes")
        }
        _ = ProcessStat(bytes)
    },
    Format(name: "kernel-events") { bytes in
        for event in FileEvent.parse(bytes.span) { require(!event.name.utf8.contains(0), "names end at a zero byte") }
        if let event = Uevent(bytes.span) { require(event.path.hasPrefix("/"), "a device has a path") }
    },
]
