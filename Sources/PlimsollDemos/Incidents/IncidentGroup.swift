import Plimsoll
import PlimsollLinux

/// The memory of one service in a control group of version 2, in bytes, with a limit on the group and one on its
/// parent.
///
/// Charges beyond a limit are met as in the kernel: by reclaim of clean page cache and unused slab objects, in
/// proportion to their sizes. At least a sixth of them is reclaimed at once (see `SlabReclaim`). A charge that cannot
/// be met ends the service.
struct IncidentGroup {
    /// `memory.max` of the service's group and of its parent.
    var (limit, parentLimit): (Int, Int)
    /// Memory that a neighbour charges to the parent.
    var neighbour = 0
    /// Anonymous memory of the service, except its caches.
    var anonymous = 0
    /// Bytes of the caches that are registered with the manager.
    var cache = 0
    /// Socket buffers (`sock` in `memory.stat`), which no reclaim frees.
    var sockets = 0
    /// Clean page cache.
    var file = 0
    /// Unused slab objects, and those in use.
    var (slabFree, slabHeld) = (0, 0)
    private(set) var limitEvents = 0
    /// True if a charge could not be met.
    private(set) var isKilled = false

    init(limit: Int, parentLimit: Int = .max) { (self.limit, self.parentLimit) = (limit, parentLimit) }

    var usage: Int { anonymous + cache + sockets + file + slabFree + slabHeld }

    /// Makes room under both limits, or ends the service.
    mutating func reclaim() {
        let wanted = max(usage - limit, usage + neighbour - parentLimit)
        guard wanted > 0 else { return }
        limitEvents += 1
        let size = file + slabFree
        guard size >= wanted else {
            isKilled = true
            return
        }
        let freed = max(wanted, size / 6), ofFile = freed * file / size
        file -= ofFile
        slabFree -= freed - ofFile
    }

    private static let own = "/sys/fs/cgroup/box/service", parent = "/sys/fs/cgroup/box"

    /// Returns a kernel that shows this group.
    func kernel() -> IncidentKernel {
        let kernel = IncidentKernel([
            "/proc/self/cgroup": "0::/box/service\n",
            "/proc/self/mountinfo":
                "30 23 0:26 / /sys/fs/cgroup rw,nosuid,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            "/proc/self/statm": "6612 2402 1604 2 0 1337 0\n",
            "/proc/meminfo": "MemTotal: 33554432 kB\nMemFree: 30000000 kB\nMemAvailable: 31000000 kB\n",
            "\(Self.own)/cgroup.procs": "42\n", "\(Self.parent)/cgroup.procs": "7\n",
            "/sys/fs/cgroup/cgroup.procs": "1\n",
        ])
        show(on: kernel)
        return kernel
    }

    /// Writes the group's numbers into the kernel's files.
    func show(on kernel: IncidentKernel) {
        for (directory, limit, usage) in [(Self.own, limit, usage), (Self.parent, parentLimit, usage + neighbour)] {
            kernel.set("\(directory)/memory.max", limit == .max ? "max\n" : "\(limit)\n")
            kernel.set("\(directory)/memory.high", "max\n")
            kernel.set("\(directory)/memory.current", "\(usage)\n")
            kernel.set(
                "\(directory)/memory.stat",
                """
                anon \(anonymous + cache)
                file \(file)
                kernel \(slabFree + slabHeld)
                sock \(sockets)
                shmem 0
                file_dirty 0
                file_writeback 0
                inactive_file \(file)
                active_file 0
                slab_reclaimable \(slabFree + slabHeld)

                """)
            kernel.set("\(directory)/memory.events", "low 0\nhigh 0\nmax \(limitEvents)\noom 0\noom_kill 0\n")
        }
    }
}
