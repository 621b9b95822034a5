import Glibc
import Plimsoll
import TestSupport
import Testing

@testable import PlimsollLinux

@Suite(.serialized) struct HostTests {
    @Test func `the test's own machine can be read, and every dead signal gives a reason`() throws {
        let source = LinuxPressureSource()
        let reading = try source.read(at: .zero)
        #expect(reading.limit != nil)
        #expect(reading.resident > .mebibytes(1))
        #expect(source.footprint().resident > .mebibytes(1))
        #expect(
            source.capabilities.signals.map(\.name) == [
                "limit", "usage", "reclaimable", "limit events", "usage thresholds", "stall", "stall trigger", "announced", "throttle", "freezer",
                "resident",
            ])
        for signal in source.capabilities.signals { #expect(!signal.detail.isEmpty, "\(signal.name)") }
    }

    @Test func `another thread's wake ends a wait on the real kernel`() throws {
        let source = LinuxPressureSource()
        _ = try source.read(at: .zero)
        for _ in 0..<100 {
            let done = Parker()
            #expect(
                PlimsollThread.start {
                    source.wake(); done.unpark()
                })
            source.wait(atMost: .seconds(600))
            done.park()
        }
    }

    @Test(.needs(no: ChildGroup.noVersion1, or: .virtualMachine))
    func `on version 1 the limit is found, and a child above the margin and a moved limit end the wait`() throws {
        let group = try ChildGroup(.v1, "threshold", ["memory.limit_in_bytes": 128 << 20])
        defer { group.remove() }
        let source = LinuxPressureSource(options: Self.quiet, kernel: group)
        let before = try source.read(at: .zero)
        #expect(before.limit == .mebibytes(128))
        #expect(before.boundary == .maximum)
        #expect(before.available! > .mebibytes(120))
        #expect(source.rings)
        #expect(source.capabilities["usage thresholds"]?.isLive == true)

        // 80 % are 102.4 MiB. The buffers of tail take a little more than the content.
        let hog = group.startHog(mebibytes: 106)
        defer { ChildGroup.end(hog) }
        source.wait(atMost: .seconds(60))
        // The event may come while the child still grows.
        var after = try source.read(at: .seconds(1))
        while PressureAssessor().assessing(after).level < .warning {
            source.wait(atMost: .milliseconds(10))
            after = try source.read(at: .seconds(1))
        }
        #expect(after.available! < .mebibytes(26), "\(after)")
        #expect(source.footprint().usage > .mebibytes(100))

        group.set("memory.limit_in_bytes", 192 << 20)
        source.wait(atMost: .seconds(60))
        #expect(try source.read(at: .seconds(2)).limit == .mebibytes(192))
        #expect(source.rings)
    }

    @Test(.needs(no: ChildGroup.noVersion1, or: .virtualMachine))
    func `T18 on version 1, after the removal of the group the machine's memory is read`() throws {
        try remove(ChildGroup(.v1, "removed", ["memory.limit_in_bytes": 64 << 20]))
    }

    @Test(.needs(no: ChildGroup.noVersion2, or: .virtualMachine))
    func `on version 2 memory.high is the boundary, and crossing that boundary ends the wait`() throws {
        let group = try ChildGroup(.v2, "high", ["memory.max": 192 << 20, "memory.high": 96 << 20])
        defer { group.remove() }
        let source = LinuxPressureSource(options: Self.quiet, kernel: group)
        let before = try source.read(at: .zero)
        #expect(before.limit == .mebibytes(96))
        #expect(before.boundary == .high)
        #expect(source.rings)

        let hog = group.startHog(mebibytes: 120)
        defer { ChildGroup.end(hog) }
        source.wait(atMost: .seconds(120))
        let after = try source.read(at: .seconds(1))
        #expect(after.events!.high > before.events!.high, "\(after)")
        #expect(after.available! < .mebibytes(8), "\(after)")
    }

    @Test(
        .needs(no: ChildGroup.noVersion2, or: .virtualMachine),
        .needs(access("/proc/pressure/memory", R_OK) == 0, "no stall accounting", or: .virtualMachine))
    func `on version 2 stall under memory.high fires the trigger`() throws {
        // Zeros can be swapped out to compressed swap without much of a stall.
        let group = try ChildGroup(.v2, "stall", ["memory.max": 192 << 20, "memory.high": 48 << 20, "memory.swap.max": 0])
        defer { group.remove() }
        let trigger = StallTrigger(group.directory + "/memory.pressure", group)
        let file = KernelFile(trigger.path, group, TextBuffer())
        func totals() -> PressureReading.StallTotals? { file.read { PressureReading.StallTotals($0) } }
        trigger.arm(totals(), at: .zero)
        try #require(trigger.threshold != nil, "\(String(describing: trigger.failure))")

        let hog = group.startHog(mebibytes: 100)
        defer { ChildGroup.end(hog) }
        let slots = UnsafeMutableBufferPointer<pollfd>.allocate(capacity: 1)
        defer { slots.deallocate() }
        var confirmed = false
        for _ in 0..<20 where !confirmed {
            slots[0] = pollfd(fd: trigger.eventSource.file, events: trigger.eventSource.events, revents: 0)
            guard group.wait(for: slots, nanoseconds: 20_000_000_000) > 0 else { continue }
            confirmed = trigger.handle(slots[0].revents, at: .zero, totals: totals)
        }
        #expect(confirmed)
    }

    @Test(.needs(no: ChildGroup.noVersion2, or: .virtualMachine))
    func `on version 2 memory.high is set, follows a moved limit, and is restored`() throws {
        let group = try ChildGroup(.v2, "throttle", ["memory.max": 256 << 20])
        defer { group.remove() }
        func high() -> Int? { KernelFile(group.directory + "/memory.high", group, TextBuffer()).read(KernelText.limit) }
        do {
            let source = LinuxPressureSource(options: .init(setsHigh: true, usesTriggers: false), kernel: group)
            #expect(source.capabilities["throttle"]?.isLive == true, "\(source.capabilities)")
            #expect(try source.read(at: .zero).boundary == .high)
            #expect(high() == 224 << 20)
            group.set("memory.max", 640 << 20)
            source.wait(atMost: .seconds(60))
            _ = try source.read(at: .seconds(1))
            #expect(high() == 576 << 20)
        }
        #expect(high() == KernelText.unlimited)
    }

    @Test(.needs(no: ChildGroup.noVersion2, or: .virtualMachine))
    func `T18 on version 2, after the removal of the group the machine's memory is read`() throws {
        try remove(ChildGroup(.v2, "removed", ["memory.max": 64 << 20]))
    }

    static let quiet = LinuxPressureSource.Options(usesTriggers: false)

    /// Removes `group` while a source watches the group. The armed trigger then reports an error for ever.
    private func remove(_ group: ChildGroup) throws {
        let source = LinuxPressureSource(kernel: group)
        #expect(try source.read(at: .zero).limit == .mebibytes(64))
        rmdir(group.directory)
        var reading = try source.read(at: .seconds(1))
        for second in 2...20 where reading.boundary != .machine { reading = try source.read(at: .seconds(second)) }
        #expect(reading.boundary == .machine)
        for second in 21...30 {
            source.wait(atMost: .milliseconds(1))
            _ = try source.read(at: .seconds(second))
        }
        group.remove()
    }
}

extension PressureAssessor {
    func assessing(_ reading: PressureReading) -> PressureAssessment {
        var copy = self
        return copy.assess(reading)
    }
}

/// A thread for a test, outside the cooperative pool.
enum PlimsollThread {
    static func start(_ body: @escaping @Sendable () -> Void) -> Bool {
        final class Box: Sendable {
            let body: @Sendable () -> Void
            init(_ body: @escaping @Sendable () -> Void) { self.body = body }
        }
        var thread = pthread_t()
        let box = Unmanaged.passRetained(Box(body))
        let result = pthread_create(
            &thread, nil,
            {
                Unmanaged<Box>.fromOpaque($0!).takeRetainedValue().body()
                return nil
            }, box.toOpaque())
        if result == 0 { pthread_detach(thread) }
        return result == 0
    }
}
