import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Counts of a status, and the numbers that holders claim.
@Suite(.timeLimit(.minutes(5))) struct StatusRuleTests {
    private func report(_ action: PressureAction = .release, evidence: PressureEvidence = .headroom) -> ActionReport {
        ActionReport(eventID: 1, action: action, level: .warning, evidence: evidence, began: .zero)
    }

    private func counts(_ fill: (ActionTally) -> Void) -> ManagerCounts {
        let tally = ActionTally()
        fill(tally)
        return tally.counts(superseded: 3, overwritten: 4)
    }

    @Test func `changes of level are counted by level and each kind of evidence, falls without any`() {
        let counts = counts { tally in
            tally.moved(to: .warning, [.headroom, .limitLowered])
            tally.moved(to: .critical, .simulated)
            tally.moved(to: .critical, .simulated)
            tally.moved(to: .warning, [])
            tally.moved(to: .normal, [])
            tally.rested()
            tally.rested()
        }
        let changes = counts.transitions.map { "\($0.to) \($0.source) \($0.count)" }
        #expect(
            changes == [
                "normal none 1", "warning headroom 1", "warning limit lowered 1", "warning none 1",
                "critical simulated 2",
            ])
        #expect(counts.dropped.map(\.reason) == ["superseded", "rested", "overwritten"])
        #expect(counts.dropped.map(\.count) == [3, 2, 4] && counts.actions.isEmpty)
        #expect(counts.releases == ManagerCounts.Releases() && counts.releases.count == 0)
    }

    @Test func `actions are counted by kind, mode and outcome, and releases of any kind unless in a dry run`() {
        var dry = report(), refused = report(.suspend), overran = report(.warn)
        dry.isDryRun = true
        refused.outcome = .refused("a reason")
        overran.outcome = .overran(["observer"])
        let reports = [
            report(), report(), report(evidence: .simulated), report(.makeRoom), report(.noticeDrops), dry, refused,
            overran,
        ]
        let counts = counts { tally in for report in reports { tally.add(report) } }
        let actions = counts.actions.map { "\($0.action), \($0.mode), \($0.outcome): \($0.count)" }
        #expect(
            Set(actions) == [
                "warn, live, overran: 1", "release, live, done: 2", "release, dry run, done: 1",
                "release, simulated, done: 1", "suspend, live, refused: 1", "make room, live, done: 1",
                "notice drops, live, done: 1",
            ])
        #expect(actions.count == 7 && counts.releases.count == 5 && counts.releases.byDuration == [5, 0, 0, 0, 0, 0, 0])
    }

    @Test func `an action is of a dry run by its flag or its outcome, else simulated or live`() {
        var flagged = report(evidence: .simulated), decided = report(evidence: .simulated)
        flagged.isDryRun = true
        decided.outcome = .dryRun
        let reports = [flagged, decided, report(evidence: [.simulated, .stall]), report()]
        #expect(reports.map { ActionMode($0) } == [.dryRun, .dryRun, .simulated, .live])
    }

    @Test func `an action shows the bytes of a cancelled request, and of no other action`() {
        var cancelled = report(.cancelLargestRequest(above: .zero))
        (cancelled.cancelledRequest, cancelled.cancelledBytes) = ("GET /", 7)
        let shown = ActionStatus(cancelled), other = ActionStatus(report())
        #expect(shown.cancelledRequest == "GET /" && shown.cancelledBytes == 7)
        #expect(other.cancelledRequest == nil && other.cancelledBytes == nil && other.eventID == 1)
    }

    @Test func `a move lists the caches whose shares changed, those that grew most first`() {
        let changes = [("a", 5, 5), ("b", 9, 2), ("c", 1, 4), ("d", 3, 8)]
        let move = Divider.Move(
            began: .seconds(1), at: .seconds(2), gain: 0.5,
            changes: changes.map { .init(name: $0.0, before: $0.1, after: $0.2) })
        let shown = MoveStatus(move)
        #expect(shown.atSeconds == 2 && shown.savedShare == 0.5 && shown.changes.map(\.name) == ["d", "c", "b"])
        #expect(shown.changes.map(\.beforeBytes) == [3, 1, 9] && shown.changes.map(\.afterBytes) == [8, 4, 2])
    }

    @Test func `refused requests of a priority are summed, up to the largest number`() {
        var counts = RequestCounts()
        #expect(counts.exempted == 0 && counts.refused("normal") == 0)
        counts.refused = ["normal": ["arrivals": 2, "paused": 3], "critical": ["arrivals": .max, "paused": 1]]
        #expect(counts.refused("normal") == 5 && counts.refused("critical") == .max)
    }

    // MARK: - Holders

    @Test(arguments: [(7, 7), (0, 0), (-1, 0), (.max, 1 << 50)] as [(Int, Int)])
    func `a holder's bytes are shown from nothing to a pebibyte`(held: Int, shown: Int) {
        let manager = ResourceManager(source: FallingSource(), time: ManualClock().timekeeper)
        manager.register(NotedHolder(held: held))
        manager.register(NotedVolatile(held: held))
        let holders = manager.status.holders
        #expect(holders.map(\.heldBytes) == [shown, shown] && holders.map(\.volatileBytes) == [shown, nil])
        #expect(holders.allSatisfy { $0.unansweredSeconds == nil && $0.worth == nil && $0.limitBytes == nil })
    }

    @Test func `volatile bytes are shown apart, and a rate that is no number is not shown`() {
        let manager = ResourceManager(source: FallingSource(), time: ManualClock().timekeeper)
        manager.register(NotedVolatile(held: 7, isVolatile: false))
        for rate in [nil, 2.5, .infinity, .nan] as [Double?] { manager.register(NotedHolder(held: 1, rate: rate)) }
        let holders = manager.status.holders
        #expect(holders.map(\.volatileBytes) == [0, nil, nil, nil, nil])
        #expect(holders.map(\.rebuildNanosecondsPerByte) == [nil, nil, 2.5, nil, nil])
    }

    @Test func `a recorder is told of each holder's bytes, of other code's at the last answer`() {
        let manager = ResourceManager(source: FallingSource(), time: ManualClock().timekeeper)
        let cache = PurgeableCache<Int, Int>("cache", cost: { _, _ in 100 }), holder = NotedHolder("holder", held: 5)
        cache.insert(1, forKey: 1)
        manager.register(PurgeableCache<Int, Int>("empty", cost: { _, _ in 100 }))
        manager.register(cache)
        manager.register(holder)
        manager.register(NotedVolatile(held: 7))
        func holders() -> [String] {
            var lines: [String] = []
            let turn = RecordedTurn(PressureReading(at: .zero), PressureAssessment(at: .zero), manager.parts)
            turn.eachHolder { name, bytes, isVolatile in
                lines.append("\(name) \(bytes)\(isVolatile ? " volatile" : "")")
            }
            return lines
        }
        #expect(holders() == ["volatile 0 volatile", "empty 0", "cache 100", "holder 0"], "nobody has asked yet")
        _ = manager.status
        holder.notes.withLock { $0.held = 6 }
        cache.insert(2, forKey: 2)
        #expect(holders() == ["volatile 7 volatile", "empty 0", "cache 200", "holder 5"])
    }

    @Test func `a recorder is told of what a pass has counted since the last status, also during a call`() {
        let manager = ResourceManager(source: FallingSource(), time: ManualClock().timekeeper)
        let holder = NotedHolder(held: 5), purger = manager.parts.purger
        manager.register(holder)
        func pass() {
            var report = report()
            report.asked = 1
            purger.post(.init(report: report, includesPrecious: false))
            let goesOn = inTurn { turn in purger.run(turn) { _ in } }
            #expect(goesOn)
        }
        func held() -> [Int] {
            var bytes: [Int] = []
            let turn = RecordedTurn(PressureReading(at: .zero), PressureAssessment(at: .zero), manager.parts)
            turn.eachHolder { _, held, _ in bytes.append(held) }
            return bytes
        }
        _ = manager.status
        holder.notes.withLock { $0.held = 900 }
        pass()
        #expect(held() == [900])
        let isInside = manager.parts.purgeables.snapshot[0].gate.call { pass() }
        #expect(isInside && held() == [900] && holder.asked == [1])
    }

    @Test func `the held bytes of a cache are those of now, also while another call asks the cache`() {
        let manager = ResourceManager(source: FallingSource(), time: ManualClock().timekeeper)
        let cache = PurgeableCache<Int, Int>("cache", cost: { _, _ in 100 })
        cache.insert(1, forKey: 1)
        let registration = manager.register(cache)
        var held = 0
        let isInside = manager.parts.purgeables.snapshot[0].statusGate.call { held = manager.heldBytes() }
        #expect(isInside && held == 100)
        registration.cancel()
        #expect(manager.heldBytes() == 0)
    }

    @Test func `the held bytes are asked of no purgeable whose registration has ended meanwhile`() {
        let manager = ResourceManager(source: FallingSource(), time: ManualClock().timekeeper)
        let last = Mutex<Registration?>(nil), asked = Counter()
        manager.register(NotedHolder("first", held: 10, onCount: { last.withLock { $0 }?.cancel() }))
        let registration = manager.register(NotedHolder("last", held: 5, onCount: { asked.add(1) }))
        #expect(manager.heldBytes() == 15 && asked.value == 1)
        last.withLock { $0 = registration }
        #expect(manager.heldBytes() == 10 && asked.value == 1)
    }
}
