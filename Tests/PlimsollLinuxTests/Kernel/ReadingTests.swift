import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle
@testable import PlimsollLinux

/// Tests of the parts of a reading, and of how often each file is read for a reading.
@Suite struct ReadingTests {
    let mib = Machines.mib

    @Test func `K21 clean page cache is available, dirty pages and tmpfs are not`() throws {
        let driver = SourceDriver(Machines.version2())
        driver.set(Machines.main + "/memory.current", "\(480 * mib)\n")
        driver.set(
            Machines.main + "/memory.stat",
            Machines.stat(inactiveFile: 150 * mib, activeFile: 70 * mib, shmem: 40 * mib, dirty: 20 * mib, slab: 10 * mib))
        let reading = try driver.read()
        #expect(reading.available == .mebibytes(32 + 200 + 5))
        #expect(reading.workingSet == .mebibytes(480 - 150))
        #expect(reading.pinned == .mebibytes(512 - 237))
    }

    @Test func `idle memory is reported for the level with least, for the machine, and with the kernel's lazy frees`() throws {
        let driver = SourceDriver(Machines.version2(parentMax: "\(200 * mib)"))
        driver.set(Machines.main + "/memory.stat", Machines.stat(inactiveFile: 90 * mib, lazyFreed: 3))
        driver.set(Machines.box + "/memory.stat", Machines.stat(inactiveFile: 20 * mib, lazyFreed: 5))
        let reading = try driver.read()
        #expect(reading.idle == .init(total: .mebibytes(200), free: .mebibytes(80), file: .mebibytes(20)))
        #expect(reading.machineIdle?.free == .kibibytes(23_617_804))
        #expect(reading.lazyFreed == .pages(5), "of the level with the tightest limit")
        #expect(try SourceDriver(Machines.hybrid()).read().lazyFreed == nil)
    }

    @Test func `K25 a neighbour's kill under a shared limit is not counted as a kill in the own group`() throws {
        func kills(_ count: Int) -> String { "low 0\nhigh 0\nmax 0\noom 0\noom_kill \(count)\n" }
        let local = Machines.main + "/memory.events.local"
        let driver = SourceDriver(Machines.version2(max: "max", parentMax: "\(256 * mib)").merging([local: kills(2)]) { $1 })
        #expect(try driver.read().ownKills == 2)
        // The limit is the parent's, whose events include those of all groups below.
        driver.set(Machines.box + "/memory.events", kills(7))
        let after = try driver.read(after: .seconds(1))
        #expect(after.events?.oomKill == 7 && after.ownKills == 2)
        driver.set(local, kills(3))
        #expect(try driver.read(after: .seconds(1)).ownKills == 3)
    }

    @Test func `K25 without a count of its own, the kills of a group are those of the group and below, not of the limiting parent`() throws {
        // Linux before 5.2.
        var files = Machines.version2(max: "max", parentMax: "\(256 * mib)")
        files[Machines.main + "/memory.events"] = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\n"
        files[Machines.box + "/memory.events"] = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 7\n"
        let old = try SourceDriver(files).read()
        #expect(old.events?.oomKill == 7 && old.ownKills == 2)
        // Version 1 counts a kill in the killed process's own group alone, so the parent knows nothing of it.
        files = Machines.hybrid(limit: "9223372036854771712", parentLimit: "\(256 * mib)")
        files[Machines.v1Group + "/memory.oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"
        let version1 = try SourceDriver(files).read()
        #expect(version1.limit == .mebibytes(256) && version1.events?.oomKill == 0 && version1.ownKills == 5)
        #expect(try SourceDriver(Machines.processFiles).read().ownKills == nil)
    }

    @Test func `T18 a group filled with volatile pages shows no level, and the event sources do not promise to notify`() throws {
        let driver = SourceDriver(Machines.hybrid())
        var assessor = PressureAssessor()
        for step in 0..<200 {
            driver.set(Machines.v1Group + "/memory.usage_in_bytes", "\((480 + step % 16) * mib)\n")
            driver.set(Machines.v1Group + "/memory.stat", Machines.statVersion1(inactiveFile: 300 * mib))
            let reading = try driver.read(after: .milliseconds(50))
            let assessment = assessor.assess(reading)
            #expect(assessment.level == .normal && !driver.source.rings)
            let pace = Pace.interval(
                after: assessment, reading, holds: true, rings: driver.source.rings, turnCost: .microseconds(50), thresholds: .standard)
            #expect(pace > .milliseconds(33), "the loop does not spin: \(pace)")
        }
    }

    @Test func `usage and stat are read separately, and a disagreement gives no negative value`() throws {
        let driver = SourceDriver(Machines.version2())
        driver.set(Machines.main + "/memory.current", "\(10 * mib)\n")
        driver.set(Machines.main + "/memory.stat", Machines.stat(inactiveFile: 50 * mib))
        let reading = try driver.read()
        #expect(reading.available == .mebibytes(512))
        #expect(reading.workingSet == .zero)
    }

    @Test func `a limit lowered below the usage leaves nothing available`() throws {
        let driver = SourceDriver(Machines.version2(max: "\(50 * Machines.mib)"))
        let reading = try driver.read()
        #expect(reading.available == .zero)
        #expect(reading.usage == .mebibytes(100))
    }

    @Test func `K22 memory.stat is read often only where a decision can change, and about once a second far from the limit`() throws {
        let driver = SourceDriver(Machines.version2())
        let stat = Machines.main + "/memory.stat"
        func readsInASecond(_ usage: (Int) -> Int) throws -> Int {
            let before = driver.kernel.ask { $0.reads[stat] ?? 0 }
            for poll in 0..<100 {
                driver.set(Machines.main + "/memory.current", "\(usage(poll))\n")
                _ = try driver.read(after: .milliseconds(10))
            }
            return driver.kernel.ask { $0.reads[stat] ?? 0 } - before
        }
        _ = try driver.read()
        #expect(try readsInASecond { _ in 100 * mib } == 1)
        #expect(try readsInASecond { 400 * mib + $0 * 64 << 10 } <= 11, "close to the limit, and hardly moving")
        #expect(try readsInASecond { 350 * mib + $0 * mib * 3 / 2 } >= 99, "close to the limit, and moving with each poll")
        #expect(try readsInASecond { _ in 512 * mib } == 100, "at the limit, where the kernel reclaims page cache unnoticed")
        #expect((3...5).contains(try readsInASecond { _ in 290 * mib }), "free memory is above the threshold again, but not well above")
        #expect(try readsInASecond { _ in 200 * mib } <= 2)
    }

    @Test func `filling with page cache never looks like growth, with either estimate`() throws {
        let driver = SourceDriver(Machines.version2())
        var assessor = PressureAssessor()
        // 4 MiB of cache every 10 ms, up to the limit: 400 MiB/s of harmless reading. Far from the limit the cache
        // counts once a second.
        for step in 0..<100 {
            let cache = 4 * step * mib
            driver.set(Machines.main + "/memory.current", "\(100 * mib + cache)\n")
            driver.set(Machines.main + "/memory.stat", Machines.stat(inactiveFile: cache))
            let assessment = assessor.assess(try driver.read(after: .milliseconds(10)))
            #expect(assessment.level == .normal, "step \(step): \(assessment)")
        }
    }

    @Test func `available falls and rises with usage, without a jump at the first reading of stat`() throws {
        let driver = SourceDriver(Machines.version2())
        driver.set(Machines.main + "/memory.stat", Machines.stat(inactiveFile: 60 * mib))
        var last: ByteCount?
        for usage in Array(stride(from: 100, to: 510, by: 2)) + Array(stride(from: 510, to: 100, by: -2)) {
            driver.set(Machines.main + "/memory.current", "\(usage * mib)\n")
            let available = try #require(try driver.read(after: .milliseconds(5)).available)
            if let last { #expect(abs((available - last).bytes) <= 2 * mib, "at \(usage) MiB") }
            last = available
        }
    }

    @Test func `K6 the stall file is read once a second at most`() throws {
        let driver = SourceDriver(Machines.version2())
        let path = Machines.main + "/memory.pressure"
        let before = driver.kernel.ask { $0.reads[path] ?? 0 }
        for _ in 0..<1000 { _ = try driver.read(after: .milliseconds(10)) }
        #expect(driver.kernel.ask { $0.reads[path] ?? 0 } - before <= 11)
    }

    @Test func `T18 K18 a limit moved at run time is followed both ways within ten seconds`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        driver.set(Machines.main + "/memory.max", "\(256 * mib)\n")
        #expect(try driver.read(after: .seconds(10)).limit == .mebibytes(256))
        driver.set(Machines.main + "/memory.max", "\(1024 * mib)\n")
        #expect(try driver.read(after: .seconds(10)).limit == .mebibytes(1024))
        driver.set(Machines.main + "/memory.high", "\(700 * mib)\n")
        let braked = try driver.read(after: .seconds(10))
        #expect(braked.limit == .mebibytes(700))
        #expect(braked.boundary == .high)
        #expect(driver.source.capabilities["limit"]?.detail.contains("memory.high") == true)
    }

    @Test func `a limit lowered below the usage is seen at the second next poll`() throws {
        let driver = SourceDriver(Machines.version2())
        driver.set(Machines.main + "/memory.current", "\(600 * mib)\n")
        _ = try driver.read(after: .seconds(1))
        driver.set(Machines.main + "/memory.max", "\(700 * mib)\n")
        _ = try driver.read(after: .seconds(1))
        #expect(try driver.read(after: .milliseconds(1)).limit == .mebibytes(700))
    }

    @Test func `a limit that is set where the memory controller was off is followed within ten seconds`() throws {
        let limited = Machines.version2(max: "\(128 * mib)"), controllers = Machines.main + "/cgroup.controllers"
        var files = limited.filter { !$0.key.hasPrefix(Machines.main + "/memory.") || $0.key.hasSuffix("pressure") }
        files[controllers] = "cpu memory_x pids\n"
        let driver = SourceDriver(files)
        #expect(try driver.read().boundary == .machine)
        driver.kernel.edit { $0.files.merge(limited) { $1 } }
        driver.set(controllers, "cpu pids memory\n")
        let reading = try driver.read(after: .seconds(10))
        #expect(reading.limit == .mebibytes(128) && reading.available == .mebibytes(28) && reading.boundary == .maximum)
    }

    @Test func `a group removed and made again is read again`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        let text = driver.kernel.ask { $0.files[Machines.main + "/memory.current"]! }
        driver.kernel.edit { state in
            // An open file answers ENODEV. The path leads to the new group.
            for (file, path) in state.open where path.hasPrefix(Machines.main) { state.open[file] = "gone" }
        }
        driver.set(Machines.main + "/memory.current", text)
        #expect(try driver.read(after: .seconds(1)).limit == .mebibytes(512))
    }

    @Test func `K19 a process moved to another group is read in the new group`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        driver.kernel.edit { $0.files.merge(Machines.group("/sys/fs/cgroup/other", max: "134217728")) { $1 } }
        driver.set("/proc/self/cgroup", "0::/other\n")
        #expect(try driver.read(after: .seconds(10)).limit == .mebibytes(128))
        #expect(driver.source.footprint().usage == .mebibytes(100))
    }

    @Test func `T18 a group removed for good leaves the machine's memory, and look-ups of the group with growing pauses`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        driver.kernel.edit { state in state.files = state.files.filter { !$0.key.hasPrefix(Machines.box) } }
        let before = driver.kernel.ask { $0.reads["/proc/self/mountinfo"] ?? 0 }
        for _ in 0..<600 { #expect(try driver.read(after: .seconds(1)).boundary == .machine) }
        #expect(driver.kernel.ask { $0.reads["/proc/self/mountinfo"] ?? 0 } - before < 80)
        #expect(driver.source.capabilities.support == .machine)
        driver.kernel.edit { $0.files.merge(Machines.version2()) { $1 } }
        var found = false
        for _ in 0..<120 where !found { found = try driver.read(after: .seconds(1)).boundary == .maximum }
        #expect(found)
    }

    @Test func `the machine's memory is read at each poll when short, and at most twice a second when plentiful`() throws {
        let driver = SourceDriver(Machines.version2())
        func readsInASecond() throws -> Int {
            let before = driver.kernel.ask { $0.reads["/proc/meminfo"] ?? 0 }
            for _ in 0..<200 { _ = try driver.read(after: .milliseconds(5)) }
            return driver.kernel.ask { $0.reads["/proc/meminfo"] ?? 0 } - before
        }
        _ = try driver.read()
        #expect(try readsInASecond() <= 2)
        driver.set("/proc/meminfo", "MemTotal: 24684096 kB\nMemFree: 0 kB\nMemAvailable: 30000 kB\n")
        _ = try driver.read(after: .seconds(2))
        #expect(try readsInASecond() == 200)
    }
}
