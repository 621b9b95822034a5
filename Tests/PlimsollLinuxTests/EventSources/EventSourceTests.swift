import Glibc
import Plimsoll
import PlimsollLifecycle
import Testing

@testable import PlimsollLinux

/// What ends a wait, what does not, and that nothing can make it spin.
@Suite struct EventSourceTests {
    let events = Machines.main + "/memory.events"
    let stall = Machines.main + "/memory.pressure"

    @Test func `a wake ends the present or the next wait, once`() throws {
        let turner = Turner(Machines.version2())
        _ = try turner.read()
        turner.source.wake()
        turner.source.wake()
        #expect(turner.wait() == .zero)
        #expect(turner.wait() == .seconds(1))
    }

    @Test func `K26 K9 a change of memory_events ends the wait, and the counts are read anew`() throws {
        let turner = Turner(Machines.version2())
        _ = try turner.read()
        #expect(turner.wait() == .seconds(1))
        _ = try turner.read()
        turner.set(events, "low 0\nhigh 0\nmax 5\noom 0\noom_kill 0\n")
        turner.kernel.edit { $0.conditions[events] = Int16(POLLERR | POLLPRI) }
        #expect(turner.wait() == .zero)
        #expect(try turner.read().events?.max == 5)
        let rest = turner.wait()
        #expect(rest > .milliseconds(90) && rest <= .milliseconds(100), "it rests, and the rest is not slept through")
        #expect(turner.source.capabilities["limit events"]?.isLive == true)
    }

    @Test func `K24 events that never stop wake the loop ten times a second, no more`() throws {
        let turner = Turner(Machines.version2())
        var turns = 0
        _ = try turner.read()
        let start = turner.now
        while turner.now - start < .seconds(60) {
            turner.kernel.edit { $0.conditions[events] = Int16(POLLERR | POLLPRI) }
            turner.wait()
            _ = try turner.read()
            turns += 1
        }
        #expect(turns < 60 * 25)
    }

    @Test func `K5 T12 a first event without growth is not believed, and one with growth is`() {
        var confirmation = StallConfirmation(threshold: .milliseconds(50))
        let totals: [PressureReading.StallTotals?] = [4000, 4020, 4060, 4110, 1, nil].map { (total: Int?) in
            total.map { .init(some: .milliseconds($0)) }
        }
        var believed: [Bool] = []
        for total in totals { believed.append(confirmation.confirms(total)) }
        // Slow stalls do not add up, as the baseline moves with what is rejected; a total that falls belongs to a group made anew (K12).
        #expect(believed == [false, false, false, true, false, false])
    }

    @Test func `K1 K3 the trigger is written with the terminator, and again with two seconds after a refused half second`() throws {
        let privileged = Turner(Machines.version2())
        #expect(privileged.kernel.ask { $0.written.map(\.text) } == ["some 50000 500000\0"])
        #expect(privileged.source.capabilities["stall trigger"]?.detail.contains("50 ms in 500 ms") == true)

        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.writeRefusals[stall] = EINVAL }
        let refused = Turner(kernel)
        #expect(refused.source.capabilities["stall trigger"]?.isLive == false)
        #expect(try refused.read().stall != nil, "the total is read all the same")
    }

    @Test(arguments: [EACCES, EPERM, EROFS]) func `K20 a trigger without permission is a dead signal with the reason`(number: Int32) throws {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.writeRefusals[stall] = number }
        let turner = Turner(kernel)
        let signal = try #require(turner.source.capabilities["stall trigger"])
        #expect(!signal.isLive)
        #expect(signal.detail.contains(String(cString: strerror(number))))
    }

    @Test func `T18 K9 a trigger that always reports an error is armed again with pauses, never in a spin`() throws {
        let turner = Turner(Machines.version2())
        turner.kernel.edit { $0.conditions[stall] = Int16(POLLERR | POLLPRI) }
        var turns = 0
        _ = try turner.read()
        while turner.now < .seconds(600) {
            turner.wait()
            _ = try turner.read()
            turns += 1
        }
        #expect(turns < 600 + 40)
        #expect(turner.kernel.ask { $0.written.count } < 20)
        turner.kernel.edit { $0.conditions[stall] = nil }
        for _ in 0..<70 { _ = try turner.read(after: .seconds(1)) }
        #expect(turner.source.capabilities["stall trigger"]?.isLive == true)
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
            let turner = Turner(kernel, environment: environment)
            var turns = 0
            _ = try turner.read()
            while turner.now < .seconds(120), turns < 100_000 {
                turner.wait()
                // What says so for ever says so after being read, too.
                turner.kernel.edit { $0.conditions[events] = conditions }
                _ = try turner.read()
                turns += 1
            }
            #expect(turns < 120 * 25)
        }
    }

    @Test func `a wake works in a process without free descriptors, and after all descriptors were closed`() throws {
        let turner = Turner(Machines.version2())
        _ = try turner.read()
        turner.kernel.edit { $0.events = [:] }
        turner.wait()
        turner.wait()
        turner.source.wake()
        #expect(turner.wait() == .zero)
        #expect(turner.wait() > .milliseconds(40))
    }

    @Test func `version 1 thresholds stand at the margins, and move with the limit`() throws {
        let control = Machines.v1Group + "/cgroup.event_control"
        let turner = Turner(Machines.hybrid())
        func usages() -> [String] {
            turner.kernel.ask { $0.written.filter { $0.path == control }.map { String($0.text.split(separator: " ").last!) } }
        }
        #expect(usages() == ["429496730", "483183821", "\(508 * Machines.mib)"], "a fifth, a tenth, a quarter of the 16 MiB kept free")
        _ = try turner.read()
        #expect(turner.source.rings)
        turner.set(Machines.v1Group + "/memory.limit_in_bytes", "\(256 * Machines.mib)\n")
        _ = try turner.read(after: .seconds(10))
        #expect(usages().count == 6)
        #expect(Int(usages()[3])! < 256 * Machines.mib)
        #expect(turner.source.capabilities["usage thresholds"]?.isLive == true)
    }

    @Test func `a crossed version 1 threshold ends the wait`() throws {
        let turner = Turner(Machines.hybrid())
        _ = try turner.read()
        #expect(turner.wait() == .seconds(1))
        _ = try turner.read()
        // The kernel adds to all eventfds but the wakeup's, which was made first.
        turner.kernel.edit { state in
            for event in state.events.keys.sorted().dropFirst() where !state.watches.values.contains(event) { state.events[event] = 1 }
        }
        #expect(turner.wait() == .zero)
        _ = try turner.read()
        let rest = turner.wait()
        #expect(rest > .milliseconds(90) && rest <= .milliseconds(100))
    }

    @Test(arguments: [Machines.version2(), Machines.hybrid()])
    func `K18 a moved limit ends the wait and is followed at once, both ways`(files: [String: String]) throws {
        let turner = Turner(files)
        let kernel = turner.kernel
        let limit = try #require(try turner.read().limit)
        let path = try #require(kernel.ask { state in state.watches.keys.first { state.files[$0]?.hasPrefix("\(limit.bytes)") == true } })
        for factor in [2, 1, 3] {
            #expect(turner.wait() > .zero)
            kernel.moveLimit(path, to: "\(limit.bytes / 4 * factor)\n")
            #expect(turner.wait() == .zero)
            #expect(try turner.read(after: .milliseconds(20)).limit == .bytes(limit.bytes / 4 * factor))
        }
    }

    @Test func `limits without a watch are read every second`() throws {
        let kernel = ScriptedKernel(Machines.hybrid())
        kernel.edit { $0.refusesWatches = true }
        let turner = Turner(kernel)
        _ = try turner.read()
        turner.set(Machines.v1Group + "/memory.limit_in_bytes", "\(256 * Machines.mib)\n")
        #expect(try turner.read(after: .seconds(1)).limit == .mebibytes(256))
    }

    @Test func `version 1 thresholds already passed by page cache do not promise to notify`() throws {
        let turner = Turner(Machines.hybrid())
        _ = try turner.read()
        #expect(turner.source.rings)
        turner.set(Machines.v1Group + "/memory.usage_in_bytes", "\(450 * Machines.mib)\n")
        turner.set(Machines.v1Group + "/memory.stat", Machines.statVersion1(inactiveFile: 300 * Machines.mib))
        #expect(try turner.read(after: .milliseconds(10)).available == .mebibytes(362))
        #expect(!turner.source.rings)
    }

    @Test func `version 1 without permission has no event sources, gives the reason, and polls instead`() throws {
        let kernel = ScriptedKernel(Machines.hybrid())
        kernel.edit { $0.refusals[Machines.v1Group + "/cgroup.event_control"] = EACCES }
        let turner = Turner(kernel)
        _ = try turner.read()
        #expect(!turner.source.rings)
        #expect(turner.source.capabilities["usage thresholds"]?.detail.contains("Permission denied") == true)
    }

    @Test func `version 2 promises to notify only where memory.high throttles well below the limit`() throws {
        func rings(_ files: [String: String]) throws -> Bool {
            let turner = Turner(files)
            _ = try turner.read()
            return turner.source.rings
        }
        #expect(try !rings(Machines.version2()))
        #expect(try rings(Machines.version2(high: "471859200")))
        #expect(try !rings(Machines.version2(high: "536866816")), "a page below the limit brakes nothing")
        #expect(try !rings(Machines.version2(high: "471859200", parentMax: "500000000")), "a second limit about as near has no bell")
        #expect(try rings(Machines.version2(high: "471859200", parentMax: "2000000000")))
    }

    @Test func `no trigger is set without a request`() {
        let turner = Turner(Machines.version2(), options: .init(usesTriggers: false))
        #expect(turner.kernel.ask { $0.written.isEmpty })
        #expect(turner.source.capabilities["stall trigger"]?.detail == "not requested")
    }
}
