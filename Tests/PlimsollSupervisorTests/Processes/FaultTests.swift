import CSystemCallFaults
import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollSupervisor

@Suite(.serialized, .needs(faults_work(), "a sanitizer has these calls for itself")) struct FaultTests {
    /// Takes a unit through life, from the groups to the end.
    private func live(_ root: GroupRoot, _ group: inout UnitGroup?, _ child: inout Child?) throws {
        let made = try root.make("web")
        group = made
        child = try Child.start(.init(["/bin/sleep", "1000"]), in: made)
        _ = (made.charge, made.reclaimable, made.processes, made.isEmpty)
        try made.setLimits(request: nil, limit: .mebibytes(512))
        try made.setWeights(for: .background)
        try made.throttle(true)
        try made.freeze()
        _ = made.isFrozen
        try made.thaw()
        try made.killAll()
    }

    @Test(arguments: [EACCES, ENOENT, EBUSY], [false, true])
    func `T32 K38 with any failing call no process stays frozen, and the error names the object`(number: Int32, isSticky: Bool) throws {
        let root = Workbench.root()
        var failures = 0
        for nth in 1...500 {
            var group: UnitGroup?, child: Child?, problem: (any Error)?
            faults_begin(nth, number, isSticky)
            do { try live(root, &group, &child) } catch { problem = error }
            let wasReached = faults_end()
            if let problem {
                failures += 1
                let name = group?.path ?? root.prefix, text = "\(problem)"
                #expect(problem is GroupError || problem is ChildError, "call \(nth): \(text)")
                #expect(text.contains(name) || text.contains("/bin/sleep") || text.contains("web"), "call \(nth): \(text)")
            }
            // Another supervisor that finds the unit can undo the started steps, as soon as calls work again.
            let left = try root.make("web")
            try left.thaw()
            #expect(left.freezer == .signals || !left.isFrozen, "call \(nth)")
            try left.killAll()
            child?.waitForEnd()
            try left.remove(within: Workbench.limit)
            for parent in root.parents.values { #expect(access("\(parent)/\(root.prefix)-web", F_OK) != 0, "call \(nth)") }
            guard wasReached else {
                #expect(failures > 10, "too few calls failed")
                return
            }
        }
        Issue.record("still failing after 500 calls")
    }

    @Test(arguments: [EMFILE, ENFILE, ENOMEM])
    func `K37 a unit whose locks cannot be read for lack of descriptors or memory counts as holding a lock`(number: Int32) throws {
        let (child, output) = try Workbench.shell("echo ready; exec sleep 1000", in: nil)
        let folder = Fixture.Directory(), names = ["cgroup.procs", "locked"]
        for name in names { close(open("\(folder.path)/\(name)", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)) }
        let file = open("\(folder.path)/locked", O_RDWR | O_CLOEXEC)
        defer {
            child.signal(SIGKILL)
            child.waitForEnd()
            close(file)
            for name in names { unlink("\(folder.path)/\(name)") }
        }
        #expect(output.line() == "ready" && GroupText.write("\(child.pid)\n", to: "\(folder.path)/cgroup.procs") == nil)
        let group = try UnitGroup("web", [GroupDirectory(.unified, folder.path, isOurs: false)], own: OwnGroups())
        // Descriptors are scanned only while the machine has a file lock.
        #expect(flock(file, LOCK_EX | LOCK_NB) == 0 && !LockTable.mayBeHeld(in: group))
        for nth in 1...200 {
            faults_begin(nth, number, true)
            let mayBeHeld = LockTable.mayBeHeld(in: group)
            guard faults_end() else {
                #expect(!mayBeHeld && nth > 10, "too few calls failed")
                return
            }
            #expect(mayBeHeld, "call \(nth)")
        }
        Issue.record("still failing after 200 calls")
    }
}
