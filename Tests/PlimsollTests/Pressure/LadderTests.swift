import PlimsollTesting
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite struct LadderTests {
    @Test func `the standard ladder passes the ladder's rules`() throws {
        #expect(try EscalationLadder(EscalationLadder.standard.rungs) == .standard)
    }

    @Test(arguments: [
        ([Rung(at: .critical, .warn), Rung(at: .warning, .warn)], "must not fall"),
        ([Rung(at: .critical, .expireBackgroundTasks(grace: .seconds(1)))], "patience"),
        ([Rung(at: .critical, .terminate(grace: .seconds(1)))], "patience"),
        ([Rung(at: .warning, after: .seconds(9), .terminate(grace: .seconds(1)))], "critical only"),
        ([Rung(at: .normal, .release)], "the normal level is no pressure"),
        ([Rung(at: .warning, after: .seconds(-1), .release)], "negative"),
        ([Rung(at: .critical, after: .seconds(5), .quiesce), Rung(at: .critical, .release)], "more patience"),
        ([Rung(at: .critical, .quiesce), Rung(at: .critical, .release)], "harsher"),
        (Array(repeating: Rung(at: .warning, .warn), count: 65), "64"),
    ])
    func `a ladder that descends or destroys without patience is refused with the reason`(rungs: [Rung], reason: String) {
        let mistake = #expect(throws: EscalationLadder.Mistake.self) { try EscalationLadder(rungs) }
        #expect(mistake?.reason.contains(reason) == true)
    }

    @Test func `each action is harsher than the action before, so that a ladder of all actions climbs`() throws {
        let all: [PressureAction] = [
            .warn, .release, .cancelLargestRequest(above: .mebibytes(1)), .quiesce, .expireBackgroundTasks(grace: .seconds(1)), .suspend,
            .terminate(grace: .seconds(1)),
        ]
        #expect(all.map(\.severity) == [0, 1, 2, 3, 4, 5, 6])
    }

    @Test func `numbers out of their range are refused with their name`() {
        func problem(_ change: (inout PressureThresholds) -> Void) -> String? {
            var thresholds = PressureThresholds.standard
            change(&thresholds)
            return thresholds.problem
        }
        typealias Margin = PressureThresholds.Margin
        #expect(problem { _ in } == nil)
        let changes: [(String, (inout PressureThresholds) -> Void)] = [
            ("criticalMargin", { $0.criticalMargin = Margin(share: 0.21) }),
            ("criticalMargin", { $0.criticalMargin = Margin(share: 0.1, atMost: .gibibytes(1) + 1) }),
            ("margins", { $0.warningMargin = Margin(share: 1.01) }), ("margins", { $0.criticalMargin = Margin(share: -0.01, atMost: .zero) }),
            ("margins", { $0.growthFloor = Margin(share: 1.01) }), ("margins", { $0.growthFloor = Margin(share: -0.01) }),
            ("fallFactor", { $0.fallFactor = 0.99 }), ("burstHalfLife", { $0.burstHalfLife = .milliseconds(999) }),
            ("burstReserve", { $0.burstReserve = 1.01 }), ("burstReserve", { $0.burstReserve = -0.01 }),
            ("stallWarning", { $0.stallWarning = 0 }), ("stallWarning", { $0.stallCritical = 0.19 }),
            ("stallWarning", { $0.stallWarning = .nan }), ("stallWarning", { $0.stallCritical = .nan }),
            ("fallFactor", { $0.fallFactor = .nan }), ("fallFactor", { $0.fallFactor = .infinity }),
            ("fallHold", { $0.fallHold = .nanoseconds(-1) }), ("recoveryHold", { $0.recoveryHold = .nanoseconds(-1) }),
            ("announcementRest", { $0.announcementRest = .nanoseconds(-1) }),
            ("atMost", { ($0.warningMargin.atMost, $0.criticalMargin.atMost) = (ByteCount(-1), ByteCount(-1)) }),
            ("atMost", { $0.criticalMargin.atMost = ByteCount(-1) }), ("atMost", { $0.growthFloor.atMost = ByteCount(-1) }),
            // Even an empty group would not have enough memory for the level to fall.
            ("never fall", { $0.warningMargin = Margin(share: 1) }),
            ("never fall", { ($0.warningMargin, $0.fallFactor) = (Margin(share: 0.25), 4) }),
        ]
        for (name, change) in changes { #expect(problem(change)?.contains(name) == true, "\(name)") }
        let allowed: [(inout PressureThresholds) -> Void] = [
            { $0.criticalMargin = $0.warningMargin }, { $0.growthFloor = Margin(share: 1) }, { $0.growthFloor = Margin(share: 0) },
            { $0.warningMargin = Margin(share: 1, atMost: .gibibytes(1)) }, { $0.fallFactor = 1 }, { $0.burstHalfLife = .seconds(1) },
            { $0.burstReserve = 0 }, { $0.burstReserve = 1 }, { $0.stallCritical = $0.stallWarning },
            { ($0.warningMargin, $0.fallFactor) = (Margin(share: 0.25), 3.99) }, { $0.stallCritical = .infinity },
            { ($0.fallHold, $0.recoveryHold, $0.announcementRest) = (.zero, .zero, .zero) }, { $0.growthFloor.atMost = .zero },
        ]
        for change in allowed { #expect(problem(change) == nil) }
    }

    @Test func `rungs fire in order`() {
        let outcome = Simulation().run(PressureTrace("__##############"))
        #expect(outcome.actions == "..qrerrrrrrrsrrr")
    }

    @Test func `a rung fires once an episode, and again in the next`() {
        let outcome = Simulation().run(PressureTrace("_####____________________####__"))
        let expiries = outcome.allActions.filter { if case .expireBackgroundTasks = $0 { true } else { false } }
        #expect(expiries.count == 2)
    }

    @Test func `C85 a level held while readings flap fires a rung once`() {
        var climb = LadderClimb(.standard), quiesced = 0, expired = 0
        for second in 0..<40 {
            // The level stays critical, although every other reading is below critical.
            let observed = second % 2 == 0 ? PressureLevel.critical : .warning
            for action in climb.climb(PressureAssessment(at: .seconds(second), level: .critical, observed: observed)) {
                if action == .quiesce { quiesced += 1 }
                if case .expireBackgroundTasks = action { expired += 1 }
            }
        }
        #expect(quiesced == 1 && expired == 0, "no reading was critical for two seconds without a break")
    }

    @Test func `the patience of a rung counts critical readings, not the held level`() {
        // The critical level is held for five seconds after the last critical reading, but nothing more is destroyed in
        // that time.
        let outcome = Simulation().run(PressureTrace("_#_______________"))
        #expect(!outcome.allActions.contains { $0.isDestructive })
    }

    @Test func `T40 the time of a rehearsal is no patience in the shortage that follows, and no rung is done`() {
        var climb = LadderClimb(.standard.terminating(after: .seconds(30)))
        func destructive(_ second: Int, _ evidence: PressureEvidence) -> [PressureAction] {
            climb.climb(PressureAssessment(at: .seconds(second), level: .critical, evidence: evidence))
                .filter(\.isDestructive)
        }
        let actions: [PressureAction] = [
            .expireBackgroundTasks(grace: .seconds(5)), .suspend, .terminate(grace: .seconds(10)),
        ]
        let rehearsed = (0...30).flatMap { destructive($0, .simulated) }
        #expect(rehearsed == actions)
        let real = (31...61).map { destructive($0, .headroom) }
        #expect(climb.criticalSince == .seconds(31))
        #expect(real[2] == [actions[0]] && real[10] == [actions[1]] && real[30] == [actions[2]])
        #expect(real.flatMap { $0 } == actions, "and nothing else")
    }

    @Test func `T30 the time of a freeze is no patience, as no reading has shown a level meanwhile`() {
        var climb = LadderClimb(.standard.terminating(after: .seconds(30)))
        func destructive(_ second: Int) -> [PressureAction] {
            climb.climb(PressureAssessment(at: .seconds(second), level: .critical, evidence: .headroom)).filter(\.isDestructive)
        }
        let before = (0...1).flatMap { destructive($0) }
        // Frozen for a minute.
        let after = (61...91).map { destructive($0) }
        let actions: [PressureAction] = [.expireBackgroundTasks(grace: .seconds(5)), .suspend, .terminate(grace: .seconds(10))]
        #expect(before.isEmpty && climb.criticalSince == .seconds(61))
        #expect(after[2] == [actions[0]] && after[10] == [actions[1]] && after[30] == [actions[2]])
        #expect(after.flatMap { $0 } == actions, "and nothing else")
    }

    @Test(
        arguments: [
            (nil, [0: [.warn], 1: [.warn], 10: [.quiesce]]),
            // With a calm reading in the middle of the rehearsal, the shortage is another episode.
            (3, [0: [.warn], 1: [.warn], 6: [.warn], 14: [.quiesce]]),
        ] as [(Int?, [Int: [PressureAction]])])
    func `a warning that was there all along keeps its patience and its rungs when a rehearsal ends`(
        calmAt: Int?, expected: [Int: [PressureAction]]
    ) throws {
        let ladder = try EscalationLadder([
            Rung(at: .warning, .warn), Rung(at: .warning, after: .seconds(10), .quiesce), Rung(at: .critical, .warn),
        ])
        var climb = LadderClimb(ladder), fired: [Int: [PressureAction]] = [:]
        let inbox = Inbox()
        for second in 0...20 {
            if second == 1 { inbox.simulate(.critical, for: .seconds(5)) }
            let level = second == calmAt ? PressureLevel.normal : .warning
            var assessment = PressureAssessment(at: .seconds(second), level: level)
            inbox.simulate(on: &assessment)
            for action in climb.climb(assessment) { fired[second, default: []].append(action) }
        }
        #expect(fired == expected)
    }

    @Test func `a level that was held all along repeats no rung when a rehearsal ends`() {
        var climb = LadderClimb(.standard), warned: [Int] = []
        let inbox = Inbox()
        for second in 0...9 {
            if second == 2 { inbox.simulate(.critical, for: .seconds(3)) }
            // The level is held between two readings that support it.
            let observed = second == 0 || second == 7 ? PressureLevel.warning : .normal
            var assessment = PressureAssessment(at: .seconds(second), level: .warning, observed: observed)
            inbox.simulate(on: &assessment)
            if Array(climb.climb(assessment)).contains(.warn) { warned.append(second) }
        }
        #expect(warned == [0, 2], "the second by the rehearsal")
    }

    @Test func `only an opted-in policy ends the process, at the given time, in each form of opting in`() throws {
        let trace = PressureTrace(String(repeating: "#", count: 60))
        #expect(!Simulation().run(trace).actions.contains("t"))
        /// Returns the second at which a process with that policy ends, and the grace for saving.
        func end(_ policy: PressurePolicy) -> (second: Int, grace: Duration)? {
            let outcome = Simulation(policy: policy).run(trace)
            let grace = outcome.allActions.compactMap(\.endingGrace).first
            return outcome.actions.firstIndex(of: "t").flatMap { end in
                grace.map { (outcome.actions.distance(from: outcome.actions.startIndex, to: end), $0) }
            }
        }
        let ladder = try EscalationLadder([
            Rung(at: .warning, .release), Rung(at: .critical, after: .seconds(25), .terminate(grace: .seconds(3))),
        ])
        // Each form has its own patience and grace.
        #expect(end(PressurePolicy(ladder: ladder)) ?? (0, .zero) == (25, .seconds(3)))
        #expect(end(PressurePolicy(ladder: .standard.terminating(after: .seconds(30), grace: .seconds(7)))) ?? (0, .zero) == (30, .seconds(7)))
        #expect(end(PressurePolicy(ladder: .standard.terminating(after: .seconds(4)))) ?? (0, .zero) == (4, .seconds(10)))
        // A ladder that already ends the process has one ending, the last one requested.
        let again = PressurePolicy(ladder: ladder.terminating(after: .seconds(40), grace: .seconds(4)))
        #expect(end(again) ?? (0, .zero) == (40, .seconds(4)) && again.ladder.rungs.count == 2)
        #expect(end(PressurePolicy(ladder: ladder.unending)) == nil)
    }

    @Test func `a ladder that cancels the largest request does so before work is shed, and once`() throws {
        let cancels = PressureAction.cancelLargestRequest(above: .mebibytes(64))
        let ladder = EscalationLadder.standard.cancellingLargestRequest(above: .mebibytes(8)).cancellingLargestRequest(above: .mebibytes(64))
        #expect(
            ladder.rungs.map(\.action).prefix(7) == [.warn, .release, .warn, .release, cancels, .quiesce, .expireBackgroundTasks(grace: .seconds(5))])
        #expect(ladder.rungs[4] == Rung(at: .critical, cancels) && ladder.rungs.count == 8 && ladder.cancellingNoRequest == .standard)
        // A ladder written by hand is allowed in that order only.
        #expect(try EscalationLadder(ladder.rungs) == ladder && EscalationLadder.none.cancellingLargestRequest(above: .zero).rungs.count == 1)
        let mistake = try #require(throws: EscalationLadder.Mistake.self) {
            try EscalationLadder([Rung(at: .critical, .quiesce), Rung(at: .critical, cancels)])
        }
        #expect(mistake.rung == 1 && mistake.reason == "cancel largest request (above 64 MiB) comes after the harsher quiesce")
    }

    @Test func `a ladder reports its ending, and a ladder without the ending can be derived`() throws {
        #expect(EscalationLadder.standard.ending == nil)
        let ladder = try EscalationLadder([Rung(at: .critical, after: .seconds(5), .terminate(grace: .seconds(6)))])
        #expect(ladder.ending ?? (.zero, .zero) == (.seconds(5), .seconds(6)) && ladder.unending == .none)
        let later = EscalationLadder.standard.terminating(after: .seconds(20)).terminating(after: .seconds(9), grace: .seconds(1))
        #expect(later.ending ?? (.zero, .zero) == (.seconds(9), .seconds(1)))
        #expect(later.rungs.count { $0.action.endingGrace != nil } == 1 && later.unending == .standard)
    }
}

@Suite struct PolicyTests {
    func report(released: ByteCount, fall: ByteCount, took: Duration = .zero, trim: Duration = .zero) -> ActionReport {
        ActionReport(
            eventID: 0, action: .release, level: .warning, evidence: .headroom, began: .zero, took: took, asked: .mebibytes(60), released: released,
            trim: trim,
            before: Footprint(resident: .gibibytes(1)), after: Footprint(resident: .gibibytes(1) - fall))
    }

    @Test func `T21 K30 a useless purge holds off the next, unless memory gets shorter`() {
        var governor = PurgeGovernor()
        func start(_ second: Int, _ available: ByteCount) -> Bool { governor.start(at: .seconds(second), level: .warning, available: available) }
        let first = start(0, .mebibytes(100)), second = start(0, .mebibytes(100))
        #expect(first && !second, "single flight")
        governor.finished(report(released: .zero, fall: .zero), at: .seconds(1), available: .mebibytes(100))
        #expect(governor.lastWasUseless)
        // An eighth less is not yet a new danger: the line is at a quarter.
        let eighth = start(2, .mebibytes(88)), quarter = start(3, .mebibytes(75))
        #expect(!eighth && !quarter)
        let tooSoon = start(30, .mebibytes(100)), worse = start(30, .mebibytes(70))
        #expect(!tooSoon && worse, "a quarter less is available")
        governor.finished(report(released: .zero, fall: .zero), at: .seconds(30), available: .mebibytes(70))
        let later = start(60, .mebibytes(70))
        #expect(later)
    }

    @Test func `another purge may follow a useful one at once, and a long useless one after twenty times its length`() {
        var governor = PurgeGovernor()
        func start(_ second: Int) -> Bool { governor.start(at: .seconds(second), level: .warning, available: nil) }
        _ = start(0)
        governor.finished(report(released: .mebibytes(50), fall: .mebibytes(40), took: .seconds(1)), at: .seconds(1), available: nil)
        let atOnce = start(1)
        #expect(atOnce)
        governor.finished(report(released: .mebibytes(50), fall: .mebibytes(1), took: .seconds(1)), at: .seconds(2), available: nil)
        let early = start(21), due = start(22)
        #expect(!early && due)
    }

    @Test(arguments: [(percent: 0, isUseless: true), (9, true), (10, false), (11, false), (49, false), (100, false)])
    func `T21 a purge is useless when the heap fell by less than a tenth of the released bytes`(percent: Int, isUseless: Bool) {
        var governor = PurgeGovernor()
        _ = governor.start(at: .zero, level: .warning, available: nil)
        governor.finished(report(released: .mebibytes(100), fall: .mebibytes(percent)), at: .zero, available: nil)
        #expect(governor.lastWasUseless == isUseless)
    }

    @Test(arguments: [(kibibytes: 1023, isUseless: true), (1024, false), (1500, false)])
    func `T21 a purge that released nothing is useless unless the heap gave back a mebibyte`(kibibytes: Int, isUseless: Bool) {
        var governor = PurgeGovernor()
        _ = governor.start(at: .zero, level: .warning, available: nil)
        governor.finished(report(released: .zero, fall: .kibibytes(kibibytes)), at: .zero, available: nil)
        #expect(governor.lastWasUseless == isUseless)
    }

    @Test(arguments: [(kibibytes: 1023, rest: 30), (1024, 5)])
    func `T21 after a useless purge the next rests for 5 s, and for 30 s if less than a mebibyte was released`(kibibytes: Int, rest: Int) {
        var governor = PurgeGovernor()
        _ = governor.start(at: .zero, level: .warning, available: nil)
        governor.finished(report(released: .kibibytes(kibibytes), fall: .zero), at: .zero, available: nil)
        let early = governor.start(at: .seconds(rest) - .nanoseconds(1), level: .warning, available: nil)
        let due = governor.start(at: .seconds(rest), level: .warning, available: nil)
        #expect(!early && due)
    }

    @Test func `K28 trimming takes a twentieth of the time, at the critical level a fifth`() {
        var governor = PurgeGovernor()
        _ = governor.start(at: .zero, level: .warning, available: nil)
        governor.finished(report(released: .mebibytes(50), fall: .mebibytes(40), trim: .seconds(1)), at: .zero, available: nil)
        let calm = governor.start(at: .seconds(18), level: .warning, available: nil)
        let urgent = governor.start(at: .seconds(4), level: .critical, available: nil)
        #expect(!calm && urgent)
    }

    @Test func `K6 two stall totals of one moment count as one read, and half a second between two reads is enough`() {
        var meter = StallMeter(), plain = StallMeter()
        meter.add(.zero, at: .zero)
        meter.add(.milliseconds(500), at: .zero)
        meter.add(.milliseconds(500), at: .seconds(1))
        plain.add(.zero, at: .zero)
        plain.add(.milliseconds(500), at: .seconds(1))
        #expect(meter.share == plain.share && plain.share > 0)
        var soon = StallMeter()
        soon.add(.zero, at: .zero)
        soon.add(.milliseconds(250), at: .milliseconds(500))
        #expect(soon.share > 0)
    }

    @Test func `T24 caches grow back in steps`() {
        var ramp = RefillRamp()
        let room = ByteCount.mebibytes(80)
        let before = ramp.allowance(room: room, level: .normal, at: .zero)
        let during = ramp.allowance(room: room, level: .warning, at: .seconds(1))
        #expect(before == room && during == .zero)
        let steps = (2...6).map { ramp.allowance(room: room, level: .normal, at: .seconds($0)) }
        #expect(steps == [room * 0.25, room * 0.5, room, room, room])
        let unlimited = ramp.allowance(room: nil, level: .critical, at: .seconds(9))
        #expect(unlimited == .max)
    }

    @Test func `each level is announced at most once in the resting time`() {
        var announcer = Announcer(rest: .seconds(25))
        func announce(_ level: PressureLevel, at second: Int, evidence: PressureEvidence = .headroom) -> PressureEvent? {
            announcer.event(for: PressureAssessment(at: .seconds(second), level: level, evidence: evidence))
        }
        #expect(announce(.normal, at: 0) == nil)
        #expect(announce(.warning, at: 1)?.id == 1)
        #expect(announce(.warning, at: 2) == nil)
        #expect(announce(.critical, at: 3)?.previous == .warning)
        #expect(announce(.normal, at: 10)?.id == 3)
        #expect(announce(.warning, at: 12) == nil, "rests")
        #expect(announce(.critical, at: 13) == nil, "rests")
        #expect(announce(.critical, at: 28)?.level == .critical, "still so after the rest")
        #expect(announce(.normal, at: 40)?.level == .normal)
        #expect(announce(.critical, at: 41, evidence: .simulated)?.isSimulated == true, "a rehearsal is always reported")
    }

    @Test func `K23 the pace follows the danger and the cost of a poll`() {
        func pace(
            available: ByteCount, growth: ByteCount = .zero, holds: Bool = true, rings: Bool = false,
            cost: Duration = .microseconds(10)
        ) -> Duration {
            let limit = ByteCount.mebibytes(512)
            let reading = PressureReading(at: .zero, limit: limit, usage: limit - available, available: available)
            let timeLeft = growth > .zero ? Duration.seconds(Double(available.bytes) / Double(growth.bytes)) : nil
            let assessment = PressureAssessment(at: .zero, timeLeft: timeLeft, growth: growth)
            return Pace.interval(after: assessment, reading, holds: holds, rings: rings, turnCost: cost, thresholds: .standard)
        }
        #expect(pace(available: .mebibytes(50), holds: false) == .seconds(1), "nothing to give, nothing to hurry for")
        #expect(pace(available: .mebibytes(450)) == .seconds(1))
        #expect(pace(available: .mebibytes(200), rings: true) == .seconds(1), "the kernel rings")
        let middle = pace(available: .mebibytes(200))
        #expect(middle > .milliseconds(400) && middle < .milliseconds(600))
        #expect(pace(available: .mebibytes(60), cost: .microseconds(1)) < .milliseconds(4))
        #expect(pace(available: .mebibytes(60), cost: .microseconds(15)) == .milliseconds(10), "calm: bounded by cost")
        #expect(pace(available: .mebibytes(60), growth: .gibibytes(2), cost: .microseconds(20)) < .milliseconds(4), "danger: not bounded by cost")
        #expect(pace(available: .zero, growth: .gibibytes(2)) == .milliseconds(1))
    }

    @Test func `senseless thresholds give the reason`() {
        #expect(PressureThresholds.standard.problem == nil)
        #expect(PressureThresholds(warningMargin: .init(share: 0.05)).problem?.contains("criticalMargin") == true)
        #expect(PressureThresholds(fallFactor: 0.5).problem?.contains("fallFactor") == true)
        #expect(PressureThresholds(warningMargin: .init(share: 2), criticalMargin: .init(share: 0.1)).problem?.contains("0...1") == true)
    }
}
