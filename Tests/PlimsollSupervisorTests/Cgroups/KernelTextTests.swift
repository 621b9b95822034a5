import Glibc
import Plimsoll
import PlimsollLinux
import Testing

@testable import PlimsollSupervisor

/// The kernel's texts, both real ones and ones forged by an attacker.
@Suite struct KernelTextTests {
    @Test(arguments: ["sh", ") R 1 (", "a\nb) Z 9 9 9", "((((", "))))", " ) ( ", ""])
    func `K41 a process's name may hold any characters`(name: String) throws {
        let text = "4242 (\(name)) S 17 4242 4200 34816 4242 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3\n"
        let stat = try #require(ProcessStat(Array(text.utf8)))
        #expect(stat.pid == 4242 && stat.state == UInt8(ascii: "S") && stat.parent == 17 && stat.session == 4200 && stat.started == 98765)
    }

    @Test(arguments: ["", "1", "1 (a", "1 (a)", "1 (a) S", "1 a) S 1 1 1", "x (a) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", ")("])
    func `a malformed line of stat is refused`(text: String) { #expect(ProcessStat(Array(text.utf8)) == nil) }

    @Test func `the record of the own process is read`() throws {
        let stat = try #require(ProcessTable.stat(of: getpid()))
        #expect(stat.pid == getpid() && stat.parent == getppid() && !stat.isOver)
    }

    @Test func `a tree has children, grandchildren and reparented processes of the leader's session, and no strangers`() {
        func process(_ pid: Int32, parent: Int32, session: Int32) -> ProcessStat {
            ProcessStat(Array("\(pid) (x) S \(parent) 1 \(session) 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5".utf8))!
        }
        let all = [
            process(1, parent: 0, session: 1), process(10, parent: 1, session: 10), process(11, parent: 10, session: 10),
            process(12, parent: 11, session: 12), process(13, parent: 1, session: 10), process(20, parent: 1, session: 1),
        ]
        #expect(ProcessTable.tree(of: [10], among: all) == [10, 11, 12, 13])
        #expect(ProcessTable.tree(of: [99], among: all) == [])
    }

    @Test func `K38 another process with an ended leader's pid is no leader, and the leader's session stays`() {
        let other = ProcessStat(Array("10 (x) S 1 1 10 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5".utf8))!
        let member = ProcessStat(Array("13 (x) S 1 1 10 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4".utf8))!
        func pids(_ started: UInt64?, _ processes: ProcessStat...) -> Set<Int32> {
            ProcessTable.pids(of: [ProcessTable.Leader(pid: 10, started: started)], among: processes)
        }
        #expect(pids(5, other) == [10] && pids(3, other).isEmpty && pids(3, other, member).isEmpty)
        #expect(pids(3, member) == [10] && ProcessTable.tree(of: pids(3, member), among: [member]) == [13])
        // Without a start time the process counts as the leader: a unit is rather kept than lost.
        #expect(pids(nil, other) == [10])
    }

    @Test func `K38 pids are taken once, and pids of other namespaces not at all`() {
        #expect(GroupText.pids(Array("7\n7\n0\n12\n-3\nx\n99999999999\n".utf8)) == [7, 12])
        #expect(GroupText.pids([]) == [])
    }

    @Test(arguments: [("4096\n", 4096), ("max\n", nil), ("", nil), ("9223372036854771712\n", 9_223_372_036_854_771_712), ("-1", -1)])
    func `only a text of exactly one number is read`(text: String, number: Int?) { #expect(GroupText.number(Array(text.utf8)) == number) }

    @Test func `a number follows a key, and not a longer key with the same end`() {
        let text = Array("total_swap 5\nswap 7\nfrozen 1\nbad\nswap x y\n".utf8)
        #expect(GroupText.number(of: "swap", in: text) == 7 && GroupText.number(of: "frozen", in: text) == 1)
        #expect(GroupText.number(of: "bad", in: text) == nil)
    }

    @Test func `C48 the lock table lists locks and holders, and no process that waits`() {
        let table = LockTable(
            Array(
                """
                1: POSIX  ADVISORY  WRITE 1234 08:01:131 0 EOF
                1: -> POSIX  ADVISORY  WRITE 99 08:01:131 0 EOF
                2: FLOCK  ADVISORY  READ  77 00:2d:9 0 EOF
                3: OFDLCK ADVISORY  WRITE -1 08:01:5 0 EOF
                4: LEASE  ACTIVE    READ  55 08:01:6 0 EOF
                5: POSIX  ADVISORY  WRITE 0 08:01:7 0 EOF
                9: -> POSIX  ADVISORY  WRITE 98 08:01:131 0 EOF
                nonsense
                6: POSIX
                7: POSIX ADVISORY WRITE 5x 08:01:7 0 EOF
                : POSIX ADVISORY WRITE 5 1 0 EOF

                """.utf8))
        #expect(table.locks.map(\.pid) == [1234, 77, -1, 55])
        #expect(table.held(by: [77, 99, 98]).map(\.kind) == ["FLOCK"])
        #expect(LockTable([]).locks.isEmpty)
    }

    @Test func `C48 a lock of an open file is found by the file`() {
        #expect(LockTable.isLocked(Array("pos:\t0\nflags:\t02100002\nlock:\t1: OFDLCK ADVISORY WRITE -1 08:01:5 0 EOF\n".utf8)))
        #expect(!LockTable.isLocked(Array("pos:\t0\nflags:\t0\nmnt_id:\t9\n".utf8)))
    }

    @Test func `T34 shared pages count once`() {
        #expect(ProcessMemoryUse.proportional(Array("55 - ff [rollup]\nRss:   900 kB\nPss:   300 kB\nPss_Dirty: 1 kB\n".utf8)) == .kibibytes(300))
        #expect(ProcessMemoryUse.proportional(Array("Rss: 1 kB\n".utf8)) == nil)
    }

    @Test(arguments: [("web", true), ("9-a_b.c", true), ("", false), ("..", false), ("-a", false), ("a/b", false), ("ä", false), ("a b", false)])
    func `a unit's name becomes the name of a directory`(name: String, isName: Bool) { #expect(UnitValues.isUnitName(name) == isName) }

    @Test func `a name has at most 64 letters`() {
        #expect(UnitValues.isUnitName(String(repeating: "a", count: 64)) && !UnitValues.isUnitName(String(repeating: "a", count: 65)))
    }

    @Test func `an error names the action, the object, the reason and the remedy`() {
        #expect(
            "\(GroupError(.freeze, "/sys/fs/cgroup/a", .supervisors))"
                == "cannot freeze /sys/fs/cgroup/a: the supervisor is in the group; "
                + "name a group of the unit alone, or give the unit another name")
        let refused = "\(GroupError(.make, "/a/b", .kernel(EACCES)))"
        #expect(refused.hasSuffix("run the supervisor as root or in a delegated group (Delegate=yes in its unit)"))
        #expect("\(GroupError(.reclaim, "/a", .runs))" == "cannot reclaim memory of /a: the processes run; suspend the unit first")
    }

    @Test func `hierarchies of version 1 are found by controller`() {
        let groups = Array("5:cpu,cpuacct:/a\n4:memory:/m\n3:freezer:/f\n0::/u\n".utf8)
        let mounts = Array("33 1 0:3 / /c rw - cgroup cgroup rw,cpu,cpuacct\n34 1 0:4 / /z rw - cgroup cgroup rw,freezer\n".utf8)
        #expect(Membership(groups, controller: "cpu").memory == "/a" && Membership(groups, controller: "freezer").memory == "/f")
        #expect(MountTable(mounts, controller: "cpu").memory.map(\.point) == ["/c"] && MountTable(mounts).memory.isEmpty)
    }
}
