import Glibc
import Plimsoll
import Testing

@testable import PlimsollLinux

/// Tests that `memory.high` is set on request, kept below a moving limit, and restored.
@Suite struct MemoryHighTests {
    static let path = Machines.main + "/memory.high"
    let asked = LinuxPressureSource.Options(setsHigh: true, usesTriggers: false)

    static let boundaries: [(Int, Int?)] = [(512 << 20, 461 << 20), (128 << 20, 96 << 20), (40 << 20, nil), (0, nil)]

    @Test(arguments: boundaries)
    func `memory.high is a tenth below the limit, at least 32 MiB, in whole pages`(maximum: Int, expected: Int?) {
        let target = MemoryHigh.target(below: maximum)
        if let expected { #expect(abs(target! - expected) < 1 << 20 && target! % 4096 == 0) } else { #expect(target == nil) }
    }

    @Test func `memory.high is set only on request`() {
        let driver = SourceDriver(Machines.version2(), options: .init(usesTriggers: false))
        #expect(driver.kernel.ask { $0.written.isEmpty })
        #expect(driver.source.capabilities["throttle"]?.isLive == false)
    }

    @Test func `memory.high is set, becomes the boundary, moves with the limit, and is restored at the end`() throws {
        let kernel = ScriptedKernel(Machines.version2())
        do {
            let driver = SourceDriver(kernel, options: asked)
            #expect(driver.source.capabilities["throttle"]?.isLive == true)
            let reading = try driver.read()
            #expect(reading.boundary == .high)
            #expect(reading.limit! < .mebibytes(480))
            driver.set(Machines.main + "/memory.max", "\(1 << 30)\n")
            #expect(try driver.read(after: .seconds(10)).limit! > .mebibytes(900))
        }
        #expect(kernel.ask { $0.files[Self.path] } == "max\n")
    }

    @Test(arguments: ["max\n", "1099511627776\n"])
    func `K18 a limit lifted at run time takes memory.high along, and a later limit has one again`(none: String) throws {
        let kernel = ScriptedKernel(Machines.version2())
        let driver = SourceDriver(kernel, options: asked)
        #expect(try driver.read().boundary == .high)
        driver.set(Machines.main + "/memory.max", none)
        #expect(try driver.read(after: .seconds(10)).boundary == .machine)
        #expect(kernel.ask { $0.files[Self.path] } == "max\n")
        #expect(driver.source.capabilities["throttle"]?.isLive == false)
        driver.set(Machines.main + "/memory.max", "\(1 << 30)\n")
        let limited = try driver.read(after: .seconds(10))
        #expect(limited.boundary == .high && limited.limit! > .mebibytes(900))
    }

    @Test func `K27 without a limit memory.high stays until the usage is below the earlier value, or the write succeeds`() {
        let kernel = ScriptedKernel(Machines.version2(high: "500000000"))
        let high = MemoryHigh(Machines.main, kernel, TextBuffer())
        #expect(high.apply(below: 128 << 20, usage: 0))
        #expect(!high.apply(below: KernelText.unlimited, usage: 500_000_000))
        kernel.edit { $0.writeRefusals[Self.path] = EBUSY }
        #expect(!high.apply(below: KernelText.unlimited, usage: 0))
        #expect(high.held?.ours == 96 << 20 && kernel.ask { $0.files[Self.path] } == "100663296\n")
        kernel.edit { $0.writeRefusals = [:] }
        #expect(high.apply(below: KernelText.unlimited, usage: 499_999_999))
        #expect(high.held?.ours == nil && kernel.ask { $0.files[Self.path] } == "500000000\n")
        withExtendedLifetime(high) {}
    }

    @Test func `memory.high is not set above the operator's value after the limit is raised, and that value is restored`() {
        let kernel = ScriptedKernel(Machines.version2(high: "500000000"))
        let high = MemoryHigh(Machines.main, kernel, TextBuffer())
        #expect(high.apply(below: 128 << 20, usage: 0))
        #expect(!high.apply(below: 1 << 30, usage: 500_000_000), "the usage is not below the operator's value")
        #expect(high.held?.ours == 96 << 20)
        #expect(high.apply(below: 1 << 30, usage: 499_999_999))
        #expect(high.held?.ours == nil && high.failure == "\(Self.path) is already 500000000")
        #expect(!high.apply(below: 1 << 30, usage: 0))
        #expect(kernel.ask { $0.written.map(\.text) } == ["100663296", "500000000"])
        withExtendedLifetime(high) {}
    }

    @Test func `a foreign memory.high is left alone, at the start, later and at the end`() throws {
        let lower = ScriptedKernel(Machines.version2(high: "200000000"))
        _ = SourceDriver(lower, options: asked)
        #expect(lower.ask { $0.written.isEmpty })

        let kernel = ScriptedKernel(Machines.version2())
        do {
            let driver = SourceDriver(kernel, options: asked)
            driver.set(Self.path, "300000000\n")
            _ = try driver.read(after: .seconds(10))
            _ = try driver.read(after: .seconds(10))
            #expect(driver.source.capabilities["throttle"]?.detail.hasSuffix("set by the operator") == true)
        }
        #expect(kernel.ask { $0.files[Self.path] } == "300000000\n")
    }

    @Test func `memory.high is never set again after another process has raised the value`() throws {
        let kernel = ScriptedKernel(Machines.version2())
        let driver = SourceDriver(kernel, options: asked)
        #expect(driver.source.capabilities["throttle"]?.isLive == true)
        driver.set(Self.path, "500000000\n")
        for _ in 0..<2 { _ = try driver.read(after: .seconds(10)) }
        #expect(kernel.ask { $0.written.count { $0.path == Self.path } } == 1)
    }

    /// The removal is noticed by the usage after a second, and by the limit after ten.
    @Test(arguments: [1, 10])
    func `memory.high is set again in a group that was made again: no other process has changed the value`(seconds: Int) throws {
        let kernel = ScriptedKernel(Machines.version2())
        let driver = SourceDriver(kernel, options: asked)
        #expect(driver.source.capabilities["throttle"]?.isLive == true)
        kernel.remakeGroup(Machines.main)
        driver.set(Self.path, "max\n")
        _ = try driver.read(after: .seconds(seconds))
        #expect(try driver.read(after: .seconds(10)).boundary == .high)
        #expect(driver.source.capabilities["throttle"]?.isLive == true)
        #expect(kernel.ask { $0.written.count { $0.path == Self.path } } == 2)
    }

    @Test func `K27 memory.high is not set below the usage, but set later after a fall of usage`() throws {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.files[Machines.main + "/memory.current"] = "\(500 << 20)\n" }
        let driver = SourceDriver(kernel, options: asked)
        #expect(driver.source.capabilities["throttle"]?.detail.contains("usage is above") == true)
        driver.set(Machines.main + "/memory.current", "\(100 << 20)\n")
        _ = try driver.read(after: .seconds(10))
        _ = try driver.read(after: .seconds(1))
        #expect(driver.source.capabilities["throttle"]?.isLive == true)
    }

    @Test func `a namespaced root without write permission is a dead signal with advice`() {
        let kernel = ScriptedKernel(Machines.version2())
        kernel.edit { $0.writeRefusals[Self.path] = EPERM }
        let driver = SourceDriver(kernel, options: asked)
        #expect(driver.source.capabilities["throttle"]?.detail.contains("Operation not permitted") == true)
        #expect(driver.source.capabilities["throttle"]?.remedy?.contains("Delegate=yes") == true)
    }

    @Test(arguments: [(64, 1, nil), (64, 0, 32), (128, 0, 96), (320, 0, 288), (640, 0, 576)] as [(Int, Int, Int?)])
    func `memory.high leaves at least 32 MiB below, and a tenth or 32 MiB above`(
        maximum: Int, less: Int, expected: Int?
    ) {
        let target = MemoryHigh.target(below: (maximum << 20) - less)
        #expect(target == expected.map { $0 << 20 })
    }

    @Test(arguments: [
        (40, "max", 0, "memory.max is too small to set memory.high below"),
        (64, "33554432", 0, "/sys/fs/cgroup/box/main/memory.high is already 33554432"),
        (64, "max", 32, "usage is above 33554432, the value to set; retried later"),
        (64, "rubbish", 0, "/sys/fs/cgroup/box/main/memory.high: malformed"),
    ])
    func `memory.high stays where no lower value can be set, with the reason`(
        maximum: Int, present: String, usage: Int, reason: String
    ) {
        let kernel = ScriptedKernel(Machines.version2(high: present))
        let high = MemoryHigh(Machines.main, kernel, TextBuffer())
        #expect(!high.apply(below: maximum << 20, usage: usage << 20))
        #expect(high.failure == reason)
        #expect(kernel.ask { $0.written.isEmpty })
    }

    @Test func `without memory.max memory.high stays, and is set once there is a limit`() {
        let kernel = ScriptedKernel(Machines.version2())
        let high = MemoryHigh(Machines.main, kernel, TextBuffer())
        #expect(!high.apply(below: KernelText.unlimited, usage: 0))
        #expect(high.failure == "the own group has no memory.max to set memory.high below")
        #expect(kernel.ask { $0.written.isEmpty })
        #expect(high.apply(below: 128 << 20, usage: 0))
        #expect(kernel.ask { $0.files[Self.path] } == "100663296\n")
        withExtendedLifetime(high) {}
    }

    @Test func `each change of memory.high is told, and none is made after another process`() {
        let kernel = ScriptedKernel(Machines.version2())
        let high = MemoryHigh(Machines.main, kernel, TextBuffer())
        kernel.edit { $0.writeRefusals[Self.path] = EPERM }
        #expect(!high.apply(below: 64 << 20, usage: (32 << 20) - 1))
        #expect(high.failure == "\(Self.path): Operation not permitted")
        kernel.edit { $0.writeRefusals = [:] }
        #expect(high.apply(below: 64 << 20, usage: (32 << 20) - 1))
        #expect(high.failure == nil)
        #expect(!high.apply(below: 64 << 20, usage: 0), "the same limit")
        #expect(high.apply(below: 128 << 20, usage: 0))
        #expect(high.held?.earlier == KernelText.unlimited && high.held?.ours == 96 << 20)
        kernel.edit { $0.files[Self.path] = "5000000\n" }
        #expect(!high.apply(below: 128 << 20, usage: 0))
        #expect(high.failure == "another process changed \(Self.path) to 5000000")
        #expect(high.held?.ours == nil)
        kernel.edit { $0.files[Self.path] = "max\n" }
        #expect(!high.apply(below: 128 << 20, usage: 0))
        #expect(kernel.ask { $0.written.map(\.text) } == ["33554432", "100663296"])
        withExtendedLifetime(high) {}
    }

    @Test func `a restored memory.high can be set again`() {
        let kernel = ScriptedKernel(Machines.version2(high: "500000000"))
        let high = MemoryHigh(Machines.main, kernel, TextBuffer())
        #expect(high.apply(below: 128 << 20, usage: 0))
        high.release()
        #expect(high.held?.ours == nil)
        #expect(kernel.ask { $0.files[Self.path] } == "500000000\n")
        #expect(high.apply(below: 128 << 20, usage: 0))
        #expect(kernel.ask { $0.files[Self.path] } == "100663296\n")
        withExtendedLifetime(high) {}
    }
}
