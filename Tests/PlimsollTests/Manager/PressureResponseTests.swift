import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The response to a shortage, turn by turn, with passes that the test runs.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PressureResponseTests {
    private let source = ScriptedPressureSource(), clock = ManualClock(), exits = RunningManager.Exits()

    private func manager(_ policy: PressurePolicy = .standard) -> ResourceManager {
        let exits = exits
        return ResourceManager(source: source, policy: policy, time: clock.timekeeper, exit: { exits.add($0, $1) })
    }

    /// Returns the response of a manager whose purgeables are registered already.
    private func response(of manager: ResourceManager) -> PressureResponse {
        PressureResponse(policy: manager.policy, parts: manager.parts, source: source, time: clock.timekeeper)
    }

    private func turn(
        _ at: Duration, _ level: PressureLevel, _ response: inout PressureResponse, shortfall: ByteCount = .zero,
        available: ByteCount = .mebibytes(20), room: ByteCount? = .mebibytes(1)
    ) {
        let reading = PressureReading(
            at: at, limit: .gibibytes(1), usage: .gibibytes(1) - available, available: available)
        let assessment = PressureAssessment(
            at: at, level: level, shortfall: shortfall, room: level == .normal ? room : ByteCount.zero,
            evidence: level == .normal ? [] : .headroom)
        response.respond(to: assessment, reading)
    }

    /// Runs the pass that waits, if any, and returns the report.
    @discardableResult
    private func pass(of manager: ResourceManager) -> ActionReport? {
        let purger = manager.parts.purger, reports = Log<ActionReport>()
        let goesOn = inTurn { turn in purger.run(turn) { reports.add($0) } }
        #expect(goesOn)
        return reports.all.first
    }

    /// A part that notes the level and the rung that its members are to follow.
    private final class Member: ManagerPart {
        let calls = Log<String>()
        var canQuiesce: Bool { true }
        func admit(at level: PressureLevel, isQuiescing: Bool) {
            calls.add("\(level)\(isQuiescing ? ", quiescing" : "")")
        }
    }

    // MARK: - Holders

    @Test func `a purge can release what asked purgeables hold, and what nobody counts`() {
        func holdsAnything(_ purgeables: [any Purgeable]) -> Bool {
            let manager = manager()
            for purgeable in purgeables { manager.register(purgeable) }
            return response(of: manager).holdsAnything
        }
        let kept = PurgeableCache<Int, Int>("kept", releasesUnderPressure: false, cost: { _, _ in 100 })
        let empty = PurgeableCache<Int, Int>("empty", cost: { _, _ in 100 })
        let full = PurgeableCache<Int, Int>("full", cost: { _, _ in 100 })
        kept.insert(1, forKey: 1)
        full.insert(1, forKey: 1)
        #expect(!holdsAnything([]) && !holdsAnything([kept]) && !holdsAnything([empty]) && holdsAnything([full]))
        #expect(holdsAnything([NotedHolder(held: 0)]), "a purgeable without a meter may hold anything")
    }

    @Test(arguments: [(0, false), (50 << 20, true)])
    func `purgeables without a meter count as empty after a pass that released nothing, until memory is plentiful`(
        held: Int, holdsMore: Bool
    ) {
        let manager = manager(), holder = NotedHolder(held: held)
        manager.register(holder)
        var response = response(of: manager)
        turn(.zero, .warning, &response, shortfall: .mebibytes(50))
        let report = pass(of: manager)
        #expect(report?.released == ByteCount(held))
        turn(.seconds(1), .warning, &response)
        #expect(response.holdsAnything == holdsMore)
        turn(.seconds(2), .normal, &response)
        #expect(response.holdsAnything)
        // The pause after a useless pass is over as well.
        turn(.seconds(3), .warning, &response, shortfall: .mebibytes(50))
        #expect(manager.parts.purger.isAwaited)
    }

    @Test func `a metered cache that a pass has emptied holds nothing more`() {
        let manager = manager(), cache = PurgeableCache<Int, Int>("cache", cost: { _, _ in 1 << 20 })
        for key in 0..<10 { cache.insert(key, forKey: key) }
        manager.register(cache)
        var response = response(of: manager)
        turn(.zero, .critical, &response, shortfall: .mebibytes(50))
        #expect(response.holdsAnything && pass(of: manager)?.released == .mebibytes(10))
        turn(.seconds(1), .critical, &response)
        #expect(!response.holdsAnything && cache.count == 0)
    }

    // MARK: - Passes

    @Test(arguments: [(1, 1 << 20), ((1 << 20) + 1, (1 << 20) + 1)])
    func `a pass asks for a mebibyte at least`(shortfall: Int, asked: Int) {
        let manager = manager()
        manager.register(NotedHolder(held: 100 << 20))
        var response = response(of: manager)
        turn(.zero, .warning, &response, shortfall: ByteCount(shortfall))
        let report = pass(of: manager)
        #expect(report?.asked == ByteCount(asked) && report?.released == ByteCount(asked) && report?.isDryRun == false)
    }

    @Test(
        arguments: [
            (.normal, 1, true), (.normal, 0, false), (.normal, nil, true), (.warning, 1, false),
        ] as [(PressureLevel, Int?, Bool)])
    func `a pass under way may stop when memory is not short and there is room`(
        level: PressureLevel, room: Int?, isNeedGone: Bool
    ) {
        let manager = manager()
        var response = response(of: manager)
        let reading = PressureReading(at: .zero, limit: .gibibytes(1), usage: .zero)
        let assessment = PressureAssessment(at: .zero, level: level, room: room.map { ByteCount($0) })
        response.respond(to: assessment, reading)
        #expect(manager.parts.purger.isNoLongerNeeded() == isNeedGone)
    }

    @Test func `a small purgeable that is expensive to rebuild is asked once memory was critical for a second`() {
        let manager = manager(), small = NotedHolder(held: 5 << 20, .expensive)
        manager.register(small)
        var response = response(of: manager)
        /// Takes a turn with a shortage and runs the pass, then takes a turn that records the result.
        func pass(_ milliseconds: Int, _ level: PressureLevel, available: Int) -> [Int] {
            let at = Duration.seconds(60) + .milliseconds(milliseconds), available = ByteCount.mebibytes(available)
            turn(at, level, &response, shortfall: .mebibytes(240), available: available)
            #expect(manager.parts.purger.isAwaited)
            self.pass(of: manager)
            turn(at, level, &response, available: available)
            return small.asked
        }
        // Each pass finds a quarter less, so that the useless one before is no reason to wait.
        #expect(pass(0, .warning, available: 160) == [])
        #expect(pass(1000, .critical, available: 100) == [])
        #expect(pass(1999, .critical, available: 70) == [])
        #expect(pass(2000, .critical, available: 50) == [5 << 20])
    }

    @Test func `after a shortage purgeables may grow again once all the room is granted, and there is room`() {
        let manager = manager(), holder = NotedHolder(held: 100 << 20), purger = manager.parts.purger
        manager.register(holder)
        var response = response(of: manager)
        turn(.zero, .normal, &response)
        #expect(!purger.isAwaited, "nothing was restricted")
        turn(.seconds(1), .warning, &response, shortfall: .mebibytes(40))
        pass(of: manager)
        #expect(holder.restrictions == [.mebibytes(60)])
        for second in [2, 3] {
            turn(.seconds(second), .normal, &response)
            #expect(!purger.isAwaited, "not all of the room is granted yet")
        }
        turn(.seconds(4), .normal, &response, room: .zero)
        #expect(!purger.isAwaited, "there is no room")
        turn(.seconds(5), .normal, &response)
        #expect(purger.isAwaited)
        let report = pass(of: manager)
        #expect(report == nil && holder.restrictions == [.mebibytes(60), nil] && holder.asked.count == 1)
        turn(.seconds(6), .normal, &response)
        #expect(!purger.isAwaited, "once")
    }

    @Test func `a restriction that another call has kept in force is lifted in a later turn`() {
        let manager = manager(), holder = NotedHolder(held: 100 << 20), purger = manager.parts.purger
        manager.register(holder)
        var response = response(of: manager)
        turn(.seconds(1), .warning, &response, shortfall: .mebibytes(40))
        pass(of: manager)
        for second in 2...4 { turn(.seconds(second), .normal, &response) }
        #expect(purger.isAwaited)
        let entry = manager.parts.purgeables.snapshot[0]
        let isInside = entry.gate.call { pass(of: manager) }
        #expect(isInside && !purger.isAwaited && holder.restrictions == [.mebibytes(60)])
        turn(.seconds(5), .normal, &response)
        #expect(purger.isAwaited)
        pass(of: manager)
        #expect(holder.restrictions == [.mebibytes(60), nil])
        turn(.seconds(6), .normal, &response)
        #expect(!purger.isAwaited, "once")
    }

    /// A purgeable that blocks when its restriction is lifted.
    private final class Clinging: Purgeable {
        let name = "clinging", rebuildCost = RebuildCost.cheap
        private let blockade: Blockade

        init(_ blockade: Blockade) { self.blockade = blockade }

        var heldBytes: Int { 0 }
        func release(_ target: Int) -> Int { 0 }
        func restrict(to limit: ByteCount?) { if limit == nil { blockade.wait() } }
    }

    @Test func `after a lifting that hangs was given up, the other restrictions are lifted`() async {
        let manager = manager(), holder = NotedHolder(held: 100 << 20), blockade = Blockade()
        manager.register(Clinging(blockade))
        manager.register(holder)
        var response = response(of: manager)
        turn(.seconds(1), .warning, &response, shortfall: .mebibytes(40))
        pass(of: manager)
        for second in 2...4 { turn(.seconds(second), .normal, &response) }
        manager.parts.purgeWorker.start()
        await until("the lifting") { blockade.count == 1 }
        #expect(holder.restrictions == [.mebibytes(60)])
        // The calls of the next thread begin at the time of the turns.
        clock.advance(by: .seconds(60))
        for second in 60...61 { turn(.seconds(second), .normal, &response) }
        await until("the other lifting") { holder.restrictions == [.mebibytes(60), nil] }
        blockade.open()
        manager.parts.purgeWorker.stop()
    }

    @Test func `a restriction ends with the registration, and a purgeable without a restriction is left alone`() {
        let manager = manager(), holder = NotedHolder(held: 100 << 20), late = NotedHolder(held: 100 << 20)
        let registration = manager.register(holder)
        var response = response(of: manager)
        turn(.seconds(1), .warning, &response, shortfall: .mebibytes(40))
        pass(of: manager)
        manager.register(late).cancel()
        registration.cancel()
        #expect(holder.restrictions == [.mebibytes(60), nil] && late.restrictions.isEmpty)
        registration.cancel()
        #expect(holder.restrictions.count == 2, "lifted once")
    }

    @Test func `a restriction ends with the manager`() async throws {
        let manager = manager(), holder = NotedHolder(held: 100 << 20)
        manager.register(holder)
        let run = Task { try await manager.run() }
        source.push(usage: .mebibytes(1004), limit: .gibibytes(1))
        // The pass is reported after the restriction.
        await until("the pass") { manager.reports.contains { $0.action == .release } }
        run.cancel()
        try await run.value
        #expect(holder.restrictions == [ByteCount.zero, nil])
    }

    @Test func `a pass that is under way at the end of the manager lifts the restriction, and sets none`() {
        let manager = manager(), purger = manager.parts.purger, isOver = Counter()
        let holder = NotedHolder(held: 100 << 20, onCount: { if isOver.value > 0 { _ = purger.end() } })
        manager.register(holder)
        var response = response(of: manager)
        turn(.seconds(1), .warning, &response, shortfall: .mebibytes(40))
        pass(of: manager)
        #expect(holder.restrictions == [.mebibytes(60)])
        isOver.add(1)
        turn(.seconds(2), .warning, &response)
        turn(.seconds(60), .warning, &response, shortfall: .mebibytes(40))
        pass(of: manager)
        #expect(holder.asked.count == 2 && holder.restrictions == [.mebibytes(60), nil])
    }

    @Test func `a restriction is lifted at the end once another call of the purgeable has returned`() async throws {
        let manager = manager(), purger = manager.parts.purger, holder = NotedHolder(held: 100 << 20)
        manager.register(holder)
        var response = response(of: manager)
        turn(.seconds(1), .warning, &response, shortfall: .mebibytes(40))
        pass(of: manager)
        let entry = manager.parts.purgeables.snapshot[0], blockade = Blockade(), inside = Counter()
        let call: Task<Bool, any Error> = onThread {
            entry.gate.call(at: .zero) {
                inside.add(1)
                blockade.wait()
            }
        }
        await until("the call") { inside.value == 1 }
        let end: Task<Bool, any Error> = onThread {
            defer { purger.liftAll() }
            return purger.end()
        }
        blockade.open()
        let hasCalled = try await call.value, mayLift = try await end.value
        #expect(hasCalled && mayLift)
        #expect(holder.restrictions == [.mebibytes(60), nil])
    }

    @Test func `a keeper that is stuck in a purgeable is given up, and the purgeable is named`() async {
        let manager = manager(), blockade = Blockade(), keeper = manager.parts.keeper
        manager.register(NotedVolatile("stuck", held: 100, onCall: { if $0 == .release { blockade.wait() } }))
        manager.parts.purgeWorker.start()
        var request = VolatileKeeper.Request()
        request.excess = 10
        let isPosted = keeper.post(request, for: PressureReading(at: .zero))
        manager.parts.purgeWorker.request()
        await until { blockade.count == 1 }
        #expect(isPosted && !keeper.isFree(for: PressureReading(at: .seconds(60))))
        var response = response(of: manager)
        turn(.seconds(60), .normal, &response)
        let report = manager.reports.last
        #expect(report?.action == .release && report?.outcome == .overran(["stuck"]) && report?.took == .seconds(5))
        #expect(keeper.isFree(for: PressureReading(at: .seconds(60))))
        blockade.open()
        manager.parts.purgeWorker.stop()
    }

    // MARK: - Shares of a supervisor

    @Test func `within a share of a supervisor, memory that is kept for bursts may be taken, up to the share`() {
        let manager = manager(), cache = PurgeableCache<Int, Int>("cache", cost: { _, _ in 1 })
        manager.register(cache)
        var response = response(of: manager), assessment = PressureAssessment(at: .zero, room: .mebibytes(10))
        assessment.roomToLine = .mebibytes(30)
        let reading = PressureReading(at: .zero, limit: .gibibytes(1), usage: .zero)
        func room(share: Int?) -> Int {
            manager.parts.divider.share(share.map { ProcessShare(bytes: $0 << 20, total: 1 << 30) })
            manager.parts.divider.round { _, body in
                body()
                return true
            }
            response.respond(to: assessment, reading)
            return manager.parts.meter.room >> 20
        }
        #expect(room(share: nil) == 10)
        #expect(room(share: 64) == 30)
        #expect(room(share: 20) == 20)
        #expect(room(share: nil) == 10)
    }

    @Test(arguments: [false, true]) func `memory is divided in rounds, but not in a dry run`(isDryRun: Bool) {
        let manager = manager(PressurePolicy(isDryRun: isDryRun)), divider = manager.parts.divider
        var response = response(of: manager)
        turn(.seconds(11), .normal, &response)
        let goesOn = inTurn { divider.run($0) }
        #expect(goesOn && divider.rounds == (isDryRun ? 0 : 1))
    }

    // MARK: - Members and the end

    @Test(arguments: [(false, ["warning", "critical, quiescing", "normal"]), (true, [])] as [(Bool, [String])])
    func `members follow the level, are paused at critical, and notice nothing of a dry run`(
        isDryRun: Bool, calls: [String]
    ) {
        let manager = manager(PressurePolicy(isDryRun: isDryRun)), member = manager.part { Member() }
        let admission = manager.parts.admission, time = clock.timekeeper
        var response = response(of: manager)
        for (second, level) in [(0, PressureLevel.warning), (1, .critical), (2, .normal)] {
            turn(.seconds(second), level, &response)
            let goesOn = inTurn { admission.apply($0, time: time) }
            #expect(goesOn)
        }
        #expect(member.calls.all == calls)
        let paused = manager.reports.filter { $0.action == .quiesce }
        #expect(paused.map(\.outcome) == [isDryRun ? .dryRun : .done] && paused.allSatisfy { $0.isDryRun == isDryRun })
    }

    @Test func `members that are paused go on when a dry run begins`() {
        let manager = manager(), member = manager.part { Member() }
        let admission = manager.parts.admission, time = clock.timekeeper
        var response = response(of: manager)
        for (second, isDryRun) in [(0, false), (1, true)] {
            manager.isDryRun = isDryRun
            turn(.seconds(second), .critical, &response)
            let goesOn = inTurn { admission.apply($0, time: time) }
            #expect(goesOn)
        }
        #expect(member.calls.all == ["critical, quiescing", "normal"])
    }

    @Test func `members that a rehearsal has paused go on when the rehearsal ends, although memory is short`() {
        let manager = manager(), member = manager.part { Member() }, inbox = Inbox()
        let admission = manager.parts.admission, time = clock.timekeeper
        var response = response(of: manager)
        for (second, level) in [(0, PressureLevel.warning), (1, .warning), (2, .warning), (3, .critical)] {
            if second == 1 { inbox.simulate(.critical, for: .seconds(1)) }
            let at = Duration.seconds(second)
            var assessment = PressureAssessment(at: at, level: level, room: .zero, evidence: .headroom)
            inbox.simulate(on: &assessment)
            response.respond(to: assessment, PressureReading(at: at, limit: .gibibytes(1), usage: .mebibytes(1004)))
            let goesOn = inTurn { admission.apply($0, time: time) }
            #expect(goesOn)
        }
        #expect(member.calls.all == ["warning", "critical, quiescing", "warning", "critical, quiescing"])
    }

    @Test func `when a dry run ends, memory is released at once, and the ladder begins anew`() {
        let ladder = EscalationLadder.standard.terminating(after: .seconds(2), grace: .seconds(1))
        let manager = manager(PressurePolicy(ladder: ladder, isDryRun: true)), holder = NotedHolder(held: 100 << 20)
        manager.register(holder)
        _ = manager.part { Member() }
        var response = response(of: manager)
        source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
        for second in 0...5 { turn(.seconds(second), .critical, &response, shortfall: .mebibytes(40)) }
        #expect(!manager.parts.purger.isAwaited)
        manager.isDryRun = false
        turn(.seconds(6), .critical, &response, shortfall: .mebibytes(40))
        #expect(manager.parts.purger.isAwaited && exits.count == 0)
        #expect(manager.reports.filter { $0.action == .quiesce }.map(\.outcome) == [.dryRun, .done])
        pass(of: manager)
        #expect(holder.asked == [40 << 20])
    }

    @Test func `an end that is not carried out is reported once an episode`() {
        let ladder = EscalationLadder.standard.terminating(after: .seconds(1))
        let manager = manager(PressurePolicy(ladder: ladder, isDryRun: true))
        var response = response(of: manager)
        func ends(_ seconds: ClosedRange<Int>, _ level: PressureLevel) -> Int {
            for second in seconds { turn(.seconds(second), level, &response) }
            return manager.reports.count { $0.action.endingGrace != nil && $0.outcome == .dryRun }
        }
        #expect(ends(0...0, .critical) == 0, "a second has not passed")
        #expect(ends(1...5, .critical) == 1)
        #expect(ends(6...8, .normal) == 1)
        #expect(ends(9...14, .critical) == 2)
    }

    @Test func `the last line tells for how long memory was critical`() {
        let ladder = EscalationLadder.standard.terminating(after: .seconds(2), grace: .seconds(1))
        let manager = manager(PressurePolicy(ladder: ladder))
        var response = response(of: manager)
        source.push(usage: .mebibytes(1020), limit: .gibibytes(1))
        turn(.seconds(97), .critical, &response)
        turn(.seconds(98), .normal, &response)
        for second in 100...101 { turn(.seconds(second), .critical, &response) }
        #expect(exits.count == 0)
        turn(.seconds(102), .critical, &response)
        #expect(exits.first?.status == 75, "EX_TEMPFAIL")
        #expect(exits.first?.line.hasPrefix("plimsoll: ended after 2 s of saturation: 1020 MiB used of 1 GiB") == true)
        #expect(exits.first?.line.contains("held: nothing registered") == true)
    }
}
