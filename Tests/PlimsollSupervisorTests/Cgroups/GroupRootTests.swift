import Glibc
import Plimsoll
import PlimsollLinux
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite struct GroupRootTests {
    /// Creates a directory that looks like a group of the kernel.
    private func fixture(_ files: [String: String]) throws -> String {
        let directory = "\(Workbench.directory)/\(Workbench.prefix())"
        try #require(mkdir(directory, 0o755) == 0)
        for (name, text) in files.merging(["cgroup.procs": ""], uniquingKeysWith: { first, _ in first }) {
            let file = open("\(directory)/\(name)", O_WRONLY | O_CREAT, 0o644)
            _ = text.withCString { write(file, $0, text.utf8.count) }
            close(file)
        }
        return directory
    }

    private func text(_ path: String) -> String { (try? GroupText.read(path).get()).map { String(decoding: $0, as: UTF8.self) } ?? "" }

    private func remove(_ directory: String, _ names: some Sequence<String>) {
        for name in names { unlink("\(directory)/\(name)") }
        unlink("\(directory)/cgroup.procs")
        rmdir(directory)
    }

    private let version2 = [
        "memory.current": "104857600\n", "memory.swap.current": "4096\n", "memory.low": "", "memory.high": "", "memory.max": "", "memory.reclaim": "",
        "memory.stat": "anon 1\ninactive_file 3000\nactive_file 2000\nfile_dirty 500\nfile_writeback 0\nslab_reclaimable 0\n", "cpu.weight": "",
        "cpu.max": "", "io.weight": "", "cgroup.freeze": "0\n", "cgroup.kill": "", "cgroup.events": "populated 1\nfrozen 0\n",
    ]

    @Test(.needs(Workbench.found.parents[.unified] != nil, "no group can be made here"))
    func `the next supervisor removes a killed supervisor's probe, and leaves a probe of a longer prefix`() throws {
        let prefix = Workbench.prefix(), parent = try #require(Workbench.found.parents[.unified])
        // No process has so large a number (PID_MAX_LIMIT is 2^22).
        let left = "\(parent)/\(prefix)-99999999-probe", other = "\(parent)/\(prefix)-a-99999999-probe"
        defer { for path in [left, other] { rmdir(path) } }
        for path in [left, other] { #expect(mkdir(path, 0o755) == 0) }
        _ = GroupRoot(prefix: prefix)
        #expect(access(left, F_OK) != 0 && access(other, F_OK) == 0)
    }

    @Test func `a version 2 group is read from and written to the right files`() throws {
        let path = try fixture(version2)
        defer { remove(path, version2.keys) }
        let group = try UnitGroup("web", [GroupDirectory(.unified, path, isOurs: false)], own: OwnGroups())
        #expect(group.charge == .mebibytes(100) && group.swapped == 4096 && group.reclaimable == 4500 && group.suspension == .freeze)
        #expect(try group.setLimits(request: .kibibytes(1), limit: .kibibytes(4), high: .kibibytes(3)).isEmpty)
        #expect(text(path + "/memory.low") == "1024" && text(path + "/memory.high") == "3072" && text(path + "/memory.max") == "4096")
        #expect(try group.setWeights(for: .background).isEmpty)
        #expect(text(path + "/cpu.weight") == "25" && text(path + "/io.weight") == "default 25")
        #expect(try group.throttle(true) == nil && text(path + "/cpu.max") == "10000 100000")
        try group.reclaim(.kibibytes(2))
        #expect(text(path + "/memory.reclaim") == "2048")
        try group.freeze()
        #expect(text(path + "/cgroup.freeze").hasPrefix("1") && !group.isFrozen && !group.isEmpty)
        try group.killAll()
        #expect(text(path + "/cgroup.kill") == "1")
    }

    @Test func `without controllers each omitted step is reported as omitted`() throws {
        let path = try fixture([:])
        defer { remove(path, [:].keys) }
        let group = try UnitGroup("web", [GroupDirectory(.unified, path, isOurs: false)], own: OwnGroups())
        #expect(group.suspension == .stop && group.swapped == nil && group.reclaimable == .zero)
        #expect(try group.setLimits(request: nil, limit: 4096) == ["cannot set memory of web: its groups have no memory controller"])
        #expect(try group.setWeights(for: .deferred).count == 2)
        #expect(try group.throttle(true)?.hasPrefix("cannot throttle web") == true)
        #expect { try group.reclaim(1) } throws: { "\($0)".contains("no memory controller") }
    }

    @Test func `C14 every capability is named and has a detail`() {
        let root = Workbench.found
        #expect(
            root.capabilities.signals.map(\.name) == [
                "freeze", "kill", "charge", "limits", "reclaim", "swap", "weights", "disk weights", "throttle", "stall",
            ])
        #expect(root.capabilities.signals.allSatisfy { !$0.detail.isEmpty })
        for parent in root.parents.values { #expect(access("\(parent)/\(root.prefix)-\(getpid())-probe", F_OK) != 0) }
        if root.layout == .hybrid { #expect(root.capabilities["reclaim"]?.detail.hasSuffix("memory.limit_in_bytes is lowered for a moment") == true) }
        let none = GroupProbe(prefix: "x").capabilities
        #expect(none["freeze"]?.isLive == false && none["freeze"]?.detail.contains("SIGSTOP") == true && GroupProbe(prefix: "x").layout == .signals)
    }

    @Test func `K41 each protection of the supervisor reports the result`() {
        var options = SelfProtection.Options()
        // The value that the test's process already has: so nothing changes for the tests beside this one.
        options.oomScoreAdjust = GroupText.number((try? GroupText.read("/proc/self/oom_score_adj").get()) ?? []) ?? 0
        options.raisesFileLimit = false
        options.nice = 19
        let protection = SelfProtection(options)
        #expect(protection.outcomes.map(\.name) == ["oom score", "reserve", "nice", "processor weight"] && protection.outcomes[0].isDone)
        #expect(protection.outcomes.allSatisfy { !$0.sentence.isEmpty })
    }

    /// Options that change nothing of the test's own process.
    private var harmless: SelfProtection.Options {
        var options = SelfProtection.Options()
        (options.oomScoreAdjust, options.raisesFileLimit, options.nice) = (score, false, 19)
        return options
    }

    private var score: Int { GroupText.number((try? GroupText.read("/proc/self/oom_score_adj").get()) ?? []) ?? 0 }

    @Test(arguments: [("", "", true), ("1\n", "", false), ("", "memory\n", false)])
    func `K41 memory and processor time are reserved in a group that holds nothing but the supervisor`(
        others: String, controllers: String, isDone: Bool
    ) throws {
        let values = ["memory.min": "0\n", "memory.low": "0\n", "cpu.weight": "100\n"]
        let files = values.merging(["cgroup.procs": "\(getpid())\n\(others)", "cgroup.subtree_control": controllers]) { $1 }
        let path = try fixture(files)
        defer { remove(path, files.keys) }
        let outcomes = SelfProtection(harmless, own: OwnGroups(places: [.unified: .directory(path, top: path)])).outcomes
        #expect(outcomes.filter { $0.name == "reserve" || $0.name == "processor weight" }.map(\.isDone) == [isDone, isDone])
        let reserve = "\(ByteCount.mebibytes(32).bytes)"
        for (name, wanted) in ["memory.min": reserve, "memory.low": reserve, "cpu.weight": "1000"] {
            #expect(text("\(path)/\(name)") == (isDone ? wanted : values[name]), "\(name)")
        }
    }

    @Test func `K41 a process that is killed later than asked for stays so`() {
        let before = score
        var options = harmless
        (options.oomScoreAdjust, options.reserve) = (before + 1, nil)
        let outcome = SelfProtection(options, own: OwnGroups(places: [:])).outcomes[0]
        #expect(outcome.isDone && outcome.sentence.hasSuffix("is already \(before)") && score == before)
    }

    @Test func `C36 a throttle bounds the disks that a unit has used, and another writer's limits are put back`() throws {
        let files = version2.merging([
            "io.max": "8:0 rbps=2097152 wbps=max riops=max wiops=max\n", "io.stat": "8:0 rbytes=1\n8:16 rbytes=1 wbytes=2\n",
        ]) { $1 }
        .merging(["cpu.max": "100000 100000\n"]) { $1 }
        let path = try fixture(files)
        defer { remove(path, files.keys) }
        let group = try UnitGroup("web", [GroupDirectory(.unified, path, isOurs: false)], own: OwnGroups())
        let own = group.throttle(keepsOwn: true), ours = group.throttle()
        #expect(own.set.map(\.text) == ["10000 100000", "8:0 rbps=1048576 wbps=1048576", "8:16 rbps=1048576 wbps=1048576"])
        #expect(own.lift.map(\.text) == ["100000 100000", "8:0 rbps=2097152 wbps=max riops=max wiops=max", "8:16 rbps=max wbps=max"])
        #expect(ours.lift.map(\.text) == ["max 100000", "8:0 rbps=max wbps=max", "8:16 rbps=max wbps=max"])
        #expect(own.set.map(\.file) == ["cpu.max", "io.max", "io.max"] && own.lift.map(\.file) == own.set.map(\.file))
    }

    @Test func `K43 a supervisor started in the leaf group has units beside that leaf`() throws {
        let root = try fixture(["cgroup.controllers": "memory cpu io\n", "cgroup.subtree_control": ""]), own = root + "/plimsoll-supervisor"
        mkdir(own, 0o755)
        defer {
            rmdir(own)
            remove(root, ["cgroup.controllers", "cgroup.subtree_control"])
        }
        var probe = GroupProbe(prefix: "plimsoll")
        probe.unified(.directory(own, top: root), leaf: "plimsoll-supervisor")
        #expect(probe.parents[.unified] == root && !probe.madeLeaf && access(own + "/plimsoll-supervisor", F_OK) != 0)
        var alone = GroupProbe(prefix: "plimsoll")
        alone.unified(.directory(root, top: root), leaf: "plimsoll-supervisor")
        #expect(alone.parents[.unified] == root)
    }

    @Test func `K43 a unit with the name of the supervisor's leaf is refused with that reason`() throws {
        let top = try fixture(["cgroup.controllers": "memory\n", "cgroup.subtree_control": ""])
        let leaf = top + "/plimsoll-supervisor", list = leaf + "/cgroup.procs"
        mkdir(leaf, 0o755)
        close(open(list, O_WRONLY | O_CREAT, 0o644))
        defer {
            unlink(list)
            rmdir(leaf)
            remove(top, ["cgroup.controllers", "cgroup.subtree_control"])
        }
        #expect(GroupText.write("\(getpid())\n", to: list) == nil)
        let place = GroupPlace.directory(leaf, top: top)
        var probe = GroupProbe(prefix: "plimsoll")
        probe.unified(place, leaf: "plimsoll-supervisor")
        let root = GroupRoot(probe, own: OwnGroups(places: [.unified: place]), prefix: "plimsoll")
        #expect { try root.clear("supervisor", sparing: []) } throws: { ($0 as? GroupError)?.reason == .supervisors }
        try root.clear("web", sparing: [])
    }

    @Test func `K42 K44 the supervisor can be killed with a group, and acts before systemd-oomd does`() {
        // A process that can't be killed survives alone where a group is killed as a whole.
        #expect(SelfProtection.Options().oomScoreAdjust > -1000)
        // systemd-oomd acts at 60 % for 30 s, and at 40 % where a desktop asks for that.
        let thresholds = PressureThresholds.standard
        #expect(thresholds.stallWarning < 0.4 && thresholds.stallCritical <= 0.4)
        #expect(SupervisorPolicy.standard.leaveTime + SupervisorPolicy.standard.grace < .seconds(30))
    }
}
