import CPlimsollSupervisor
import Glibc
package import Plimsoll
import PlimsollLinux

/// Measures that keep the supervisor from being killed, waiting for memory, or running out of descriptors (K41), and
/// their outcomes.
package struct SelfProtection: Sendable, Hashable {
    package struct Options: Sendable, Hashable {
        /// Not -1000: where a group is killed as a whole (`memory.oom.group`), unkillable processes would be left
        /// half alive (K42).
        package var oomScoreAdjust = -900
        /// Memory protected for the own group, if this process is alone there; `nil` for none.
        package var reserve: ByteCount? = .mebibytes(32)
        /// True to lock all present and future pages into memory. Pages are locked on first use (MCL_ONFAULT, Linux
        /// 4.4), so little-used stacks cost nothing.
        package var locksMemory = false
        /// True to raise the limit on open files to the hard limit. Each unit needs about ten files, while the usual
        /// limit is a thousand.
        package var raisesFileLimit = true
        /// Nice value of the calling thread. On a machine without a spare processor, the supervisor must run before
        /// the units that it manages.
        package var nice: Int32 = -5
        /// Weight of the own group, if this process is alone there: ten times the weight of a foreground unit.
        package var processorWeight = 1000

        package init() {}
    }

    package struct Outcome: Sendable, Hashable {
        package var name: String
        package var isDone: Bool
        /// A sentence for an operator.
        package var sentence: String
    }

    package private(set) var outcomes: [Outcome] = []

    /// Applies the measures. Each may fail without preventing the supervisor from running.
    package init(_ options: Options = Options(), own: OwnGroups = OwnGroups()) {
        lowerScore(options.oomScoreAdjust, "/proc/self/oom_score_adj")
        if let reserve = options.reserve { self.reserve(reserve, own) }
        if options.locksMemory { lockMemory() }
        if options.raisesFileLimit { raiseFileLimit() }
        hurry(options.nice)
        weigh(options.processorWeight, own)
    }

    private mutating func add(_ name: String, _ isDone: Bool, _ sentence: String) {
        outcomes.append(Outcome(name: name, isDone: isDone, sentence: sentence))
    }

    private mutating func lowerScore(_ score: Int, _ file: String) {
        let before: Int? = (try? GroupText.read(file).get()).flatMap { GroupText.number($0) }
        if let before, before <= score { return add("oom score", true, "\(file) is already \(before)") }
        if let number = GroupText.write("\(score)", to: file) {
            let remedy = "set OOMScoreAdjust=\(score) in its unit: a lower score needs CAP_SYS_RESOURCE"
            return add("oom score", false, "\(score) to \(file): \(String(cString: strerror(number))); \(remedy)")
        }
        add("oom score", true, "\(file) is \(score)")
    }

    private mutating func reserve(_ bytes: ByteCount, _ own: OwnGroups) {
        guard case .directory(let path, _)? = own.places[.unified], access(path + "/memory.min", F_OK) == 0 else {
            return add(
                "reserve", false,
                "the own group has no memory.min, which needs cgroup version 2 with the memory controller")
        }
        guard Self.isAlone(in: path) else {
            return add(
                "reserve", false,
                "\(path) also holds other processes, which the reserve would protect too; give the supervisor a group of its own"
            )
        }
        // Both take effect as far as the groups above provide protection (Documentation/admin-guide/cgroup-v2.rst).
        for file in ["memory.min", "memory.low"] {
            if let number = GroupText.write("\(bytes.bytes)", to: "\(path)/\(file)") {
                return add(
                    "reserve", false,
                    "\(bytes) to \(path)/\(file): \(String(cString: strerror(number))); set MemoryMin= in its unit")
            }
        }
        add("reserve", true, "\(bytes) in \(path)/memory.min, as far as the groups above grant it")
    }

    private static func isAlone(in path: String) -> Bool {
        let processes: [UInt8] = (try? GroupText.read(path + "/cgroup.procs").get()) ?? []
        return GroupText.pids(processes) == [getpid()] && GroupText.words(path + "/cgroup.subtree_control").isEmpty
    }

    private mutating func hurry(_ nice: Int32) {
        let result = plimsoll_hurry(nice)
        guard result < 0 else { return add("nice", true, "the deciding thread runs at nice \(nice) or less") }
        add(
            "nice", false,
            "\(nice): \(String(cString: strerror(-result))); set Nice=\(nice) in its unit: a lower value needs CAP_SYS_NICE"
        )
    }

    private mutating func weigh(_ weight: Int, _ own: OwnGroups) {
        for (hierarchy, name, value) in [
            (Hierarchy.unified, "cpu.weight", weight), (.cpu, "cpu.shares", weight * 1024 / 100),
        ] {
            guard case .directory(let path, _)? = own.places[hierarchy], access("\(path)/\(name)", F_OK) == 0 else {
                continue
            }
            guard Self.isAlone(in: path) else {
                return add(
                    "processor weight", false,
                    "\(path) also holds other processes; give the supervisor a group of its own")
            }
            let number = GroupText.write("\(value)", to: "\(path)/\(name)")
            let remedy = number.map { ": \(String(cString: strerror($0))); set CPUWeight=\(weight) in its unit" } ?? ""
            return add("processor weight", number == nil, "\(value) in \(path)/\(name)\(remedy)")
        }
        add("processor weight", false, "the own group has no cpu controller")
    }

    private mutating func raiseFileLimit() {
        let files = plimsoll_raise_file_limit()
        add(
            "files", files >= 0,
            files >= 0 ? "\(files) may be open" : "RLIMIT_NOFILE: \(String(cString: strerror(Int32(-files))))")
    }

    private mutating func lockMemory() {
        // MCL_ONFAULT of asm-generic/mman.h.
        if mlockall(MCL_CURRENT | MCL_FUTURE | 4) == 0 {
            return add("locked memory", true, "every page stays in memory once used")
        }
        add(
            "locked memory", false,
            "mlockall: \(String(cString: strerror(errno))); set LimitMEMLOCK=infinity in its unit")
    }
}
