import Glibc
import Testing

@testable import PlimsollLinux

/// Tests of the group of this process, and of the certainty of that finding.
@Suite struct ControlGroupTests {
    @Test func `a visible group is certain`() {
        let group = ControlGroup(ScriptedKernel(Machines.version2()))
        #expect(group.version == .v2 && !group.isUncertain)
        #expect(group.memory == .directory(Machines.main, top: "/sys/fs/cgroup"))
        #expect(group.unified == group.memory)
    }

    @Test func `a group without a directory, or without this process, may be visible next time`() {
        var files = Machines.version2()
        files["/proc/self/cgroup"] = "0::/box/gone\n"
        let missing = ControlGroup(ScriptedKernel(files))
        #expect(missing.isUncertain && missing.memory == .hidden("/sys/fs/cgroup/box/gone does not exist"))
        files = Machines.version2()
        files[Machines.main + "/cgroup.procs"] = "1\n142\n"
        let foreign = ControlGroup(ScriptedKernel(files))
        #expect(foreign.isUncertain && foreign.memory == .hidden("\(Machines.main) does not list this process"))
    }

    @Test(arguments: [EOPNOTSUPP, EACCES])
    func `K19 a list of processes that cannot be read proves nothing: a threaded group has none`(failure: Int32) {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.readRefusals[Machines.main + "/cgroup.procs"] = failure }
        let group = ControlGroup(kernel)
        #expect(group.memory.path == Machines.main && group.unified.path == Machines.main && !group.isUncertain)
    }

    @Test func `a group that one mount shows is certain, although another mount can't be reached or shows another group`() {
        for state in [FileStatus.failed(EACCES), .directory] {
            var files = Machines.version2()
            files["/proc/self/mountinfo"]? += "31 23 0:26 / /private/cgroup rw,relatime - cgroup2 none rw\n"
            files["/private/cgroup/box/main/cgroup.procs"] = "1\n"
            let kernel = ScriptedKernel(files)
            kernel.edit { $0.kinds["/private/cgroup/box/main"] = state }
            let group = ControlGroup(kernel)
            #expect(group.memory.path == Machines.main && group.unified.path == Machines.main && !group.isUncertain)
        }
    }

    @Test(arguments: [(ENOENT, false), (EACCES, false), (EMFILE, true), (EIO, true)])
    func `a membership that cannot be read for now is uncertain`(failure: Int32, isUncertain: Bool) {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.refusals["/proc/self/cgroup"] = failure }
        let group = ControlGroup(kernel)
        #expect(group.isUncertain == isUncertain && group.memory.path == nil && group.unified.path == nil)
    }

    @Test func `version 1 has the memory controller only if the process is in a group of a mounted hierarchy`() {
        let line = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        for (isMember, isMounted) in [(true, false), (false, true)] {
            var files = Machines.version2()
            if isMember { files["/proc/self/cgroup"] = "4:memory:/a\n0::/box/main\n" }
            if isMounted { files["/proc/self/mountinfo"]? += line }
            let group = ControlGroup(ScriptedKernel(files))
            #expect(group.version == .v2 && group.memory.path == Machines.main, "\(isMember), \(isMounted)")
        }
        #expect(ControlGroup(ScriptedKernel(Machines.hybrid())).version == .v1)
    }

    @Test func `a mount without a source is read, and a line that ends before the type is skipped`() {
        let text = "35 31 0:32 / /bare rw - cgroup2  rw\n38 31 0:34 / /short rw shared:1 master:2 -\n"
        #expect(MountTable(Array(text.utf8)).unified == [.init(root: "/", point: "/bare")])
    }

    @Test func `a hierarchy mounted at the root directory has groups below the root directory`() {
        let mount = MountTable.Mount(root: "/", point: "/")
        #expect(mount.place(of: "/a/b") == .directory("/a/b", top: ""))
    }
}

/// Tests of the chain of levels from the own group upwards.
@Suite struct LimitChainTests {
    private func chain(_ kernel: ScriptedKernel) -> LimitChain {
        LimitChain(ControlGroup(kernel), kernel, TextBuffer())
    }

    private func directories(_ chain: LimitChain) -> [String] {
        var found: [String] = [], next = chain.first
        while let level = next {
            found.append(level.directory)
            next = level.parent
        }
        return found
    }

    @Test func `a hidden group has no levels, for certain`() {
        let hidden = chain(ScriptedKernel([:]))
        #expect(directories(hidden) == [] && !hidden.isUncertain)
        #expect(hidden.readLimits(total: KernelText.unlimited) && hidden.tightest?.directory == nil)
    }

    @Test func `the levels end at the mount point`() {
        var files = Machines.version2()
        files.merge(Machines.group("/sys/fs", max: "1048576")) { $1 }
        let visible = chain(ScriptedKernel(files))
        #expect(directories(visible) == [Machines.main, Machines.box] && !visible.isUncertain)
    }

    @Test(arguments: [(ENOENT, false), (EACCES, false), (EMFILE, true), (EIO, true)])
    func `a level that cannot be opened for now makes the chain uncertain`(failure: Int32, isUncertain: Bool) {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.refusals[Machines.box + "/memory.max"] = failure }
        let short = chain(kernel)
        #expect(directories(short) == [Machines.main] && short.isUncertain == isUncertain)
    }

    @Test(arguments: [
        (Machines.box, "cpu memory\n", true), (Machines.box, "cpu\n", false), ("/sys/fs/cgroup", "memory\n", false),
    ])
    func `a level below the top makes the chain uncertain while the memory controller is being turned on`(
        directory: String, controllers: String, isUncertain: Bool
    ) {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit {
            $0.files[directory + "/memory.max"] = nil
            $0.files[directory + "/cgroup.controllers"] = controllers
        }
        let chain = chain(kernel)
        #expect(chain.isUncertain == isUncertain && !chain.hasNewLevel())
    }

    @Test func `of equal limits the own group's is the tightest, and a removed group is noticed`() {
        let kernel = ScriptedKernel(Machines.version2(max: "209715200", parentMax: "209715200"))
        let whole = chain(kernel)
        #expect(whole.readLimits(total: KernelText.unlimited) && whole.failure == nil)
        #expect(whole.tightest?.directory == Machines.main)
        kernel.edit { $0.files[Machines.box + "/memory.max"] = "209715199\n" }
        #expect(whole.readLimits(total: KernelText.unlimited))
        #expect(whole.tightest?.directory == Machines.box)
        kernel.edit { $0.files[Machines.box + "/memory.max"] = nil }
        #expect(!whole.readLimits(total: KernelText.unlimited))
        #expect(whole.failure?.hasPrefix(Machines.box + "/memory.max: ") == true)
    }
}
