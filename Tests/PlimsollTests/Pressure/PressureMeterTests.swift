import Testing

@testable import Plimsoll

/// The meters behind an assessment, each on its own.
@Suite struct PressureMeterTests {
    @Test func `growth is the rise a second of what cannot be reclaimed, without what caches have taken`() {
        var meter = GrowthMeter(smoothing: 0)
        func growth(_ pinned: Int?, charged: Int = 5, at second: Int) -> Int {
            meter.add(pinned: pinned.map { ByteCount($0) }, charged: ByteCount(charged), at: .seconds(second))
            return meter.perSecond.bytes
        }
        #expect(growth(1000, charged: 10, at: 100) == 0)
        #expect(growth(1105, charged: 15, at: 102) == 50)
        // Memory that caches have released may not have reached the kernel yet.
        #expect(growth(1205, at: 103) == 100)
        #expect(growth(1155, at: 104) == 0)
        #expect(growth(1156, at: 105) == 1)
        #expect(growth(9000, at: 105) == 1, "two readings of one moment have no rate")
        #expect(growth(1186, at: 106) == 30)
        _ = growth(nil, at: 107)
        #expect(growth(5000, at: 108) == 30, "nothing is known of the time before")
        #expect(growth(5007, at: 109) == 7)
    }

    @Test func `with a smoothing of a second, half of a change shows after a second`() {
        var meter = GrowthMeter(smoothing: 1), seen: [ByteCount] = []
        for second in 0..<4 {
            meter.add(pinned: ByteCount(second * 100), charged: .zero, at: .seconds(second))
            seen.append(meter.perSecond)
        }
        #expect(seen == [0, 50, 75, 87])
    }

    @Test func `the stall share follows the total, up to all of the time, and is zero without a total`() {
        var meter = StallMeter()
        func permille(_ total: Int?, at second: Int) -> Int {
            meter.add(total.map { Duration.seconds($0) }, at: .seconds(second))
            return Int((meter.share * 1000).rounded())
        }
        #expect(permille(100, at: 50) == 0)
        #expect(permille(104, at: 60) == 200)
        #expect(permille(124, at: 70) == 600)
        #expect(permille(129, at: 80) == 550)
        _ = permille(nil, at: 81)
        #expect(meter.share == 0)
        #expect(permille(139, at: 91) == 0, "nothing is known of the time before")
        #expect(permille(144, at: 101) == 250)
    }

    @Test func `a burst counts from the least of a second, and a restart forgets all but the usual size`() {
        var meter = BurstMeter(), count = 0
        /// Returns the rises of eleven readings in MiB, each 10 MiB and 100 milliseconds after the one before.
        func rises() -> [Int] {
            (0...10).map { step in
                let at = Duration.seconds(100) + .milliseconds(100 * count)
                meter.add(pinned: .mebibytes(100 + 10 * step), charged: .zero, at: at)
                count += 1
                return meter.rise.bytes >> 20
            }
        }
        let expected = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 60]
        let first = rises(), lasting = meter.lasting.perSecond
        #expect(first == expected && lasting > .zero)
        meter.restart()
        #expect(meter.rise == .zero && meter.lasting.perSecond == .zero && meter.usual == .zero)
        let second = rises()
        #expect(second == expected && meter.lasting.perSecond == lasting)
    }

    @Test func `a burst that a restart or an unknown size interrupts is not remembered`() {
        func interrupted(by change: (inout BurstMeter) -> Void) -> [ByteCount] {
            var meter = BurstMeter()
            meter.add(pinned: .mebibytes(60), charged: .zero, at: .zero)
            meter.add(pinned: .mebibytes(160), charged: .zero, at: .milliseconds(100))
            let rise = meter.rise
            change(&meter)
            let after = meter.rise
            for step in 2...4 { meter.add(pinned: .mebibytes(160), charged: .zero, at: .milliseconds(100 * step)) }
            return [rise, after, meter.rise, meter.usual]
        }
        let forgotten: [ByteCount] = [.mebibytes(100), .zero, .zero, .zero]
        let restarted = interrupted { $0.restart() }
        let unknown = interrupted { $0.add(pinned: nil, charged: .zero, at: .milliseconds(150)) }
        #expect(restarted == forgotten && unknown == forgotten)
    }

    @Test func `of two sizes at one moment the first counts`() {
        var meter = BurstMeter()
        meter.add(pinned: .mebibytes(60), charged: .zero, at: .zero)
        meter.add(pinned: .mebibytes(160), charged: .zero, at: .zero)
        #expect(meter.rise == .zero)
        meter.add(pinned: .mebibytes(70), charged: .zero, at: .milliseconds(100))
        #expect(meter.rise == .mebibytes(10))
    }

    @Test(arguments: [(0, 5), (499, 5), (500, 5), (999, 5), (1000, 9), (1499, 9)])
    func `a low value counts for less than two spans`(milliseconds: Int, expected: Int) {
        var least = RecentLeast(span: .milliseconds(500))
        _ = least.add(5, at: .seconds(100))
        let found = least.add(9, at: .seconds(100) + .milliseconds(milliseconds))
        #expect(found == ByteCount(expected))
    }
}

/// The rules of purges, of the pace and of growing back, to the nanosecond.
@Suite struct PressureTimingTests {
    private func report(released: ByteCount, fall: ByteCount, trim: Duration = .zero) -> ActionReport {
        ActionReport(
            eventID: 0, action: .release, level: .warning, evidence: .headroom, began: .zero, asked: .mebibytes(60),
            released: released, trim: trim, before: Footprint(resident: .gibibytes(1)),
            after: Footprint(resident: .gibibytes(1) - fall))
    }

    @Test func `the first purge may start, and the next one once the first was given up`() {
        var governor = PurgeGovernor()
        #expect(!governor.isRunning && !governor.lastWasUseless)
        let first = governor.start(at: .zero, level: .warning, available: nil)
        let meanwhile = governor.start(at: .seconds(60), level: .warning, available: nil)
        governor.abandoned()
        let next = governor.start(at: .seconds(60), level: .warning, available: nil)
        #expect(first && !meanwhile && next)
    }

    @Test func `once memory was plentiful, a purge need not wait for the results of the last one`() {
        var governor = PurgeGovernor()
        _ = governor.start(at: .zero, level: .warning, available: nil)
        governor.finished(report(released: .zero, fall: .zero, trim: .seconds(1)), at: .zero, available: nil)
        let early = governor.start(at: .seconds(1), level: .warning, available: nil)
        #expect(governor.lastWasUseless && !early)
        governor.reset()
        #expect(!governor.lastWasUseless)
        let next = governor.start(at: .seconds(1), level: .warning, available: nil)
        #expect(next)
    }

    @Test(arguments: [(PressureLevel.warning, 19), (.critical, 4)])
    func `after a trim of a second the next purge waits for 19 s, at the critical level for 4 s`(
        level: PressureLevel, seconds: Int
    ) {
        var governor = PurgeGovernor()
        _ = governor.start(at: .zero, level: level, available: nil)
        governor.finished(
            report(released: .mebibytes(50), fall: .mebibytes(40), trim: .seconds(1)), at: .seconds(7), available: nil)
        let early = governor.start(at: .seconds(7 + seconds) - .nanoseconds(1), level: level, available: nil)
        let due = governor.start(at: .seconds(7 + seconds), level: level, available: nil)
        #expect(!early && due)
    }

    @Test func `a reading that is older than the end of a purge starts no other purge`() {
        var governor = PurgeGovernor()
        _ = governor.start(at: .zero, level: .critical, available: .mebibytes(20))
        var report = report(released: .mebibytes(60), fall: .mebibytes(60))
        report.took = .milliseconds(50)
        governor.finished(report, at: .milliseconds(40), available: .mebibytes(20))
        let stale = governor.start(at: .milliseconds(40), level: .critical, available: .mebibytes(20))
        let fresh = governor.start(at: .milliseconds(50), level: .critical, available: .mebibytes(20))
        #expect(!stale && fresh)
    }

    @Test func `the measured effects are the falls of both numbers, and the heap's fall the greater one`() {
        var report = report(released: 10, fall: .zero)
        report.before = Footprint(resident: 100, usage: 200)
        report.after = Footprint(resident: 70, usage: 190)
        #expect(report.residentFall == 30 && report.usageFall == 10 && report.heapFall == 30 && !report.isDryRun)
        report.between = Footprint(resident: 75, usage: 240)
        #expect(report.residentFall == 30 && report.usageFall == 10 && report.heapFall == 50)
    }

    @Test func `K23 the pace follows the fastest growth seen`() {
        func milliseconds(surge: Int, timeLeft: Duration?) -> Int {
            let reading = PressureReading(
                at: .zero, limit: 1_000_000_000, usage: 600_000_000, available: 400_000_000)
            let assessment = PressureAssessment(at: .zero, timeLeft: timeLeft, surge: ByteCount(surge))
            let pace = Pace.interval(
                after: assessment, reading, holds: true, rings: false, turnCost: .zero, thresholds: .standard)
            return Int((pace.inSeconds * 1000).rounded())
        }
        #expect(milliseconds(surge: 3_200_000_000, timeLeft: nil) == 16)
        #expect(milliseconds(surge: 3_200_000_000, timeLeft: .seconds(4)) == 16)
        #expect(milliseconds(surge: 800_000_000, timeLeft: .milliseconds(80)) == 10)
        #expect(milliseconds(surge: 0, timeLeft: .seconds(4)) == 500)
    }

    @Test func `T24 each step of growing back takes a second`() {
        var ramp = RefillRamp()
        let room = ByteCount.mebibytes(80)
        #expect(ramp.isFull && ramp.portion(of: room) == room)
        let during = ramp.allowance(room: room, level: .warning, at: .seconds(10))
        #expect(during == .zero && !ramp.isFull && ramp.portion(of: room) == .zero)
        let steps: [(milliseconds: Int, share: Double)] = [
            (10_500, 0.125), (10_999, 0.125), (11_000, 0.25), (11_999, 0.25), (12_000, 0.5), (12_999, 0.5),
            (13_000, 1), (60_000, 1),
        ]
        for (milliseconds, share) in steps {
            let allowance = ramp.allowance(room: room, level: .normal, at: .milliseconds(milliseconds))
            #expect(allowance == room * share && ramp.isFull == (share == 1), "at \(milliseconds) ms")
        }
    }

    @Test func `T24 without a limit nothing is held back, whatever was before`() {
        var ramp = RefillRamp()
        let room = ByteCount.mebibytes(80)
        _ = ramp.allowance(room: room, level: .warning, at: .seconds(10))
        let unlimited = ramp.allowance(room: nil, level: .normal, at: .seconds(11))
        #expect(unlimited == .max && ramp.isFull && ramp.portion(of: room) == room)
    }

    @Test func `the pauses between trims that free nothing double up to 128 s`() {
        var trim = IdleTrim(), times: [Int] = []
        for second in 0...600 {
            guard trim.isDue(at: .seconds(second), pinned: .mebibytes(50), isHeldBack: true) else { continue }
            times.append(second)
            trim.finished(fall: .zero, took: .milliseconds(1), at: .seconds(second))
        }
        #expect(times == [0, 4, 12, 28, 60, 124, 252, 380, 508])
    }

    @Test func `a trim under way counts as begun, and four mebibytes make a trim worth the walk`() {
        var begun = IdleTrim()
        let due = [0, 1, 1999, 2000].map { milliseconds in
            begun.isDue(at: .milliseconds(milliseconds), pinned: .mebibytes(50), isHeldBack: true)
        }
        #expect(due == [true, false, false, true])
        let falls: [(fall: ByteCount, pause: Int)] = [(.mebibytes(4), 2), (ByteCount.mebibytes(4) - 1, 4)]
        for (fall, pause) in falls {
            var trim = IdleTrim(), next: Int?
            _ = trim.isDue(at: .zero, pinned: .mebibytes(50), isHeldBack: true)
            trim.finished(fall: fall, took: .milliseconds(1), at: .zero)
            for second in 1...8 where next == nil {
                if trim.isDue(at: .seconds(second), pinned: .mebibytes(40), isHeldBack: true) { next = second }
            }
            #expect(next == pause)
        }
    }

    @Test func `memory that has grown by four mebibytes since the last trim is worth another one at once`() {
        let cases: [(fall: Int, pinned: ByteCount, isDue: Bool)] = [
            (0, .mebibytes(64), true), (0, ByteCount.mebibytes(64) - 1, false), (3, .mebibytes(61), true),
            (3, ByteCount.mebibytes(61) - 1, false), (-10, .mebibytes(64), true),
        ]
        for (fall, pinned, isDue) in cases {
            var trim = IdleTrim()
            _ = trim.isDue(at: .zero, pinned: .mebibytes(60), isHeldBack: true)
            trim.finished(fall: .mebibytes(fall), took: .milliseconds(1), at: .zero)
            let found = trim.isDue(at: .seconds(1), pinned: pinned, isHeldBack: true)
            #expect(found == isDue, "fall \(fall), pinned \(pinned)")
        }
    }

    @Test func `memory that has grown makes no trim due while trims take more than a hundredth of the time`() {
        var trim = IdleTrim()
        _ = trim.isDue(at: .zero, pinned: .mebibytes(60), isHeldBack: true)
        trim.finished(fall: .zero, took: .milliseconds(500), at: .zero)
        let early = trim.isDue(at: .seconds(49), pinned: .mebibytes(64), isHeldBack: true)
        let due = trim.isDue(at: .seconds(51), pinned: .mebibytes(64), isHeldBack: true)
        #expect(!early && due)
    }

    @Test func `a counter that moves makes checks due a quarter of a second apart`() {
        var watch = DropWatch()
        let steps: [(milliseconds: Int, freed: Int, isDue: Bool)] = [
            (0, 9, false), (1000, 10, true), (1249, 11, false), (1250, 11, true), (1500, 12, true),
        ]
        for (milliseconds, freed, isDue) in steps {
            let reading = PressureReading(
                at: .milliseconds(milliseconds), volatile: .mebibytes(100), lazyFreed: .mebibytes(freed))
            let found = watch.isDue(reading, isTight: false)
            #expect(found == isDue, "at \(milliseconds) ms")
        }
    }
}

/// Levels, their announcements, and the values of which they are made.
@Suite struct PressureValueTests {
    @Test func `a level falls by one, and the lowest stays`() {
        #expect(PressureLevel.allCases.map(\.below) == [.normal, .normal, .warning])
    }

    @Test func `a published level tells of each fall`() {
        let published = PublishedLevel()
        let levels: [PressureLevel] = [.normal, .critical, .critical, .warning, .warning, .normal]
        let falls = levels.map { level in published.publish(level) && published.level == level }
        #expect(falls == [false, false, false, true, false, true])
    }

    @Test func `each kind of evidence has a bit and a name of its own`() {
        let kinds: [(PressureEvidence, String)] = [
            (.headroom, "headroom"), (.growth, "growth"), (.stall, "stall"), (.limitEvents, "limit events"),
            (.limitLowered, "limit lowered"), (.announced, "announced"), (.simulated, "simulated"),
        ]
        for (index, (kind, name)) in kinds.enumerated() {
            #expect(kind.rawValue == UInt8(1) << UInt8(index) && kind.description == name)
        }
    }

    @Test func `a level is withheld while its last announcement is recent, until the level is back or announced`() {
        var announcer = Announcer(rest: .seconds(25))
        /// Returns the announced level and the withheld one.
        func announce(_ level: PressureLevel, at second: Int) -> [PressureLevel?] {
            let event = announcer.event(for: PressureAssessment(at: .seconds(1000 + second), level: level))
            return [event?.level, announcer.withheld]
        }
        #expect(announce(.critical, at: 0) == [.critical, nil])
        #expect(announce(.warning, at: 1) == [.warning, nil], "another level than the one announced")
        #expect(announce(.normal, at: 2) == [.normal, nil])
        #expect(announce(.warning, at: 3) == [nil, .warning])
        #expect(announce(.normal, at: 4) == [nil, nil])
        #expect(announce(.warning, at: 25) == [nil, .warning])
        #expect(announce(.warning, at: 26) == [.warning, nil])
    }

    @Test func `a climb that begins at critical fires all rungs without patience`() {
        var climb = LadderClimb(.standard)
        let actions = Array(climb.climb(PressureAssessment(at: .seconds(9), level: .critical)))
        #expect(actions == [.warn, .release, .warn, .release, .quiesce])
    }

    @Test func `a ladder has up to 64 rungs, and the first one too many is named`() throws {
        let rung = Rung(at: .warning, .warn)
        #expect(try EscalationLadder(Array(repeating: rung, count: 64)).rungs.count == 64)
        let mistake = try #require(throws: EscalationLadder.Mistake.self) {
            try EscalationLadder(Array(repeating: rung, count: 65))
        }
        #expect(mistake.rung == 64)
    }

    @Test func `sums, differences and products saturate at both ends`() {
        let least = ByteCount(Int.min)
        #expect(least + ByteCount(-1) == least && ByteCount.max - ByteCount(-1) == .max)
        #expect(ByteCount.max * 1 == .max && least * 2 == least && least * 1 == least)
        #expect(ByteCount(1) * -Double.infinity == least && ByteCount(1) * Double.infinity == .max)
    }

    @Test func `text of two to the power of 63 bytes is refused, and less is parsed`() {
        #expect(ByteCount("8388608T") == nil)
        #expect(ByteCount("8388607T") == ByteCount(8_388_607 << 40))
    }

    @Test func `idle memory is what is free and the cache of files`() {
        #expect(PressureReading.IdleMemory(total: 10, free: 3, file: 4).sum == 7)
    }

    @Test func `the margin of a verdict is the largest, and what is held is no room in the machine`() {
        #expect(VolatileRoomTests.judge(VolatileRoomTests.reading(free: 116)).margin == .mebibytes(16))
        let machine = PressureReading.IdleMemory(total: .gibibytes(4), free: .mebibytes(900))
        let verdict = VolatileRoomTests.judge(
            VolatileRoomTests.reading(limit: 2048, free: 1500, held: 100, machine: machine))
        let margin = ByteCount.gibibytes(4) * 0.1
        #expect(verdict.margin == margin && verdict.allowance == .mebibytes(900) - margin)
    }
}

/// The rates by which purgeables are ordered.
@Suite struct RebuildRateTests {
    private func orders(of rates: [Double]) -> [[Double]] {
        guard !rates.isEmpty else { return [[]] }
        return rates.indices.flatMap { index -> [[Double]] in
            var others = rates
            let first = others.remove(at: index)
            return orders(of: others).map { [first] + $0 }
        }
    }

    @Test(
        arguments: [
            ([1, 30, 1000], 30), ([1, 30, 1000, 30_000], 30), ([1, 30, 30, 1000], 30), ([1, 1, 30], 1), ([1, 30, 30], 30),
            ([7], 7), ([], 0),
        ] as [([Double], Double)])
    func `an unknown rate has the place of the median, the lesser of two, in any order`(known: [Double], median: Double) {
        for rates in orders(of: known) {
            var all: [Double?] = rates
            all.append(nil)
            let order = RebuildOrder(all.indices) { [all] in all[$0] }
            #expect(order.place(of: nil) == median, "\(rates)")
        }
    }

    @Test func `rates beyond all measure count as unknown`() {
        let rates: [Double?] = [50, 1e300, 1.5e300, 2]
        let order = RebuildOrder(rates.indices) { rates[$0] }
        let places = rates.map { order.place(of: $0) }
        #expect(places == [50, 2, 2, 2] && order.place(of: 1e299) == 1e299)
    }

    @Test func `each load counts a thirty-second less with the next one`() {
        var rate = RebuildRate()
        rate.add(.nanoseconds(3200), bytes: 32)
        #expect(rate.nanosecondsPerByte == 100)
        rate.add(.nanoseconds(900), bytes: 1)
        #expect(rate.nanosecondsPerByte == 125)
        rate.add(.nanoseconds(999), bytes: 0)
        rate.add(.nanoseconds(-1), bytes: 1)
        #expect(rate.nanosecondsPerByte == 125 && RebuildRate(bits: rate.bits) == rate)
        var one = RebuildRate()
        one.add(.nanoseconds(100), bytes: 1)
        #expect(one.nanosecondsPerByte == 100)
    }
}
