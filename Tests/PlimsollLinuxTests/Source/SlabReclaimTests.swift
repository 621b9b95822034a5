import Testing

@testable import Plimsoll
@testable import PlimsollLinux

/// A group of version 2 with a model of slab reclaim: each charge beyond the limit takes page cache and free slab
/// objects in proportion.
private struct SlabGroup {
    let driver: SourceDriver
    let limit: Int
    var taken: Int
    var file = 0
    /// Bytes of objects in use, which no shrinker frees, and of unused objects.
    var (held, free) = (0, 0)
    var isKilled = false

    init(limit: Int, taken: Int) {
        (self.limit, self.taken) = (limit, taken)
        driver = SourceDriver(Machines.version2(max: "\(limit)"))
    }

    var usage: Int { taken + file + held + free }
    /// Bytes that can be charged before the kernel kills.
    var reallyAvailable: Int { limit - taken - held }

    /// Makes room under the limit as reclaim does: at least a sixth of the reclaimable bytes, in proportion to the
    /// sizes.
    mutating func reclaim() {
        guard usage > limit else { return }
        let size = file + free
        guard size >= usage - limit else {
            isKilled = true
            return
        }
        let wanted = max(usage - limit, size / 6)
        let ofFile = wanted * file / size
        file -= ofFile
        free -= wanted - ofFile
    }

    mutating func read() throws -> PressureReading {
        reclaim()
        driver.set(Machines.main + "/memory.current", "\(usage)\n")
        driver.set(Machines.main + "/memory.stat", Machines.stat(inactiveFile: file, slab: held + free))
        return try driver.read(after: .milliseconds(100))
    }
}

/// Tests that the reclaimable part of slab is learnt from the results of reclaim.
@Suite struct SlabReclaimTests {
    static let mib = Machines.mib

    @Test func `K21 dentries that come and go at the limit count as available: no level, and soon nearly all of them count`() throws {
        var group = SlabGroup(limit: 2048 * Self.mib, taken: 1178 * Self.mib)
        var assessor = PressureAssessor(), last: PressureReading?
        for _ in 0..<6000 {
            group.free += 20 * Self.mib
            let reading = try group.read()
            #expect(assessor.assess(reading).level == .normal)
            last = reading
        }
        let available = try #require(last?.available).bytes
        #expect(available >= group.reallyAvailable * 4 / 5 && available <= group.reallyAvailable, "\(available) of \(group.reallyAvailable)")
    }

    @Test func `K21 slab with held objects leads to a warning before the kernel kills, even after an earlier time as free slab`() throws {
        for wasFree in [false, true] {
            var group = SlabGroup(limit: 2048 * Self.mib, taken: 800 * Self.mib)
            for _ in 0..<(wasFree ? 2000 : 0) {
                group.free += 20 * Self.mib
                _ = try group.read()
            }
            // The program opens files, each with a dentry and an inode, up to 870 MiB of them. The page cache holds
            // little more than programs and libraries.
            group.file = 48 * Self.mib
            while group.held < 870 * Self.mib {
                group.held += 10 * Self.mib
                group.free = max(0, group.free - 10 * Self.mib)
                _ = try group.read()
            }
            var assessor = PressureAssessor(), warned: Int?, critical: Int?
            while !group.isKilled {
                group.taken += 2 * Self.mib
                let level = assessor.assess(try group.read()).level
                if level >= .warning { warned = warned ?? group.reallyAvailable }
                if level >= .critical { critical = critical ?? group.reallyAvailable }
            }
            #expect(warned ?? 0 >= 24 * Self.mib, "was free: \(wasFree), warned with \((warned ?? 0) / Self.mib) MiB left")
            #expect(critical ?? 0 >= 16 * Self.mib, "was free: \(wasFree), critical with \((critical ?? 0) / Self.mib) MiB left")
        }
    }

    @Test func `K21 reclaimed page cache proves nothing about slab, and slab never seen at a limit counts half`() throws {
        var group = SlabGroup(limit: 512 * Self.mib, taken: 100 * Self.mib)
        group.held = 64 * Self.mib
        #expect(try group.read().available == .mebibytes(512 - 164 + 32))
        for _ in 0..<100 {
            group.file += 20 * Self.mib
            _ = try group.read()
        }
        let available = try #require(try group.read().available)
        #expect(available >= .mebibytes(348 + 24) && available <= .mebibytes(348 + 32), "\(available)")
    }

    @Test func `K21 slab beyond the learnt amount counts half`() {
        var slab = SlabReclaim()
        var stat = MemoryStat()
        for size in [800, 600, 790, 600, 790, 600, 790, 600] {
            stat.slabReclaimable = size
            slab.learn(stat, usage: size == 600 ? 800 : 1000, limit: 1000)
        }
        #expect(slab.share > 0.9)
        #expect(slab.reclaimable(of: 800) > 720)
        #expect(slab.reclaimable(of: 2800) - slab.reclaimable(of: 800) == 1000)
    }
}
