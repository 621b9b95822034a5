import Plimsoll
import Testing

@testable import PlimsollLinux

/// Tests of the parsers of the kernel's text, with golden and broken samples. `span` arguments are made from arrays, as
/// the reader makes them from its buffer.
@Suite struct ParserTests {
    static func parse<Value>(_ text: String, _ parser: (Span<UInt8>) -> Value?) -> Value? {
        let bytes = Array(text.utf8)
        return parser(bytes.span)
    }

    @Test(arguments: [
        ("0\n", 0), ("536870912\n", 536_870_912), ("1", 1), ("99999999999999999999999\n", Int.max), ("18446744073709551615\n", Int.max),
    ])
    func `a number is parsed, and too large numbers saturate`(text: String, expected: Int) { #expect(Self.parse(text, KernelText.bytes) == expected) }

    @Test(arguments: ["", "\n", "max\n", "-1\n", "12 kB\n", "12x\n", " 12\n", "0x10\n"])
    func `text other than one number is refused`(text: String) { #expect(Self.parse(text, KernelText.bytes) == nil) }

    @Test(arguments: [("max\n", Int.max), ("max", Int.max), ("9223372036854771712\n", Int.max), ("9223372036854775807\n", Int.max), ("4096\n", 4096)])
    func `T17 K18 max, or version 1's huge number, counts as no limit`(text: String, expected: Int) {
        #expect(Self.parse(text, KernelText.limit) == expected)
    }

    @Test(arguments: ["", "maximum\n", "ma", "m\n", "max 1\n"]) func `unknown forms of limits are refused`(text: String) {
        #expect(Self.parse(text, KernelText.limit) == nil)
    }

    @Test func `T14 K21 tmpfs is never reclaimable, and page cache of both lists is`() {
        let mib = Machines.mib
        let text = Machines.stat(inactiveFile: 10 * mib, activeFile: 30 * mib, shmem: 16 * mib, dirty: 3 * mib, writeback: 1 * mib, slab: 4 * mib)
        let stat = Self.parse(text) { MemoryStat($0, isVersion1: false) }
        #expect(stat?.reclaimable == 38 * mib)
        #expect(stat?.inactiveFile == 10 * mib)
    }

    @Test func `pages given up with MADV_FREE count as free although anonymous`() {
        // 255 MiB are marked: these pages move from inactive_anon to inactive_file, and anon stays.
        let text = "anon 268435456\nfile 0\nshmem 0\nfile_dirty 0\ninactive_anon 0\nactive_anon 0\ninactive_file 267386880\nactive_file 0\n"
        #expect(Self.parse(text) { MemoryStat($0, isVersion1: false) }?.reclaimable == 267_386_880)
    }

    @Test func `lazily freed pages are counted in pages where the kernel counts them`() {
        #expect(Self.parse(Machines.stat(lazyFreed: 4711)) { MemoryStat($0, isVersion1: false) }?.lazyFreedPages == 4711)
        #expect(Self.parse(Machines.stat()) { MemoryStat($0, isVersion1: false) }?.lazyFreedPages == nil)
        #expect(Self.parse(Machines.statVersion1() + "pglazyfreed 5\n") { MemoryStat($0, isVersion1: true) }?.lazyFreedPages == nil)
        let idle = Self.parse(Machines.stat(inactiveFile: 50, activeFile: 10, dirty: 25)) { MemoryStat($0, isVersion1: false) }
        #expect(idle?.idleFile == 35, "dirty pages are not idle")
    }

    @Test func `version 1 is read from the recursive lines`() {
        let stat = Self.parse(Machines.statVersion1(inactiveFile: 880_640, activeFile: 1_114_112, dirty: 20_480)) { MemoryStat($0, isVersion1: true) }
        #expect(stat?.reclaimable == 880_640 + 1_114_112 - 20_480)
    }

    @Test(arguments: ["", "inactive_file 1\n", "active_file 1\n", "inactive_file x\nactive_file 2\n", "Inactive_file 1\nactive_file 1\n"])
    func `a stat without both file lists is refused`(text: String) { #expect(Self.parse(text) { MemoryStat($0, isVersion1: false) } == nil) }

    @Test func `dirty pages beyond the cache leave nothing reclaimable, and exabytes do not overflow`() {
        let dirty = Self.parse("inactive_file 1\nactive_file 1\nfile_dirty 9\n") { MemoryStat($0, isVersion1: false) }
        #expect(dirty?.reclaimable == 0)
        let huge = "inactive_file 99999999999999999999\nactive_file 99999999999999999999\nslab_reclaimable 99999999999999999999\n"
        #expect(Self.parse(huge) { MemoryStat($0, isVersion1: false) } != nil)
    }

    @Test func `meminfo is read in kibibytes, and unknown lines are ignored`() {
        let memory = Self.parse(Machines.meminfo) { MachineMemory($0) }
        #expect(memory?.total == 24_684_096 * 1024)
        #expect(memory?.available == 24_334_000 * 1024)
    }

    @Test func `MemFree is used without MemAvailable, and a total is required`() {
        let lists = Self.parse("MemTotal: 80 kB\nMemFree: 3 kB\nMemAvailable: 30 kB\nInactive: 9 kB\nInactive(file): 7 kB\n") { MachineMemory($0) }
        #expect(lists?.free == 3072 && lists?.inactiveFile == 7168)
        #expect(Self.parse("MemTotal: 8 kB\nMemFree: 3 kB\n") { MachineMemory($0) }?.available == 3072)
        #expect(Self.parse("MemFree: 3 kB\n") { MachineMemory($0) } == nil)
        #expect(Self.parse("MemTotal: 8 MB\nMemFree: 3 kB\n") { MachineMemory($0) } == nil)
        #expect(Self.parse("MemTotal: 8 kB\nMemFree: 3 kB\nMemAvailable: 99 kB\n") { MachineMemory($0) }?.available == 8192)
    }

    @Test func `events of every kernel are read`() {
        typealias Counts = PressureReading.EventCounts
        let old = Self.parse("low 0\nhigh 1152\nmax 79\noom 2\noom_kill 1\n") { Counts($0) }
        #expect(old == Counts(high: 1152, max: 79, oom: 2, oomKill: 1))
        let new = Self.parse("low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\nsock_throttled 6\n") { Counts($0) }
        #expect(new == Counts(high: 1, max: 2, oom: 3, oomKill: 4))
        #expect(Self.parse("low 0\nhigh 1\n") { Counts($0) } == nil)
        #expect(Self.parse("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n") { Counts.oomKills($0) } == 7)
    }

    @Test func `stall totals are microseconds`() {
        let totals = Self.parse(Machines.stall) { PressureReading.StallTotals($0) }
        #expect(totals == .init(some: .milliseconds(1), full: .microseconds(500)))
        #expect(Self.parse("some avg10=0.00 total=7 new=3\n") { PressureReading.StallTotals($0) }?.some == .microseconds(7))
    }

    @Test(arguments: ["", "full avg10=1 total=2", "some avg10=nan total=", "some avg10=1", "some", "some total=1x\n", "some  subtotal=1\n"])
    func `malformed stall lines are refused`(text: String) { #expect(Self.parse(text) { PressureReading.StallTotals($0) } == nil) }

    @Test func `resident pages are the second number`() {
        #expect(Self.parse(Machines.statm, ProcessMemory.residentPages) == 2402)
        #expect(Self.parse("6612", ProcessMemory.residentPages) == nil)
    }

    @Test func `K1 a trigger is read back with and without a terminator`() {
        #expect(Self.parse("some 200000 2000000\0") { StallThreshold($0) } == StallThreshold(stall: 200_000, window: 2_000_000))
        #expect(Self.parse("full 1 2") { StallThreshold($0) }?.isFull == true)
        #expect(Self.parse("some 200000") { StallThreshold($0) } == nil)
    }

    @Test func `K16 membership is found on any line, and paths may hold colons`() {
        let hybrid = Membership(Array("9:name=systemd:/\n4:cpu,memory:/a:b/c\n0::/x (deleted)\nrubbish\n".utf8))
        #expect(hybrid.memory == "/a:b/c")
        #expect(hybrid.unified == "/x")
        #expect(Membership([]).unified == nil)
        #expect(Membership(Array("0::relative\n4:memoryx:/\n".utf8)) == Membership([]))
    }

    @Test func `K16 mounts have any number of tags, and escaped spaces`() {
        let text = """
            30 23 0:26 / /sys/fs/cgroup rw shared:4 master:2 propagate_from:3 - cgroup2 cgroup2 rw,nsdelegate
            35 31 0:32 /docker/ab /mnt/my\\040groups\\011x rw - cgroup cgroup rw,memory
            36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
            37 31 0:34 / /weird\\9 rw - cgroup2 none rw
            38 31 0:34 / /notype rw -
            """
        let table = MountTable(Array(text.utf8))
        #expect(table.unified.map(\.point) == ["/weird\\9", "/sys/fs/cgroup"])
        #expect(table.memory == [.init(root: "/docker/ab", point: "/mnt/my groups\tx")])
    }

    @Test(arguments: [
        ("/a/b", "/", "/m/a/b"), ("/", "/", "/m"), ("/docker/ab", "/docker/ab", "/m"), ("/docker/ab/c", "/docker/ab", "/m/c"),
        ("/a//b/", "/a", "/m/b"),
    ])
    func `a group is found below the root of the mount`(path: String, root: String, directory: String) {
        #expect(MountTable.Mount(root: root, point: "/m").place(of: path) == .directory(directory, top: "/m"))
    }

    @Test(arguments: [("/docker/abc", "/docker/ab"), ("/", "/../.."), ("/../..", "/"), ("/a", "/b")])
    func `a group outside the mount is hidden, by path components, not prefixes`(path: String, root: String) {
        #expect(MountTable.Mount(root: root, point: "/m").place(of: path).path == nil)
    }

    @Test(arguments: [
        ("c29tZSAyMDAwMDAgMjAwMDAwMAA=", "some 200000 2000000\0"), ("", ""), ("YQ==", "a"), ("YWI=", "ab"), ("YWJj", "abc"),
    ])
    func `base64 is read`(text: String, expected: String) { #expect(ServiceManagerWatch.decode(text) == Array(expected.utf8)) }

    @Test(arguments: ["a", "ab", "abc", "a===", "=", "YQ=", "YQ==YQ==", "Y!==", "YWJj="])
    func `bad base64 is refused`(text: String) { #expect(ServiceManagerWatch.decode(text) == nil) }

    @Test(arguments: [(0, "0"), (7, "7"), (10, "10"), (536_870_912, "536870912"), (Int.max, "9223372036854775807"), (-5, "0")])
    func `numbers are written as text`(number: Int, expected: String) {
        let kernel = ScriptedKernel(["/f": ""])
        let file = kernel.open("/f", .writing)
        var text = TextWriter()
        text.add(number)
        #expect(text.write(to: file, kernel) == nil)
        #expect(kernel.ask { $0.written.map(\.text) } == [expected])
    }
}
