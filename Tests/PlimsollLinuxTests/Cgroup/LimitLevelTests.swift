import Plimsoll
import Testing

@testable import PlimsollLinux

/// Tests of one group's limits, and of the times at which its `memory.stat` is read.
@Suite struct LimitLevelTests {
    /// Returns the level of a group with those limits in bytes, `nil` for none.
    private func group(_ maximum: Int?, _ high: Int?) -> LimitLevel {
        let texts = (maximum.map { "\($0)" } ?? "max", high.map { "\($0)" } ?? "max")
        let kernel = ScriptedKernel(Machines.group("/g", max: texts.0, high: texts.1))
        let level = LimitLevel("/g", .v2, kernel, TextBuffer())
        #expect(level.readLimits(total: KernelText.unlimited))
        return level
    }

    @Test(arguments: [(512, 400, 400, true), (512, 512, 512, false), (400, 512, 400, false)])
    func `the tighter of the two limits counts, and of equal ones the hard limit`(
        maximum: Int, high: Int, limit: Int, isHigh: Bool
    ) {
        let level = group(maximum << 20, high << 20)
        #expect(level.limit == limit << 20 && level.isFinite)
        let boundary: PressureReading.Boundary = isHigh ? .high : .maximum
        #expect(level.boundary == boundary)
        #expect(level.limitFile.path == (isHigh ? "/g/memory.high" : "/g/memory.max"))
    }

    @Test(
        arguments: [
            (nil, nil, 0, false), (nil, 400, 0, true), (512, nil, 0, false), (512, 600, 0, false),
            (512, 500, 0, false), (512, 480, 1, false), (512, 480, 0, true), (512, 100, 0, true),
            (100, 90, 1, false), (100, 90, 0, true),
        ] as [(Int?, Int?, Int, Bool)])
    func `memory.high brakes a tenth below the hard limit, at most 32 MiB, and without a hard limit`(
        maximum: Int?, high: Int?, bytes: Int, hasBrake: Bool
    ) {
        #expect(group(maximum.map { $0 << 20 }, high.map { ($0 << 20) + bytes }).hasBrake == hasBrake)
    }

    @Test func `a limit of as much as the machine has counts, and a limit above counts as none`() {
        let kernel = ScriptedKernel(Machines.group("/g", max: "1000", high: "900"))
        let level = LimitLevel("/g", .v2, kernel, TextBuffer())
        let rows: [(total: Int, maximum: Int, high: Int)] = [
            (1000, 1000, 900), (999, Int.max, 900), (900, Int.max, 900), (899, Int.max, Int.max), (1001, 1000, 900),
        ]
        for (total, maximum, high) in rows {
            #expect(level.readLimits(total: total))
            #expect(level.maximum == maximum && level.high == high, "a machine of \(total) bytes")
            #expect(level.isFinite == (total >= 900), "a machine of \(total) bytes")
        }
    }

    @Test func `a group without memory.high has no such limit, and a group without memory.max is gone`() {
        let kernel = ScriptedKernel(Machines.group("/g", max: "1000", high: "900"))
        let level = LimitLevel("/g", .v2, kernel, TextBuffer())
        kernel.edit { $0.files["/g/memory.high"] = nil }
        #expect(level.readLimits(total: 5000))
        #expect(level.limit == 1000 && level.boundary == .maximum)
        kernel.edit { $0.files["/g/memory.max"] = nil }
        #expect(!level.readLimits(total: 5000))
    }

    @Test(arguments: [(4.9, true), (5, false), (5.9, false), (6, true), (6.1, true)])
    func `work is due again after the interval, and after a clock went backwards`(now: Double, isDue: Bool) {
        let last: Duration? = .seconds(5), never: Duration? = nil
        #expect(last.isDue(after: .seconds(1), at: .seconds(now)) == isDue)
        #expect(never.isDue(after: .seconds(1), at: .seconds(now)))
    }

    /// A group of 1 GiB whose `memory.stat` matters below 64 MiB of free memory.
    private struct WatchedGroup {
        let kernel: ScriptedKernel
        let level: LimitLevel

        init() {
            kernel = ScriptedKernel(Machines.group("/g", max: "\(1 << 30)"))
            level = LimitLevel("/g", .v2, kernel, TextBuffer())
            _ = level.readLimits(total: KernelText.unlimited)
        }

        /// Returns true if `memory.stat` is read for the memory available at that time.
        func reads(free: Int, at milliseconds: Int) -> Bool {
            let before = kernel.ask { $0.reads["/g/memory.stat"] ?? 0 }
            _ = level.available(
                usage: (1 << 30) - free, growthFloor: 64 << 20, at: .milliseconds(milliseconds))
            return kernel.ask { $0.reads["/g/memory.stat"] ?? 0 } > before
        }
    }

    @Test func `memory.stat is read often from below the floor of free memory to a quarter above`() {
        let group = WatchedGroup(), floor = 64 << 20
        #expect(group.reads(free: floor, at: 0))
        #expect(!group.reads(free: floor, at: 999), "at the floor, once a second")
        #expect(group.reads(free: floor, at: 1000))
        #expect(group.reads(free: floor - 1, at: 1300), "below the floor, often")
        #expect(group.reads(free: floor + floor / 4, at: 1600), "at most a quarter above, still often")
        #expect(!group.reads(free: floor + floor / 4 + 1, at: 1900), "then once a second again")
        #expect(!group.reads(free: floor, at: 2500), "and at the floor, too")
        #expect(group.reads(free: floor, at: 2600))
    }

    @Test func `close to the limit memory.stat is read after a change by a 512th, or 250 ms, and at the limit always`() {
        let group = WatchedGroup(), free = 32 << 20, step = 2 << 20
        #expect(group.reads(free: free, at: 0))
        #expect(!group.reads(free: free, at: 249))
        #expect(group.reads(free: free, at: 250))
        #expect(!group.reads(free: free - step, at: 251), "a change by a 512th")
        #expect(group.reads(free: free - step - 1, at: 252), "a change by more")
        #expect(group.reads(free: free, at: 253), "a change back by more")
        #expect(group.reads(free: step, at: 254))
        #expect(!group.reads(free: step, at: 255), "a 512th is free")
        #expect(group.reads(free: step - 1, at: 256) && group.reads(free: step - 1, at: 257), "less is free")
    }
}
