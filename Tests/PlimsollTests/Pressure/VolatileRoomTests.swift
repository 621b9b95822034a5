import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The room for volatile memory, decided by numbers alone.
@Suite struct VolatileRoomTests {
    /// Returns a reading of a group of `limit` MiB with `free` MiB unused and `file` MiB of inactive file pages, `held`
    /// MiB of them volatile.
    static func reading(limit: Int = 512, free: Int, file: Int = 0, held: Int = 0, at: Double = 0, machine: PressureReading.IdleMemory? = nil)
        -> PressureReading
    {
        var reading = PressureReading(
            at: .seconds(at), boundary: .maximum, limit: .mebibytes(limit), usage: .mebibytes(limit - free),
            workingSet: .mebibytes(limit - free - file), available: .mebibytes(free + file), volatile: .mebibytes(held))
        reading.machineIdle = machine
        return reading
    }

    static func judge(_ reading: PressureReading, growth: ByteCount = .zero) -> VolatileRoom.Verdict {
        var room = VolatileRoom()
        return room.judge(reading, growth: growth)
    }

    @Test(arguments: [(64, 8), (128, 16), (256, 16), (1024, 30), (4096, 122), (65536, 512)])
    func `the margin is a share of the limit, with bounds`(limit: Int, margin: Int) {
        #expect(VolatileRoom.margin(below: .mebibytes(limit)).bytes >> 20 == margin)
    }

    @Test func `growth widens the margin up to an eighth, and the machine keeps more`() {
        #expect(VolatileRoom.margin(below: .gibibytes(1), growth: .mebibytes(100)) == .mebibytes(50))
        #expect(VolatileRoom.margin(below: .gibibytes(1), growth: .gibibytes(10)) == .mebibytes(128))
        #expect(VolatileRoom.margin(ofMachine: .gibibytes(24)) == .gibibytes(1))
        #expect(VolatileRoom.margin(ofMachine: .gibibytes(4)) == .gibibytes(4) * 0.1)
    }

    @Test func `memory free beyond the margin may be taken, and small amounts are ignored`() {
        #expect(Self.judge(Self.reading(free: 116)).allowance == .mebibytes(100))
        #expect(Self.judge(Self.reading(free: 116)).excess == .zero)
        #expect(Self.judge(Self.reading(free: 20)).allowance == .mebibytes(4))
        #expect(Self.judge(Self.reading(free: 19)).allowance == .zero, "3 MiB would wake the manager for a segment")
        #expect(Self.judge(PressureReading(at: .zero)).allowance == .max, "nothing is known, so nothing bounds")
    }

    @Test func `low free memory is restored up to the margin, not at the first byte below`() {
        #expect(Self.judge(Self.reading(free: 9, file: 300, held: 300)).excess == .zero)
        #expect(Self.judge(Self.reading(free: 7, file: 300, held: 300)).excess == .mebibytes(9))
        #expect(Self.judge(Self.reading(free: 0, file: 300, held: 300)).excess == .mebibytes(16))
        #expect(Self.judge(Self.reading(free: 0, file: 2, held: 2)).excess == .mebibytes(2), "no more than is held")
        #expect(Self.judge(Self.reading(free: 0)).excess == .zero)
    }

    @Test func `page cache that fills the group is idle except for two margins`() {
        let filled = Self.judge(Self.reading(free: 0, file: 400, held: 300))
        #expect(filled.allowance == .mebibytes(100 - 32) && filled.excess == .zero)
        let between = Self.judge(Self.reading(free: 0, file: 330, held: 300))
        #expect(between.allowance == .zero && between.excess == .zero, "a band in which nothing moves")
        let little = Self.judge(Self.reading(free: 0, file: 310, held: 300))
        #expect(little.excess == .mebibytes(16), "the few pages of the program itself are no margin")
    }

    @Test func `no reading both allows bytes and asks them back`() {
        var random = SeededGenerator(seed: usualSeed(1))
        var given = 0, asked = 0
        for _ in 0..<20_000 {
            let free = Int.random(in: 0...80, using: &random), held = Int.random(in: 0...200, using: &random)
            let verdict = Self.judge(
                Self.reading(free: free, file: Int.random(in: 0...300, using: &random), held: held),
                growth: .mebibytes(Int.random(in: 0...200, using: &random)))
            #expect(verdict.allowance == .zero || verdict.excess == .zero)
            #expect(verdict.excess <= .mebibytes(held) && verdict.allowance >= .zero)
            given += verdict.allowance > .zero ? 1 : 0
            asked += verdict.excess > .zero ? 1 : 0
        }
        #expect(given > 1000 && asked > 1000, "the property was never exercised")
    }

    @Test func `transient free memory counts as room only after seconds`() {
        var room = VolatileRoom()
        #expect(room.judge(Self.reading(free: 216, at: 0), growth: .zero).allowance == .mebibytes(200))
        // The cache took 150 MiB. Others took 60 MiB and gave them back.
        #expect(room.judge(Self.reading(free: 6, file: 150, held: 150, at: 1), growth: .zero).excess == .mebibytes(10))
        #expect(room.judge(Self.reading(free: 76, file: 140, held: 140, at: 2), growth: .zero).allowance == .zero)
        #expect(room.judge(Self.reading(free: 76, file: 140, held: 140, at: 6), growth: .zero).allowance == .zero)
        #expect(room.judge(Self.reading(free: 76, file: 140, held: 140, at: 12), growth: .zero).allowance == .mebibytes(60))
    }

    @Test func `pages that the kernel reclaimed unseen do not count as room twice`() {
        var room = VolatileRoom()
        _ = room.judge(Self.reading(free: 20, file: 300, held: 300, at: 0), growth: .zero)
        // An allocator took 100 MiB: 20 free MiB and 80 MiB of volatile memory, which the reading still counts as held.
        let verdict = room.judge(Self.reading(free: 0, file: 220, held: 300, at: 1), growth: .zero)
        #expect(verdict.allowance == .zero && verdict.excess == .mebibytes(16))
    }

    @Test func `less than half a margin free is tight, half a margin is not`() {
        // The margin is 16 MiB.
        #expect(!Self.judge(Self.reading(free: 8, file: 300, held: 300)).isTight)
        #expect(Self.judge(Self.reading(free: 7, file: 300, held: 300)).isTight)
        let below = PressureReading(
            at: .zero, boundary: .maximum, limit: .mebibytes(512), usage: .mebibytes(504) + .bytes(1), workingSet: .mebibytes(504) + .bytes(1),
            available: .mebibytes(8) - .bytes(1), volatile: .zero)
        #expect(!Self.judge(Self.reading(free: 8)).isTight && Self.judge(below).isTight)
    }

    @Test func `ten seconds after a burst the freed memory is room again`() {
        var room = VolatileRoom()
        // The first reading begins a span, as `at` is far from zero.
        #expect(room.judge(Self.reading(free: 100, at: 100), growth: .zero).allowance == .mebibytes(84))
        for second in 1..<10 {
            #expect(room.judge(Self.reading(free: 216, at: 100 + Double(second)), growth: .zero).allowance == .mebibytes(84))
        }
        #expect(room.judge(Self.reading(free: 216, at: 110), growth: .zero).allowance == .mebibytes(200))
    }

    @Test(arguments: [100, 250, 900]) func `a low value is forgotten after five to ten seconds, at any pace of polls`(milliseconds: Int) {
        var least = RecentLeast(span: .seconds(5))
        #expect(least.add(10, at: .seconds(100)) == 10)
        var forgotten: Double?
        for step in 1...(12_000 / milliseconds) {
            let after = Double(step * milliseconds) / 1000
            if least.add(50, at: .seconds(100 + after)) == 50 { forgotten = forgotten ?? after } else { #expect(forgotten == nil) }
        }
        #expect(forgotten.map { $0 > 5 && $0 <= 10.9 } == true, "\(forgotten ?? -1) s")
    }

    @Test func `a low value counts for five seconds at least`() {
        for offset in 0..<20 {
            var least = RecentLeast(span: .seconds(5))
            _ = least.add(50, at: .seconds(100))
            let low = 100.0 + Double(offset) / 2
            #expect(least.add(10, at: .seconds(low)) == 10)
            for step in 1...9 {
                #expect(least.add(50, at: .seconds(low + Double(step) / 2)) == 10, "low at \(low), \(step) halves of a second later")
            }
        }
    }

    @Test func `taking half of the allowance wakes the manager, once`() {
        for (part, wakes) in [(49, 0), (50, 0), (51, 1), (99, 1)] {
            let woken = Counter(), meter = ChargeMeter { woken.add(1) }
            meter.takeAnyway(1000)
            meter.allow(.mebibytes(100), since: meter.heldBytes)
            #expect(meter.take(part << 20) && woken.value == wakes, "\(part) %")
            #expect(meter.take(1 << 20) && woken.value == (part < 50 ? 0 : 1), "once")
        }
    }

    @Test func `neighbours outside the group count: the machine bounds the group's allowance`() {
        let machine = PressureReading.IdleMemory(total: .gibibytes(4), free: .mebibytes(500))
        let verdict = Self.judge(Self.reading(limit: 2048, free: 1000, machine: machine))
        #expect(verdict.allowance == .mebibytes(500) - .gibibytes(4) * 0.1)
        let full = PressureReading.IdleMemory(total: .gibibytes(4), free: .mebibytes(50), file: .mebibytes(300))
        #expect(Self.judge(Self.reading(limit: 2048, free: 1000, file: 300, held: 300, machine: full)).excess == .mebibytes(300))
    }

    @Test func `numbers of any shape are judged without trapping`() {
        let extremes = [Int.min, -1, 0, 1, 4096, 1 << 40, Int.max].map { ByteCount($0) }
        var random = SeededGenerator(seed: usualSeed(2))
        var room = VolatileRoom()
        for _ in 0..<10_000 {
            let any = { extremes.randomElement(using: &random)! }
            let idle = PressureReading.IdleMemory(total: any(), free: any(), file: any())
            var reading = PressureReading(at: .seconds(Double.random(in: -1e9...1e9, using: &random)), volatile: any())
            reading.idle = idle
            reading.machineIdle = Bool.random(using: &random) ? idle : nil
            #expect(room.judge(reading, growth: any()).allowance >= .zero)
        }
    }

    // MARK: Filling

    /// Simulates a cache that fills a group as fast as pages can be touched, beside a service that allocates and frees.
    /// Counts the polls of the manager, and the memory that stays free.
    @Test func `a group is filled in few polls, and then the manager is not woken`() {
        let wakeups = Mutex(0)
        let meter = ChargeMeter(wakesWhenRefusing: false) { wakeups.withLock { $0 += 1 } }
        var room = VolatileRoom(), lookedAt = -1.0, rung = 0, refused = 0, shrunk = 0, late = 0, leastFree = Int.max
        let limit = 512, segment = 2 << 20
        for millisecond in 0..<60_000 {
            let second = Double(millisecond) / 1000
            // The service takes 50 MB/s for 100 ms and frees the memory at once: 5 MiB up and down. For a while 40 MiB
            // more are in use.
            let others = (100 << 20) + (millisecond % 100) * (50 << 10) + ((20_000..<30_000).contains(millisecond) ? 40 << 20 : 0)
            if meter.take(segment) { late += second > 1 ? 1 : 0 } else { refused += 1 }
            var held = meter.heldBytes.bytes
            if second > 1, second < 20 || second > 21 { leastFree = min(leastFree, (limit << 20) - others - held) }
            let count = wakeups.withLock { $0 }
            guard count > rung || second - lookedAt >= 0.513 else { continue }
            (rung, lookedAt) = (count, second)
            // The kernel reclaims memory where the manager was late.
            held = min(held, (limit << 20) - others)
            meter.give(meter.heldBytes.bytes - held)
            let reading = PressureReading(
                at: .seconds(second), limit: .mebibytes(limit), usage: ByteCount(others + held), workingSet: ByteCount(others),
                volatile: ByteCount(held))
            let verdict = room.judge(reading, growth: .zero)
            if verdict.excess > .zero {
                shrunk += 1
                meter.give(verdict.excess.bytes)
            }
            meter.allow(verdict.allowance, since: reading.volatile - verdict.excess)
        }
        #expect(refused > 50_000, "the cache pushed all the time")
        #expect(rung <= 16, "rung \(rung) times: halving 400 MiB down to 4 takes seven, at the start and when 40 MiB are free again")
        #expect(shrunk <= 2, "asked back \(shrunk) times")
        #expect(late <= 40, "\(late) segments after the first second")
        #expect(leastFree >= 8 << 20, "\(leastFree >> 20) MiB free at the least")
    }

    // MARK: Drops

    @Test func `polls follow the kernel's counter, and only while volatile memory is held`() {
        var watch = DropWatch()
        func due(_ freed: Int?, at: Double, held: Int = 100, events: Int? = nil, isTight: Bool = false) -> Bool {
            let reading = PressureReading(
                at: .seconds(at), events: events.map { .init(max: $0) }, volatile: .mebibytes(held), lazyFreed: freed.map { .mebibytes($0) })
            return watch.isDue(reading, isTight: isTight)
        }
        #expect(!due(5, at: 0, held: 0) && !due(9, at: 1, held: 0), "nothing to lose")
        #expect(!due(9, at: 2) && !due(9, at: 100, isTight: true), "the counter stands")
        #expect(due(10, at: 101) && !due(11, at: 101.1) && due(11, at: 101.3))
        #expect(due(0, at: 110), "another group's counter")
        #expect(!due(7, at: 200, held: 0) && !due(7, at: 300), "pages taken while nothing was held")
        watch = DropWatch()
        #expect(!due(nil, at: 0, events: 3) && !due(nil, at: 50, events: 3))
        #expect(due(nil, at: 51, events: 4) && !due(nil, at: 51.5, events: 5) && due(nil, at: 52, events: 5))
        #expect(!due(nil, at: 55, events: 5, isTight: true) && due(nil, at: 62, events: 5, isTight: true))
        #expect(!due(nil, at: 100, events: 5), "idle: not checked")
        #expect(!due(nil, at: 200, held: 0, events: 6) && !due(nil, at: 300, events: 6), "the limit was met while nothing was held")
    }

    @Test func `the probe detects a kernel without MADV_FREE, a locked process, and a kernel that drops at once`() {
        #expect(VolatileMemory.verdict(marked: 0, isKept: { true }, isLocked: { false }) == .live)
        #expect(VolatileMemory.verdict(marked: 0, isKept: { false }, isLocked: { false }) == .droppedAtOnce)
        #expect("\(VolatileMemory.verdict(marked: 22, isKept: { true }, isLocked: { true }))".contains("mlockall"))
        #expect("\(VolatileMemory.verdict(marked: 22, isKept: { true }, isLocked: { false }))".contains("no MADV_FREE"))
        #expect(VolatileMemory.signal.isLive == VolatileMemory.isSupported)
        let manager = ResourceManager(source: ScriptedPressureSource())
        #expect(manager.capabilities["volatile memory"] == VolatileMemory.signal && manager.capabilities["script"] != nil)
    }

    @Test func `the manager's own actions are never a rung`() {
        #expect(throws: EscalationLadder.Mistake.self) { try EscalationLadder([Rung(at: .warning, .makeRoom)]) }
        #expect(throws: EscalationLadder.Mistake.self) { try EscalationLadder([Rung(at: .critical, .noticeDrops)]) }
    }
}
