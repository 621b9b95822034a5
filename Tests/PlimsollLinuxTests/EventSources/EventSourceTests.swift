import Glibc
import Plimsoll
import PlimsollLifecycle
import Testing

@testable import PlimsollLinux

/// Tests of the events that end a wait, of those that do not, and that no event makes the loop spin.
@Suite struct EventSourceTests {
    let events = Machines.main + "/memory.events"
    let stall = Machines.main + "/memory.pressure"

    @Test func `a wake ends the present or the next wait, once`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        driver.source.wake()
        driver.source.wake()
        #expect(driver.wait() == .zero)
        #expect(driver.wait() == .seconds(1))
    }

    @Test func `K26 K9 a change of memory_events ends the wait, and the counts are read anew`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        #expect(driver.wait() == .seconds(1))
        _ = try driver.read()
        driver.set(events, "low 0\nhigh 0\nmax 5\noom 0\noom_kill 0\n")
        driver.kernel.edit { $0.conditions[events] = Int16(POLLERR | POLLPRI) }
        #expect(driver.wait() == .zero)
        #expect(try driver.read().events?.max == 5)
        let rest = driver.wait()
        #expect(rest > .milliseconds(90) && rest <= .milliseconds(100), "the loop pauses for about 100 ms, and no longer")
        #expect(driver.source.capabilities["limit events"]?.isLive == true)
    }

    @Test func `K24 events that never stop wake the loop ten times a second, each followed by a pause`() throws {
        let driver = SourceDriver(Machines.version2())
        var turns = 0
        _ = try driver.read()
        let start = driver.now
        while driver.now - start < .seconds(60) {
            driver.kernel.edit { $0.conditions[events] = Int16(POLLERR | POLLPRI) }
            driver.wait()
            _ = try driver.read()
            turns += 1
        }
        // Each event wakes the loop, and a pause of a tenth of a second follows: two turns.
        #expect(turns > 60 * 15 && turns <= 60 * 21, "\(turns)")
    }

    @Test func `K5 T12 a first event without growth is ignored, and an event with growth is believed`() {
        var confirmation = StallConfirmation(threshold: .milliseconds(50))
        let totals: [PressureReading.StallTotals?] = [4000, 4020, 4060, 4110, 1, nil].map { (total: Int?) in
            total.map { .init(some: .milliseconds($0)) }
        }
        var believed: [Bool] = []
        for total in totals { believed.append(confirmation.confirms(total)) }
        // Slow stalls do not add up, as the baseline follows the rejected totals. A lower total belongs to a group that
        // was made again (K12).
        #expect(believed == [false, false, false, true, false, false])
    }

    @Test func `K1 K3 the trigger is written with the terminator, and again with two seconds after a refusal of half a second`() throws {
        let privileged = SourceDriver(Machines.version2())
        #expect(privileged.kernel.ask { $0.written.map(\.text) } == ["some 50000 500000\0"])
        #expect(privileged.source.capabilities["stall trigger"]?.detail.contains("50 ms in 500 ms") == true)

        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.writeRefusals[stall] = EINVAL }
        let refused = SourceDriver(kernel)
        #expect(refused.source.capabilities["stall trigger"]?.isLive == false)
        #expect(try refused.read().stall != nil, "the total is still read")
    }

    @Test(arguments: [EACCES, EPERM, EROFS]) func `K20 a trigger without permission is a dead signal with the reason`(number: Int32) throws {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.writeRefusals[stall] = number }
        let driver = SourceDriver(kernel)
        let signal = try #require(driver.source.capabilities["stall trigger"])
        #expect(!signal.isLive)
        #expect(signal.detail.contains(String(cString: strerror(number))))
    }

    @Test func `T18 K9 a trigger that always reports an error is armed again with pauses, never in a spin`() throws {
        let driver = SourceDriver(Machines.version2())
        driver.kernel.edit { $0.conditions[stall] = Int16(POLLERR | POLLPRI) }
        var turns = 0
        _ = try driver.read()
        while driver.now < .seconds(600) {
            driver.wait()
            _ = try driver.read()
            turns += 1
        }
        #expect(turns < 600 + 40)
        #expect(driver.kernel.ask { $0.written.count } < 20)
        driver.kernel.edit { $0.conditions[stall] = nil }
        for _ in 0..<70 { _ = try driver.read(after: .seconds(1)) }
        #expect(driver.source.capabilities["stall trigger"]?.isLive == true)
    }

    @Test(arguments: [Int16(POLLERR), Int16(POLLNVAL), Int16(POLLHUP), Int16(POLLPRI), Int16(POLLIN | POLLERR | POLLHUP)])
    func `T18 no file can make the loop spin, with any permanent condition`(conditions: Int16) throws {
        for files in [Machines.version2(), Machines.hybrid()] {
            let environment = LinuxPressureSource.Environment(watch: "/run/fifo")
            let kernel = ScriptedKernel(files)
            kernel.edit { state in
                state.kinds["/run/fifo"] = .fifo
                for path in Array(state.files.keys) + ["/run/fifo"] { state.conditions[path] = conditions }
            }
            let driver = SourceDriver(kernel, environment: environment)
            var turns = 0
            _ = try driver.read()
            while driver.now < .seconds(120), turns < 100_000 {
                driver.wait()
                // A file with a permanent condition shows that condition after a read, too.
                driver.kernel.edit { $0.conditions[events] = conditions }
                _ = try driver.read()
                turns += 1
            }
            #expect(turns < 120 * 25)
        }
    }

    @Test func `a wake works in a process without free descriptors, and after all descriptors were closed`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        driver.kernel.edit { $0.events = [:] }
        driver.wait()
        driver.wait()
        driver.source.wake()
        #expect(driver.wait() == .zero)
        #expect(driver.wait() > .milliseconds(40))
    }

    @Test func `version 1 thresholds are set at the margins, and move with the limit`() throws {
        let control = Machines.v1Group + "/cgroup.event_control"
        let driver = SourceDriver(Machines.hybrid())
        func usages() -> [String] {
            driver.kernel.ask { $0.written.filter { $0.path == control }.map { String($0.text.split(separator: " ").last!) } }
        }
        #expect(usages() == ["429496730", "483183821", "\(508 * Machines.mib)"], "a fifth, a tenth, a quarter of the 16 MiB kept free")
        _ = try driver.read()
        #expect(driver.source.rings)
        driver.set(Machines.v1Group + "/memory.limit_in_bytes", "\(256 * Machines.mib)\n")
        _ = try driver.read(after: .seconds(10))
        #expect(usages().count == 6)
        #expect(Int(usages()[3])! < 256 * Machines.mib)
        #expect(driver.source.capabilities["usage thresholds"]?.isLive == true)
    }

    @Test func `version 1 thresholds are set again in a group that was made again, and promise nothing before`() throws {
        let control = Machines.v1Group + "/cgroup.event_control"
        let driver = SourceDriver(Machines.hybrid())
        func count() -> Int { driver.kernel.ask { $0.written.count { $0.path == control } } }
        _ = try driver.read()
        #expect(driver.source.rings && count() == 3)
        driver.kernel.remakeGroup(Machines.v1Group)
        // The limit is the same, and the eventfds of the former group are dead.
        #expect(try driver.read(after: .seconds(1)).limit == .mebibytes(512))
        #expect(!driver.source.rings)
        #expect(try driver.read(after: .milliseconds(10)).limit == .mebibytes(512))
        #expect(driver.source.rings && count() == 6)
    }

    @Test func `version 1 thresholds are set again after all descriptors were closed`() throws {
        let control = Machines.v1Group + "/cgroup.event_control"
        let driver = SourceDriver(Machines.hybrid())
        func count() -> Int { driver.kernel.ask { $0.written.count { $0.path == control } } }
        _ = try driver.read()
        #expect(driver.source.rings && count() == 3)
        driver.kernel.edit { $0.events = [:] }
        driver.wait()
        _ = try driver.read()
        #expect(!driver.source.rings && count() == 3)
        for _ in 0..<10 { _ = try driver.read(after: .seconds(1)) }
        #expect(driver.source.rings && count() == 6)
        #expect(driver.source.capabilities["usage thresholds"]?.isLive == true)
    }

    @Test func `a crossed version 1 threshold ends the wait`() throws {
        let driver = SourceDriver(Machines.hybrid())
        _ = try driver.read()
        #expect(driver.wait() == .seconds(1))
        _ = try driver.read()
        // The kernel increments all eventfds but the wakeup's, which was made first.
        driver.kernel.edit { state in
            for event in state.events.keys.sorted().dropFirst() where !state.watches.values.contains(event) { state.events[event] = 1 }
        }
        #expect(driver.wait() == .zero)
        _ = try driver.read()
        let rest = driver.wait()
        #expect(rest > .milliseconds(90) && rest <= .milliseconds(100))
    }

    @Test(arguments: [Machines.version2(), Machines.hybrid()])
    func `K18 a moved limit ends the wait and takes effect at once, both ways`(files: [String: String]) throws {
        let driver = SourceDriver(files)
        let kernel = driver.kernel
        let limit = try #require(try driver.read().limit)
        let path = try #require(kernel.ask { state in state.watches.keys.first { state.files[$0]?.hasPrefix("\(limit.bytes)") == true } })
        for factor in [2, 1, 3] {
            #expect(driver.wait() > .zero)
            kernel.moveLimit(path, to: "\(limit.bytes / 4 * factor)\n")
            #expect(driver.wait() == .zero)
            #expect(try driver.read(after: .milliseconds(20)).limit == .bytes(limit.bytes / 4 * factor))
        }
    }

    @Test func `K18 a moved limit ends the wait in a group that was made again, too`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        driver.kernel.remakeGroup(Machines.main)
        for _ in 0..<2 { _ = try driver.read(after: .seconds(1)) }
        driver.kernel.moveLimit(Machines.main + "/memory.max", to: "268435456\n")
        #expect(driver.wait() == .zero)
        #expect(try driver.read(after: .milliseconds(20)).limit == .mebibytes(256))
    }

    @Test func `limits without a watch are read every second`() throws {
        let kernel = ScriptedKernel(Machines.hybrid())
        kernel.edit { $0.refusesWatches = true }
        let driver = SourceDriver(kernel)
        _ = try driver.read()
        driver.set(Machines.v1Group + "/memory.limit_in_bytes", "\(256 * Machines.mib)\n")
        #expect(try driver.read(after: .seconds(1)).limit == .mebibytes(256))
    }

    @Test func `version 1 thresholds already passed by page cache do not promise to notify`() throws {
        let driver = SourceDriver(Machines.hybrid())
        _ = try driver.read()
        #expect(driver.source.rings)
        driver.set(Machines.v1Group + "/memory.usage_in_bytes", "\(450 * Machines.mib)\n")
        driver.set(Machines.v1Group + "/memory.stat", Machines.statVersion1(inactiveFile: 300 * Machines.mib))
        #expect(try driver.read(after: .milliseconds(10)).available == .mebibytes(362))
        #expect(!driver.source.rings)
    }

    @Test func `version 1 without permission has no event sources, gives the reason, and polls instead`() throws {
        let kernel = ScriptedKernel(Machines.hybrid())
        kernel.edit { $0.refusals[Machines.v1Group + "/cgroup.event_control"] = EACCES }
        let driver = SourceDriver(kernel)
        _ = try driver.read()
        #expect(!driver.source.rings)
        #expect(driver.source.capabilities["usage thresholds"]?.detail.contains("Permission denied") == true)
    }

    @Test func `version 2 promises to notify only if memory.high throttles well below the limit`() throws {
        func rings(_ files: [String: String]) throws -> Bool {
            let driver = SourceDriver(files)
            _ = try driver.read()
            return driver.source.rings
        }
        #expect(try !rings(Machines.version2()))
        #expect(try rings(Machines.version2(high: "471859200")))
        #expect(try !rings(Machines.version2(high: "536866816")), "a page below the limit throttles nothing")
        #expect(try !rings(Machines.version2(high: "471859200", parentMax: "500000000")), "a second limit about as near has no event")
        #expect(try rings(Machines.version2(high: "471859200", parentMax: "2000000000")))
    }

    @Test func `no trigger is set without a request`() {
        let driver = SourceDriver(Machines.version2(), options: .init(usesTriggers: false))
        #expect(driver.kernel.ask { $0.written.isEmpty })
        #expect(driver.source.capabilities["stall trigger"]?.detail == "not requested")
    }
}
