import Plimsoll
import PlimsollTesting
import TestSupport
import Testing

@testable import PlimsollLinux

/// No text makes a parser trap. A readable mutation may be nonsense, but numbers stay in their ranges.
@Suite struct FuzzTests {
    static let golden = [
        Machines.stat(inactiveFile: 1 << 30, activeFile: 5, slab: 77), Machines.statVersion1(inactiveFile: 3), Machines.meminfo, Machines.events,
        Machines.stall,
        Machines.statm, "max\n", "536870912\n", "9:name=systemd:/\n4:memory:/a/b\n0::/x\n", "some 200000 2000000\0",
        "30 23 0:26 / /sys/fs/cg\\040roup rw shared:4 master:2 - cgroup2 cgroup2 rw\n35 31 0:32 / /m rw - cgroup cgroup rw,memory\n",
        "c29tZSAyMDAwMDAgMjAwMDAwMAA=",
    ]

    static func mutated(_ text: String, with random: inout SeededGenerator) -> [UInt8] {
        var bytes = Array(text.utf8)
        for _ in 0..<Int.random(in: 1...6, using: &random) {
            let place = bytes.isEmpty ? 0 : Int.random(in: 0..<bytes.count, using: &random)
            switch Int.random(in: 0..<7, using: &random) {
            case 0: bytes.insert(UInt8.random(in: 0...255, using: &random), at: place)
            case 1 where !bytes.isEmpty: bytes.remove(at: place)
            case 2 where !bytes.isEmpty: bytes[place] = UInt8.random(in: 0...255, using: &random)
            case 3: bytes.insert(contentsOf: Array("99999999999999999999".utf8), at: place)
            case 4: bytes.removeSubrange(place...)
            case 5 where !bytes.isEmpty: bytes.append(contentsOf: bytes[place...])
            default: bytes.insert(contentsOf: [[0x20], [0x0A], [0x3A], [0x5C], [0x2F]].randomElement(using: &random)!, at: place)
            }
        }
        return bytes
    }

    @Test func `no mutation of any text traps, and parsed values are in range`() {
        var readable = 0
        for seed in seeds(0..<20_000) {
            var random = SeededGenerator(seed: seed)
            let bytes = Self.mutated(Self.golden.randomElement(using: &random)!, with: &random)
            for isVersion1 in [false, true] {
                if let stat = MemoryStat(bytes.span, isVersion1: isVersion1) {
                    readable += 1
                    #expect(stat.reclaimable >= 0, "seed \(seed)")
                }
            }
            if let memory = MachineMemory(bytes.span) {
                readable += 1
                #expect(memory.available <= memory.total && memory.available >= 0, "seed \(seed)")
            }
            if let limit = KernelText.limit(bytes.span) { #expect(limit >= 0, "seed \(seed)") }
            if let counts = PressureReading.EventCounts(bytes.span) { #expect(counts.max >= 0, "seed \(seed)") }
            if let totals = PressureReading.StallTotals(bytes.span) { #expect(totals.some >= .zero, "seed \(seed)") }
            _ = PressureReading.EventCounts.oomKills(bytes.span)
            _ = ProcessMemory.residentPages(bytes.span)
            _ = KernelText.bytes(bytes.span)
            _ = StallThreshold(bytes.span)
            let (membership, mounts) = (Membership(bytes), MountTable(bytes))
            for mount in mounts.unified + mounts.memory { _ = mount.place(of: membership.unified ?? membership.memory ?? "/a/b") }
            _ = ServiceManagerWatch.decode(String(decoding: bytes, as: UTF8.self))
        }
        if !hasChosenSeed { #expect(readable > 1000, "the property was exercised too seldom: \(readable)") }
    }

    @Test func `a source on mutated files gives readings or an error, in range and without trapping`() {
        var readings = 0
        for seed in seeds(0..<400) {
            var random = SeededGenerator(seed: seed)
            var files = seed % 2 == 0 ? Machines.version2(high: "500000000") : Machines.hybrid()
            let names = files.keys.sorted()
            let driver = SourceDriver(files)
            for _ in 0..<10 {
                let name = names.randomElement(using: &random)!
                files[name] = String(decoding: Self.mutated(files[name]!, with: &random), as: UTF8.self)
                driver.set(name, files[name]!)
                guard let reading = try? driver.read(after: .milliseconds(Int.random(in: 1...12_000, using: &random))) else { continue }
                readings += 1
                if let limit = reading.limit, let available = reading.available {
                    #expect(available >= .zero && available <= limit, "seed \(seed)")
                }
                #expect(reading.workingSet >= .zero && reading.workingSet <= reading.usage, "seed \(seed)")
                driver.wait()
            }
        }
        if !hasChosenSeed { #expect(readings > 3000, "\(readings)") }
    }
}
