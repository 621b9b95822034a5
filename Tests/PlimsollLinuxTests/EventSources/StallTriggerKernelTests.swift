import Foundation
import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollLinux

/// The machine's own stall file.
private enum MachineStall {
    static let path = "/proc/pressure/memory"
    static let canArm = request("some 200000 2000000\0") == 0

    /// Writes `texts` to one opened file. Returns the error of the last write, 0 for none.
    static func request(_ texts: String...) -> Int32 {
        let file = open(path, O_RDWR | O_NONBLOCK)
        guard file >= 0 else { return errno }
        defer { close(file) }
        var result: Int32 = 0
        for text in texts {
            let bytes = Array(text.utf8)
            result = write(file, bytes, bytes.count) == bytes.count ? 0 : errno
        }
        return result
    }
}

/// Tests of this host's kernel with triggers on stall, and that the library's triggers match.
@Suite(.serialized, .timeLimit(.minutes(5)), .needs(MachineStall.canArm, "no trigger can be set on /proc/pressure/memory here", or: .virtualMachine))
struct StallTriggerKernelTests {
    /// True if this process may choose windows of any length: `CAP_SYS_RESOURCE`, bit 24 of the effective capabilities.
    static var isPrivileged: Bool {
        guard let file = fopen("/proc/self/status", "r") else { return false }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 512)
        while fgets(&line, 512, file) != nil {
            let words = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).split { $0 == "\t" || $0 == "\n" }
            if words.first == "CapEff:", let bits = words.last.flatMap({ UInt64($0, radix: 16) }) { return bits & (1 << 24) != 0 }
        }
        return false
    }

    private static func armed() -> StallTrigger {
        let trigger = StallTrigger(MachineStall.path, HostKernel())
        trigger.arm(PressureReading.StallTotals(some: .zero), at: .zero)
        return trigger
    }

    @Test func `K1 K2 the machine's file drops the last byte of a request: twenty seconds without a terminator count as two seconds`() {
        // The maximum is ten seconds: with a terminator, the kernel refuses the request for its content.
        #expect(MachineStall.request("some 200000 20000000\0") == EINVAL)
        #expect(MachineStall.request("some 200000 20000000") == 0)
        // The library's requests end with the byte that is lost, and fit into the kernel's 32.
        for threshold in [StallThreshold.quick, .slow] {
            #expect("some \(threshold.stall) \(threshold.window)\0".utf8.count <= 32)
        }
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.refusedTexts["some 50000 500000\0"] = EINVAL }
        _ = SourceDriver(kernel)
        #expect(kernel.ask { $0.written.map(\.text) } == ["some 200000 2000000\0"])
    }

    @Test func `K3 a privileged window is refused as a bad argument, and the trigger takes the shortest unprivileged window`() {
        #expect(MachineStall.request("some 50000 500000\0") == (Self.isPrivileged ? 0 : EINVAL))
        #expect(MachineStall.request("some 200000 3000000\0") == (Self.isPrivileged ? 0 : EINVAL), "windows are multiples of two seconds")
        let trigger = Self.armed()
        #expect(trigger.threshold == (Self.isPrivileged ? .quick : .slow) && trigger.failure == nil)
    }

    @Test func `K4 a file takes one trigger and refuses the next, so a re-armed trigger opens another file`() {
        #expect(MachineStall.request("some 200000 2000000\0", "some 300000 2000000\0") == EBUSY)
        let trigger = Self.armed()
        for _ in 0..<20 { trigger.arm(PressureReading.StallTotals(some: .zero), at: .zero) }
        #expect(trigger.threshold != nil && trigger.failure == nil)
        // Other tests may have the file open just now, but not twenty times.
        let files = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        let held = files.count { (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)) == MachineStall.path }
        #expect((1..<15).contains(held), "\(held)")
    }

    @Test func `K7 the file is readable and writable at any time, so the trigger waits for the priority condition alone`() {
        let trigger = Self.armed()
        #expect(trigger.eventSource.events == Int16(POLLPRI))
        var all = pollfd(fd: trigger.eventSource.file, events: Int16(POLLIN | POLLOUT), revents: 0)
        #expect(poll(&all, 1, 0) == 1 && all.revents & Int16(POLLIN | POLLOUT) == Int16(POLLIN | POLLOUT))
    }
}

/// Tests of the same facts on a scripted kernel.
@Suite struct StallFileTests {
    private let stall = Machines.main + "/memory.pressure"

    @Test func `K3 a refusal of the quick window as a bad argument sets the slow window; any other refusal stands`() throws {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.refusedTexts["some 50000 500000\0"] = EINVAL }
        let signal = try #require(SourceDriver(kernel).source.capabilities["stall trigger"])
        #expect(signal.isLive && signal.detail.contains("200 ms in 2"), "\(signal.detail)")

        let other = ScriptedKernel(Machines.version2())
        other.edit { $0.refusedTexts["some 50000 500000\0"] = EPERM }
        #expect(SourceDriver(other).source.capabilities["stall trigger"]?.isLive == false)
        #expect(other.ask { $0.written.isEmpty }, "no other window is tried")
    }

    @Test func `K8 an event that one poll takes from the file has an effect, as no other poll shows that event`() throws {
        let driver = SourceDriver(Machines.version2())
        _ = try driver.read()
        driver.set(stall, "some avg10=0.00 avg60=0.00 avg300=0.00 total=301000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500\n")
        driver.kernel.edit {
            $0.conditions[stall] = Int16(POLLPRI)
            $0.clearedByPolling.insert(stall)
        }
        #expect(driver.wait() == .zero)
        // The totals were read at the event, although less than a second has passed since the last poll.
        #expect(try driver.read().stall?.some == .milliseconds(301))
        #expect(driver.wait() > .zero, "the event is seen once")
    }

    @Test func `K10 a poll notices that stall accounting is off: the files exist and refuse reads`() throws {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { state in for path in [stall, "/proc/pressure/memory"] { state.readRefusals[path] = EOPNOTSUPP } }
        let driver = SourceDriver(kernel)
        let signal = try #require(driver.source.capabilities["stall"])
        #expect(!signal.isLive && signal.detail.contains(String(cString: strerror(EOPNOTSUPP))), "\(signal.detail)")
        #expect(try driver.read().stall == nil)
        #expect(driver.source.capabilities["stall trigger"]?.isLive == false && kernel.ask { $0.written.isEmpty })
    }

    private func totals(_ microseconds: Int) -> String {
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=\(microseconds)\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=\(microseconds / 2)\n"
    }

    @Test func `K12 K15 stall is read at a new limit's group, and the difference to that group's total is no stall`() throws {
        let driver = SourceDriver(Machines.version2()), box = Machines.box + "/memory.pressure"
        driver.set(stall, totals(2_000_000))
        driver.set(box, totals(900_000_000))
        var assessor = PressureAssessor()
        let before = try driver.read(after: .seconds(10))
        #expect(before.stall == .init(some: .seconds(2), full: .seconds(1)))
        #expect(assessor.assess(before).level == .normal)
        driver.set(Machines.box + "/memory.max", "\(400 * Machines.mib)\n")
        let moved = try driver.read(after: .seconds(10))
        #expect(moved.limit == .mebibytes(400) && driver.source.capabilities["stall"]?.detail == box)
        #expect(moved.stall == before.stall)
        let assessment = assessor.assess(moved)
        #expect(assessment.stallShare == 0 && assessment.level == .normal, "ten seconds of stall would be a warning")
        driver.set(box, totals(900_400_000))
        #expect(try driver.read(after: .seconds(1)).stall == .init(some: .milliseconds(2400), full: .milliseconds(1200)))
        // And back, where the own group's total has gone on meanwhile.
        driver.set(stall, totals(5_000_000))
        driver.set(Machines.box + "/memory.max", "max\n")
        let back = try driver.read(after: .seconds(10))
        #expect(back.limit == .mebibytes(512) && back.stall?.some == .milliseconds(2400))
    }

    @Test func `K15 stall of the limiting group counts while the own group is looked up again`() throws {
        let driver = SourceDriver(Machines.version2(max: "max", parentMax: "536870912"))
        let box = Machines.box + "/memory.pressure"
        driver.set(box, totals(2_000_000))
        #expect(try driver.read(after: .seconds(10)).stall?.some == .seconds(2))
        // Another text, and the same group.
        driver.set("/proc/self/cgroup", "1:name=other:/x\n0::/box/main\n")
        driver.set(box, totals(2_800_000))
        for _ in 0..<2 { _ = try driver.read(after: .seconds(10)) }
        #expect(try driver.read().stall?.some == .milliseconds(2800))
    }

    @Test func `K12 the total of a group that was made again goes on from the former one`() throws {
        let driver = SourceDriver(Machines.version2())
        driver.set(stall, totals(60_000_000))
        #expect(try driver.read(after: .seconds(1)).stall?.some == .seconds(60))
        for total in [100, 300_100] {
            driver.set(stall, totals(total))
            _ = try driver.read(after: .seconds(1))
        }
        #expect(try driver.read().stall?.some == .milliseconds(60_300))
    }

    @Test func `K15 a short ancestor is noticed while the group is calm`() throws {
        let driver = SourceDriver(Machines.version2(max: "max", parentMax: "\(128 * Machines.mib)"))
        let reading = try driver.read()
        #expect(reading.limit == .mebibytes(128) && reading.available == .mebibytes(8), "\(reading)")
        let assessment = PressureAssessor().assessing(reading)
        #expect(assessment.level == .critical && assessment.evidence == .headroom)
        // An ancestor without a limit causes no shortage.
        let calm = try SourceDriver(Machines.version2(max: "536870912")).read()
        #expect(calm.limit == .mebibytes(512) && PressureAssessor().assessing(calm).level == .normal)
    }
}
