import Glibc
import Plimsoll
import Testing

@testable import PlimsollLinux

/// A directory tree that stands for the root of a machine, on a real file system.
final class Fixture {
    let root: String

    init(_ files: [String: String]) {
        var template = Array("/tmp/plimsoll-fixture-XXXXXX".utf8CString)
        root = template.withUnsafeMutableBufferPointer { String(cString: mkdtemp($0.baseAddress!)) }
        for (path, text) in files { write(path, text) }
    }

    deinit { Self.remove(root) }

    func write(_ path: String, _ text: String) {
        var directory = root
        for part in path.split(separator: "/").dropLast() {
            directory += "/\(part)"
            mkdir(directory, 0o755)
        }
        let file = fopen(root + path, "w")
        fputs(text, file)
        fclose(file)
    }

    private static func remove(_ path: String) {
        if let directory = opendir(path) {
            while let entry = readdir(directory) {
                let name = withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                }
                if name != ".", name != ".." { Self.remove("\(path)/\(name)") }
            }
            closedir(directory)
        }
        Glibc.remove(path)
    }
}

/// Tests of each row of the table of places in which a service may run, as a tree of files: the found values, and the
/// reasons for the missing ones.
@Suite struct GroupFixtureTests {
    /// Returns a source on those files, in which this process is listed under its own number.
    static func source(_ files: [String: String], without missing: [String] = []) throws -> (
        source: LinuxPressureSource, reading: PressureReading, fixture: Fixture
    ) {
        var files = files
        for name in files.keys where name.hasSuffix("cgroup.procs") { files[name] = files[name]!.replacing("42", with: "\(getpid())") }
        for name in missing { files[name] = nil }
        let fixture = Fixture(files)
        let source = LinuxPressureSource(kernel: HostKernel(root: fixture.root))
        return (source, try source.read(at: .zero), fixture)
    }

    @Test func `C14 the capabilities distinguish a host with a freezer from one where the process can only pause`() throws {
        let (plain, _, first) = try Self.source(Machines.version2())
        #expect(plain.capabilities["freezer"]?.isLive == false)
        #expect(plain.capabilities["freezer"]?.detail.contains("the process pauses itself") == true)
        var files = Machines.version2()
        let own = try #require(
            files.keys.first { $0.hasSuffix("/memory.current") && $0.contains("main") } ?? files.keys.first { $0.hasSuffix("/memory.current") })
        files[own.replacing("memory.current", with: "cgroup.freeze")] = "0\n"
        let (frozen, _, second) = try Self.source(files)
        #expect(frozen.capabilities["freezer"]?.isLive == true, "\(frozen.capabilities)")
        withExtendedLifetime((first, second)) {}
    }

    @Test func `a version 2 group shows the group's own limit`() throws {
        let (source, reading, fixture) = try Self.source(Machines.version2())
        #expect(reading.limit == .mebibytes(512))
        #expect(reading.boundary == .maximum)
        #expect(reading.usage == .mebibytes(100))
        #expect(reading.available == .mebibytes(412))
        #expect(reading.stall == .init(some: .milliseconds(1), full: .microseconds(500)))
        #expect(source.capabilities.support == .ownGroup)
        #expect(source.capabilities["limit"]?.detail.contains("/box/main/memory.max") == true)
        #expect(source.footprint().usage == .mebibytes(100))
        withExtendedLifetime(fixture) {}
    }

    @Test func `T16 K18 a tighter parent bounds, and the parent's usage counts, with the neighbours included`() throws {
        let (source, reading, fixture) = try Self.source(Machines.version2(max: "209715200", parentMax: "157286400", parentHigh: "146800640"))
        #expect(reading.limit == .mebibytes(140))
        #expect(reading.boundary == .high)
        #expect(reading.usage == .mebibytes(120))
        #expect(reading.available == .mebibytes(20))
        #expect(source.capabilities["limit"]?.detail.contains("/box/memory.high") == true)
        withExtendedLifetime(fixture) {}
    }

    @Test func `the level with the least room decides the available memory, even if another level has the smaller limit`() throws {
        var files = Machines.version2(max: "209715200", parentMax: "1073741824")
        files[Machines.box + "/memory.current"] = "\(1000 * Machines.mib)\n"
        let (_, reading, fixture) = try Self.source(files)
        #expect(reading.limit == .mebibytes(200))
        #expect(reading.usage == .mebibytes(100))
        #expect(reading.available == .mebibytes(24))
        withExtendedLifetime(fixture) {}
    }

    @Test func `a namespace with a separate mount shows the container's limit`() throws {
        var files = Machines.processFiles
        files["/proc/self/cgroup"] = "0::/\n"
        files["/proc/self/mountinfo"] = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
        files.merge(Machines.group("/sys/fs/cgroup", max: "268435456")) { $1 }
        let (_, reading, fixture) = try Self.source(files)
        #expect(reading.limit == .mebibytes(256))
        withExtendedLifetime(fixture) {}
    }

    @Test func `a namespace with the old mount is hidden, the machine serves, and the reason names the mount`() throws {
        var files = Machines.processFiles
        files["/proc/self/cgroup"] = "0::/\n"
        files["/proc/self/mountinfo"] = "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
        files["/sys/fs/cgroup/memory.pressure"] = "some avg10=0.00 avg60=0.00 avg300=0.00 total=999999\n"
        files["/sys/fs/cgroup/memory.reclaim"] = ""
        let (source, reading, fixture) = try Self.source(files)
        #expect(reading.boundary == .machine)
        #expect(reading.limit == .kibibytes(24_684_096))
        #expect(reading.stall?.some == .milliseconds(1), "stall of the machine, not of a foreign group")
        #expect(source.capabilities["limit"]?.detail.contains("/../..") == true)
        #expect(source.capabilities["limit"]?.remedy != nil)
        #expect(source.capabilities.support == .machine)
        withExtendedLifetime(fixture) {}
    }

    @Test func `a group moved outside the namespace is hidden`() throws {
        var files = Machines.version2()
        files["/proc/self/cgroup"] = "0::/../../elsewhere\n"
        let (source, reading, fixture) = try Self.source(files)
        #expect(reading.boundary == .machine)
        #expect(source.capabilities["limit"]?.detail.contains("outside its cgroup namespace") == true)
        withExtendedLifetime(fixture) {}
    }

    @Test func `a directory that does not list this process does not count as the own group`() throws {
        var files = Machines.version2()
        files[Machines.main + "/cgroup.procs"] = "1\n77\n"
        let (source, reading, fixture) = try Self.source(files)
        #expect(reading.boundary == .machine)
        #expect(source.capabilities["limit"]?.detail.contains("does not list this process") == true)
        withExtendedLifetime(fixture) {}
    }

    @Test func `with psi off, a reading has no stall, and all other values`() throws {
        let missing = [Machines.main, Machines.box, "/sys/fs/cgroup"].map { $0 + "/memory.pressure" } + ["/proc/pressure/memory"]
        let (source, reading, fixture) = try Self.source(Machines.version2(), without: missing)
        #expect(reading.limit == .mebibytes(512))
        #expect(reading.stall == nil)
        #expect(source.capabilities["stall"]?.isLive == false)
        #expect(source.capabilities["stall"]?.remedy?.contains("psi=1") == true)
        #expect(source.capabilities["stall trigger"]?.isLive == false)
        withExtendedLifetime(fixture) {}
    }

    @Test func `a group without stall gives the machine's stall, and the capabilities report the source`() throws {
        let (source, reading, fixture) = try Self.source(Machines.version2(), without: [Machines.main + "/memory.pressure"])
        #expect(reading.stall != nil)
        #expect(source.capabilities["stall"]?.detail.contains("the machine's") == true)
        withExtendedLifetime(fixture) {}
    }

    @Test(arguments: [EMFILE, ENOMEM])
    func `stall of the limiting group that cannot be read for now is read within ten seconds`(failure: Int32) throws {
        let kernel = ScriptedKernel(Machines.version2(parentMax: "209715200")), stall = Machines.box + "/memory.pressure"
        kernel.edit { $0.refusals[stall] = failure }
        let driver = SourceDriver(kernel)
        #expect(driver.source.capabilities["stall"]?.detail.hasPrefix(StallWatch.machinePath) == true)
        kernel.edit { $0.refusals = [:] }
        #expect(try driver.read(after: .seconds(10)).stall != nil)
        #expect(driver.source.capabilities["stall"]?.detail == stall)
    }

    @Test func `T19 K17 a hybrid host gives memory from version 1 and stall from version 2`() throws {
        let (source, reading, fixture) = try Self.source(Machines.hybrid())
        #expect(reading.limit == .mebibytes(512))
        #expect(reading.usage == .mebibytes(100))
        #expect(reading.stall != nil)
        #expect(reading.events == .init())
        #expect(source.capabilities["stall"]?.detail == "/sys/fs/cgroup/unified/memory.pressure")
        let brake = source.capabilities["throttle"]
        #expect(brake?.detail == "cgroup version 1 has no memory.high" && brake?.remedy?.contains("version 2") == true)
        withExtendedLifetime(fixture) {}
    }

    @Test func `version 1 in a container takes the bind mount for the group`() throws {
        var files = Machines.processFiles
        files["/proc/self/cgroup"] = "4:memory:/docker/ab\n"
        files["/proc/self/mountinfo"] = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        for (name, text) in ["limit_in_bytes": "134217728\n", "usage_in_bytes": "1048576\n", "stat": Machines.statVersion1()] {
            files["/sys/fs/cgroup/memory/memory.\(name)"] = text
        }
        let (_, reading, fixture) = try Self.source(files)
        #expect(reading.limit == .mebibytes(128))
        withExtendedLifetime(fixture) {}
    }

    @Test func `a parent that leaves children out does not bound them`() throws {
        var files = Machines.hybrid(parentLimit: "209715200")
        #expect(try Self.source(files).reading.limit == .mebibytes(200))
        files["/sys/fs/cgroup/memory/a/memory.use_hierarchy"] = "0\n"
        #expect(try Self.source(files).reading.limit == .mebibytes(512))
    }

    @Test func `K18 a limit above the machine's memory counts as no limit`() throws {
        let (source, reading, fixture) = try Self.source(Machines.version2(max: "1099511627776"))
        #expect(reading.boundary == .machine)
        #expect(source.capabilities["limit"]?.detail.contains("no group has a limit") == true)
        withExtendedLifetime(fixture) {}
    }

    @Test func `a group without the controller uses the first ancestor with the controller`() throws {
        let files = Machines.version2(parentMax: "209715200").filter {
            !($0.key.hasPrefix(Machines.main + "/memory.") && !$0.key.hasSuffix("pressure"))
        }
        let (_, reading, fixture) = try Self.source(files)
        #expect(reading.limit == .mebibytes(200))
        withExtendedLifetime(fixture) {}
    }

    @Test func `T15 the machine's own shortage shows despite a group's limit`() throws {
        var files = Machines.version2()
        files["/proc/meminfo"] = "MemTotal: 24684096 kB\nMemFree: 1 kB\nMemAvailable: 51200 kB\n"
        let (_, reading, fixture) = try Self.source(files)
        #expect(reading.limit == .mebibytes(512))
        #expect(reading.available == .mebibytes(50))
        withExtendedLifetime(fixture) {}
    }

    @Test func `a host without cgroups gives the machine's memory`() throws {
        let (source, reading, fixture) = try Self.source(Machines.processFiles)
        #expect(reading.boundary == .machine)
        #expect(source.capabilities.support == .machine)
        #expect(source.capabilities["limit"]?.detail.contains("/proc/self/cgroup") == true)
        withExtendedLifetime(fixture) {}
    }

    @Test func `a host without any file gives an error, dead capabilities with reasons, and no trap`() {
        let fixture = Fixture([:])
        let source = LinuxPressureSource(kernel: HostKernel(root: fixture.root))
        #expect(throws: PressureSourceError.self) { try source.read(at: .zero) }
        #expect(source.capabilities.support == .inert)
        #expect(source.capabilities.signals.allSatisfy { !$0.isLive && !$0.detail.isEmpty })
        #expect(source.footprint() == Footprint())
    }
}
