@testable import PlimsollLinux

/// The files of typical machines, as kernels 6.1 and 6.18 write them.
enum Machines {
    static let mib = 1 << 20

    static let meminfo =
        "MemTotal:       24684096 kB\nMemFree:        23617804 kB\nMemAvailable:   24334000 kB\nBuffers:            2568 kB\nHugePages_Total:       0\n"
    static let statm = "6612 2402 1604 2 0 1337 0\n"
    static let stall = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500\n"
    static let events = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"

    static func stat(
        inactiveFile: Int = 0, activeFile: Int = 0, shmem: Int = 0, dirty: Int = 0, writeback: Int = 0, slab: Int = 0, lazyFreed: Int? = nil
    ) -> String {
        """
        anon 104857600
        file \(inactiveFile + activeFile + shmem)
        kernel 9437184
        shmem \(shmem)
        file_mapped 4096
        file_dirty \(dirty)
        file_writeback \(writeback)
        inactive_anon \(104_857_600 + shmem)
        active_anon 0
        inactive_file \(inactiveFile)
        active_file \(activeFile)
        unevictable 0
        slab_reclaimable \(slab)
        slab_unreclaimable 1048576
        slab \(slab + 1_048_576)
        workingset_refault_file 275
        pglazyfree 99
        \(lazyFreed.map { "pglazyfreed \($0)\n" } ?? "")
        """
    }

    static func statVersion1(inactiveFile: Int = 0, activeFile: Int = 0, dirty: Int = 0) -> String {
        """
        cache 1
        rss 2
        inactive_file 3
        active_file 4
        hierarchical_memory_limit 536870912
        total_cache \(inactiveFile + activeFile)
        total_rss 104857600
        total_shmem 0
        total_dirty \(dirty)
        total_writeback 0
        total_inactive_file \(inactiveFile)
        total_active_file \(activeFile)

        """
    }

    static let processFiles = [
        "/proc/meminfo": meminfo, "/proc/self/statm": statm, "/proc/pressure/memory": stall,
    ]

    static func group(_ directory: String, max: String = "max", high: String = "max", current: Int = 100 * mib) -> [String: String] {
        [
            "\(directory)/memory.max": max + "\n", "\(directory)/memory.high": high + "\n", "\(directory)/memory.current": "\(current)\n",
            "\(directory)/memory.stat": stat(), "\(directory)/memory.events": events, "\(directory)/memory.pressure": stall,
            "\(directory)/cgroup.procs": "7\n42\n",
        ]
    }

    /// Returns cgroup version 2 as on an ordinary host, with the process in `/box/main`.
    static func version2(max: String = "536870912", high: String = "max", parentMax: String = "max", parentHigh: String = "max") -> [String: String] {
        var files = processFiles
        files["/proc/self/cgroup"] = "0::/box/main\n"
        files["/proc/self/mountinfo"] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
        files.merge(group("/sys/fs/cgroup/box", max: parentMax, high: parentHigh, current: 120 * mib)) { $1 }
        files.merge(group("/sys/fs/cgroup/box/main", max: max, high: high)) { $1 }
        files["/sys/fs/cgroup/memory.pressure"] = stall
        files["/sys/fs/cgroup/cgroup.procs"] = "1\n"
        return files
    }

    static let main = "/sys/fs/cgroup/box/main"
    static let box = "/sys/fs/cgroup/box"
    static let v1Group = "/sys/fs/cgroup/memory/a/b"

    /// Returns the memory controller on version 1, and stall on version 2.
    static func hybrid(limit: String = "536870912", parentLimit: String = "9223372036854771712") -> [String: String] {
        var files = processFiles
        files["/proc/self/cgroup"] = "9:name=systemd:/\n4:memory:/a/b\n2:cpuacct,cpu:/x\n0::/\n"
        files["/proc/self/mountinfo"] = """
            31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw

            """
        for (directory, limit) in [("/sys/fs/cgroup/memory/a", parentLimit), (v1Group, limit)] {
            files["\(directory)/memory.limit_in_bytes"] = limit + "\n"
            files["\(directory)/memory.usage_in_bytes"] = "\(100 * mib)\n"
            files["\(directory)/memory.stat"] = statVersion1()
            files["\(directory)/memory.failcnt"] = "0\n"
            files["\(directory)/memory.oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"
            files["\(directory)/memory.use_hierarchy"] = "1\n"
            files["\(directory)/cgroup.event_control"] = ""
            files["\(directory)/cgroup.procs"] = "42\n"
        }
        files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n"
        files["/sys/fs/cgroup/memory/memory.use_hierarchy"] = "1\n"
        files["/sys/fs/cgroup/unified/memory.pressure"] = stall
        files["/sys/fs/cgroup/unified/cgroup.procs"] = "1\n42\n"
        return files
    }
}
