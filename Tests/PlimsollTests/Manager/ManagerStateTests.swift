import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The state that a manager keeps beside the loop: releases on request, simulations, counts and links.
@Suite(.timeLimit(.minutes(5))) struct ManagerStateTests {
    private let source = FallingSource(), clock = ManualClock()

    private func manager(_ policy: PressurePolicy = .standard) -> ResourceManager {
        ResourceManager(source: source, policy: policy, time: clock.timekeeper)
    }

    // MARK: - The end of a manager

    @Test func `a background task that outlives the manager cannot hand work over, and ends`() {
        func begin() -> BackgroundTask { manager().beginBackgroundTask("left") { _, _ in } }
        let task = begin()
        #expect(task.isActive && task.handOver([1]) == "the manager no longer exists")
        task.end()
        #expect(!task.isActive)
    }

    @Test func `the alarms and the registry of background tasks end with the manager`() {
        func parts() -> (() -> Alarms?, () -> BackgroundTaskRegistry?) {
            let manager = manager(), alarms = manager.parts.alarms, tasks = manager.parts.tasks
            return ({ [weak alarms] in alarms }, { [weak tasks] in tasks })
        }
        let (alarms, tasks) = parts()
        #expect(alarms() == nil && tasks() == nil)
    }

    @Test func `a meter that outlives the manager keeps nothing in reserve`() {
        func meter() -> ChargeMeter {
            let manager = manager()
            manager.parts.meter.share(from: [], lacking: 100)
            #expect(manager.parts.meter.room(leavesReserve: true) == Int.max - 100)
            return manager.parts.meter
        }
        let left = meter()
        #expect(left.room(leavesReserve: true) == Int.max)
    }

    @Test func `a cache that leaves ends the reserve for others, and a holder without a share does not`() {
        let manager = manager(), meter = manager.parts.meter
        let shared = manager.register(NotedHolder(held: 1, isMetered: true))
        let other = manager.register(NotedHolder(held: 1))
        #expect(source.wakes == 2, "the loop reads again")
        meter.allow(1000, since: .zero)
        meter.share(from: [], lacking: 100)
        other.cancel()
        #expect(meter.room == 1000 && meter.room(leavesReserve: true) == 900)
        shared.cancel()
        #expect(meter.room(leavesReserve: true) == 1000 && manager.parts.purgeables.snapshot.isEmpty)
    }

    @Test func `a refusal wakes the loop for memory on the heap, and not for volatile memory`() {
        let manager = manager()
        for (meter, wakes) in [(manager.parts.volatileMeter, 0), (manager.parts.meter, 1)] {
            meter.allow(100, since: .zero)
            #expect(!meter.take(200) && source.wakes == wakes)
        }
    }

    // MARK: - The recorder

    /// A recorder that makes a call when it goes.
    private final class Recorder: TurnRecorder {
        private let onEnd: @Sendable () -> Void

        init(onEnd: @escaping @Sendable () -> Void) { self.onEnd = onEnd }
        deinit { onEnd() }
        func record(_ turn: RecordedTurn) {}
        func record(_ census: RecordedCensus) {}
        func ended(_ end: RecordedEnd) {}
    }

    @Test func `a recorder that another one replaces goes after the lock`() {
        let manager = manager(), log = Log<String>()
        manager.record(
            in: Recorder { [weak manager] in
                guard let manager else { return }
                let isFree = manager.parts.recorder.withLockIfAvailable { _ in true } ?? false
                log.add(isFree ? "free" : "locked")
            })
        manager.record(in: Recorder {})
        #expect(log.all == ["free"])
    }

    // MARK: - Simulations

    private func assessment(
        at seconds: Double, level: PressureLevel = .normal, observed: PressureLevel = .normal
    ) -> PressureAssessment {
        var assessment = PressureAssessment(at: .seconds(seconds), level: level, observed: observed)
        if level > observed { (assessment.heldUntil, assessment.heldFor) = (.seconds(500), .headroom) }
        return assessment
    }

    @Test func `a simulation ends after its time, or with the normal level`() {
        let inbox = Inbox()
        func level(_ seconds: Double) -> PressureLevel {
            var assessment = assessment(at: seconds)
            inbox.simulate(on: &assessment)
            #expect((assessment.evidence == .simulated) == (assessment.level > .normal))
            return assessment.level
        }
        #expect(level(99) == .normal && !inbox.isStopped)
        inbox.simulate(.warning, for: .seconds(10))
        #expect([100, 105, 109.5, 110, 111].map(level) == [.warning, .warning, .warning, .normal, .normal])
        inbox.simulate(.critical, for: .seconds(10))
        #expect(level(120) == .critical)
        inbox.simulate(.normal, for: .seconds(10))
        #expect([121, 122].map(level) == [.normal, .normal])
        inbox.stop()
        #expect(inbox.isStopped)
    }

    @Test(
        arguments: [
            (.normal, .normal, .warning, .warning, false), (.warning, .normal, .warning, .warning, false),
            (.critical, .normal, .warning, .critical, true), (.warning, .normal, .critical, .critical, false),
        ] as [(PressureLevel, PressureLevel, PressureLevel, PressureLevel, Bool)])
    func `a simulated level counts besides a held one, and has no hold`(
        level: PressureLevel, observed: PressureLevel, simulated: PressureLevel, expected: PressureLevel, isHeld: Bool
    ) {
        let inbox = Inbox()
        inbox.simulate(simulated, for: .seconds(1))
        var assessment = assessment(at: 0, level: level, observed: observed)
        inbox.simulate(on: &assessment)
        #expect(assessment.level == expected && assessment.observed == simulated && assessment.present == simulated)
        #expect((assessment.heldUntil != nil) == isHeld && (assessment.heldFor != nil) == isHeld)
        #expect(assessment.evidence == .simulated)
        #expect(assessment.measured == PressureAssessment.Measured(level: level, observed: observed))
    }

    @Test(arguments: [PressureLevel.warning, .critical])
    func `a simulation of what readings support anyway changes nothing`(observed: PressureLevel) {
        let inbox = Inbox(), before = assessment(at: 0, level: .critical, observed: observed)
        inbox.simulate(.warning, for: .seconds(1))
        var after = before
        inbox.simulate(on: &after)
        #expect(after == before)
    }

    // MARK: - Releases on request

    @Test func `a release on request asks for what is left of the target, and measures the effect`() throws {
        let manager = manager(), clock = clock
        clock.freeze(for: .seconds(5))
        let first = NotedHolder("first", held: 10), third = NotedHolder("third", held: 10)
        let second = NotedHolder(
            "second", held: 10,
            answer: { asked, _ in
                clock.advance(by: .milliseconds(30))
                return asked
            })
        for holder in [first, second, third] { manager.register(holder) }
        let report: ActionReport = manager.release(14)
        #expect([first, second, third].map(\.asked) == [[10], [4], []])
        #expect(report.eventID == 0 && report.action == .release && report.origin == .operator && report.asked == 14)
        #expect(report.released == 14 && report.releasedVolatile == .zero && report.outcome == .done)
        #expect(report.began == .seconds(5) && report.took == .milliseconds(30))
        #expect(report.residentFall == .mebibytes(10) && report.usageFall == .mebibytes(20))
        let rest: ActionReport = manager.release()
        #expect(rest.asked == .zero && rest.released == 16 && manager.reports == [report, rest])
    }

    @Test(arguments: [(10, .max, 10), (10, -3, 0), (0, 1, 0), (-5, 1, 0)] as [(Int, Int, Int)])
    func `a release on request believes a purgeable up to what it held`(held: Int, answer: Int, released: Int) {
        let manager = manager()
        manager.register(NotedHolder(held: held, answer: { _, _ in answer }))
        let report: ActionReport = manager.release()
        #expect(report.released == ByteCount(released) && report.outcome == .done)
    }

    @Test(arguments: [(true, 0, 7), (false, 7, 0)])
    func `volatile memory counts apart, unless the kernel may reclaim none of the pages`(
        isVolatile: Bool, released: Int, volatile: Int
    ) {
        let manager = manager()
        manager.register(NotedVolatile(held: 7, isVolatile: isVolatile))
        let report: ActionReport = manager.release()
        #expect(report.released == ByteCount(released) && report.releasedVolatile == ByteCount(volatile))
    }

    @Test func `a purgeable inside a call is skipped, and named`() {
        let manager = manager(), inside = Mutex<ResourceManager?>(nil), inner = Log<ActionReport>()
        let busy = NotedHolder(
            "busy", held: 10,
            onCount: {
                guard let manager = inside.withLock({ $0 }) else { return }
                let report: ActionReport = manager.release(5)
                inner.add(report)
            })
        let idle = NotedHolder("idle", held: 10)
        for holder in [busy, idle] { manager.register(holder) }
        inside.withLock { $0 = manager }
        let outer: ActionReport = manager.release(12)
        inside.withLock { $0 = nil }
        #expect(inner.all.map(\.outcome) == [.overran(["busy"])] && inner.all.map(\.released) == [5])
        #expect(outer.outcome == .done && outer.released == 12 && idle.asked == [5, 2])
    }

    // MARK: - A pass

    @Test func `a pass measures its effect, wakes the loop, restricts the holders, and is reported and taken once`() {
        let registry = PurgeableRegistry(), clock = clock, time = clock.timekeeper
        clock.freeze(for: .seconds(5))
        let small = NotedHolder(
            "small", held: 99, .expensive,
            answer: { asked, _ in
                clock.advance(by: .milliseconds(30))
                return asked
            })
        let large = NotedHolder("large", held: 300 << 20, .trivial)
        for holder in [small, large] {
            registry.add(PurgeableRegistry.Entry(holder, meter: ChargeMeter {}, volatileMeter: ChargeMeter {}))
        }
        let purger = Purger(registry: registry, source: source, time: time)
        var report = ActionReport(eventID: 9, action: .release, level: .warning, evidence: [], began: .seconds(2))
        report.asked = .mebibytes(400)
        purger.post(.init(report: report, includesPrecious: false))
        #expect(purger.isAwaited && purger.takeFinished() == nil)
        let reports = Log<ActionReport>()
        let goesOn = inTurn { turn in purger.run(turn) { reports.add($0) } }
        // The class is small, but nothing was to be spared. Nothing told that the need has gone.
        #expect(goesOn && !purger.isAwaited && large.asked == [128 << 20, 128 << 20, 44 << 20] && small.asked == [99])
        let finished = purger.takeFinished()
        #expect(reports.all.count == 1 && finished == reports.all.first && purger.takeFinished() == nil)
        #expect(finished?.eventID == 9 && finished?.released == ByteCount.mebibytes(300) + 99)
        #expect(finished != nil && finished?.between == nil)
        #expect(finished?.took == .milliseconds(3030) && finished?.residentFall ?? .zero >= .mebibytes(10))
        #expect(finished?.before == Footprint(resident: .mebibytes(990), usage: .mebibytes(1980)))
        // Once after each of the two whole strides, and at the end.
        #expect(source.wakes == 3)
        #expect(small.restrictions == [ByteCount.zero] && large.restrictions == [ByteCount.zero])
    }

    // MARK: - The loop

    /// A source with a reading for each turn, which notes the waits and stops the loop after the last reading.
    private final class ListedSource: PressureSource {
        let waits = Log<Duration>()
        private let readings: [(at: Duration, available: ByteCount)]
        private let turns = Counter(), inboxes = Log<Inbox>()

        init(_ readings: [(at: Duration, available: ByteCount)]) { self.readings = readings }

        var capabilities: Capabilities { Capabilities(support: .inert, signals: []) }
        var rings: Bool { true }
        func stop(_ inbox: Inbox) { inboxes.add(inbox) }
        func read(at: Duration) throws(PressureSourceError) -> PressureReading {
            let (time, available) = readings[turns.value]
            turns.add(1)
            if turns.value == readings.count { for inbox in inboxes.all { inbox.stop() } }
            return PressureReading(
                at: time, limit: .gibibytes(1), usage: .gibibytes(1) - available, available: available)
        }
        func wait(atMost limit: Duration) { waits.add(limit) }
        func wake() {}
        func footprint() -> Footprint { Footprint() }
    }

    @Test func `while a level is held, the loop reads twice in the short hold, and once a second otherwise`() {
        let source = ListedSource(
            [(.zero, .mebibytes(600)), (.seconds(1), .mebibytes(150)), (.seconds(9), .mebibytes(600))])
        let manager = ResourceManager(source: source, time: clock.timekeeper)
        source.stop(manager.parts.inbox)
        PressureLoop(
            source: source, policy: .standard, time: clock.timekeeper, parts: manager.parts, isEnabled: true,
            onTurn: nil
        ).run()
        #expect(source.waits.all == [.seconds(1), .milliseconds(200), .seconds(1)])
        #expect(manager.level == .normal && manager.room == nil, "the room of a loop that has ended is unknown")
    }

    @Test(arguments: [false, true])
    func `near the limit, the loop reads often if the ladder cancels requests, although purgeables hold nothing`(
        cancels: Bool
    ) {
        var policy = PressurePolicy(ladder: .none)
        if cancels { policy.ladder = policy.ladder.cancellingLargestRequest(above: .mebibytes(16)) }
        let source = ListedSource([(.zero, .mebibytes(50))])
        let manager = ResourceManager(
            source: source, policy: policy, time: clock.timekeeper, requests: BudgetRegistry())
        source.stop(manager.parts.inbox)
        PressureLoop(
            source: source, policy: policy, time: clock.timekeeper, parts: manager.parts, isEnabled: true, onTurn: nil
        ).run()
        let waits = source.waits.all
        #expect(waits.count == 1 && waits.allSatisfy { ($0 < .milliseconds(10)) == cancels })
    }

    @Test func `a round of any kind of memory makes the purge worker run`() {
        let manager = manager(), parts = manager.parts
        #expect(parts.requestRounds(at: .seconds(11)) && !parts.requestRounds(at: .milliseconds(11_050)))
        parts.divider.share(ProcessShare(bytes: nil, total: 1 << 20))
        #expect(parts.requestRounds(at: .milliseconds(11_200)), "of the heap alone")
    }

    // MARK: - Links, observers and parts

    @Test func `a request to be suspended goes to the link that was opened last, until that one is closed`() {
        let request = SuspensionRequest()
        #expect(request.ask()?.contains("no link to a supervisor") == true)
        let first = request.connect { "first" }
        #expect(request.ask() == "first")
        let second = request.connect { nil }
        first.cancel()
        #expect(request.ask() == nil, "a supervisor was asked")
        second.cancel()
        #expect(request.ask()?.contains("no link to a supervisor") == true)
    }

    private func event(_ id: UInt64, _ level: PressureLevel = .warning) -> PressureEvent {
        PressureEvent(id: id, level: level, previous: .normal, shortfall: 0, timeLeft: nil, evidence: .headroom)
    }

    @Test func `an observer receives each event once, in the order of events, from its threshold on`() {
        let seen = Log<UInt64>()
        let observer = ObserverRegistry.Observer("observer", .warning) { seen.add($0.id) }
        for event in [event(1), event(1), event(3), event(2), event(4, .normal), event(5, .critical)] {
            observer.receive(event)
        }
        #expect(seen.all == [1, 3, 5])
    }

    @Test func `an observer that is to be first comes before the others`() {
        let registry = ObserverRegistry(), seen = Log<String>(), time = clock.timekeeper
        let registrations = [("a", false), ("b", false), ("c", true)].map { name, isFirst in
            registry.observe(.warning, name, isFirst: isFirst) { seen.add("\(name)\($0.id)") }
        }
        for id: UInt64 in 1...2 {
            registry.post(event(id))
            let goesOn = inTurn { registry.deliver($0, time: time) }
            #expect(goesOn)
        }
        #expect(seen.all == ["c1", "a1", "b1", "c2", "a2", "b2"] && registry.superseded == 0 && registry.count == 3)
        registrations[2].cancel()
        #expect(registry.count == 2)
    }

    @Test func `a stream of events keeps the newest event, and leaves with its last reader`() async {
        let manager = manager(), observers = manager.parts.observers, time = clock.timekeeper
        func newest() async -> UInt64? {
            let stream = manager.pressureEvents
            #expect(observers.count == 1)
            for id: UInt64 in 1...3 {
                observers.post(event(id))
                _ = inTurn { observers.deliver($0, time: time) }
            }
            var events = stream.makeAsyncIterator()
            return await events.next()?.id
        }
        #expect(await newest() == 3)
        await until { observers.count == 0 }
    }

    @Test func `listeners go on with the oldest report left, each in turn, and missed reports are counted`() {
        let journal = Journal(capacity: 3), seen = Log<String>(), calls = Counter(), time = clock.timekeeper
        func add(_ ids: ClosedRange<UInt64>) {
            for id in ids {
                _ = journal.add(ActionReport(eventID: id, action: .warn, level: .warning, evidence: [], began: .zero))
            }
        }
        func deliver() -> [String] {
            let before = seen.all.count
            _ = inTurn { turn -> Bool in
                journal.deliver(turn, time: time)
                return true
            }
            return Array(seen.all.dropFirst(before))
        }
        for name in ["a", "b"] {
            journal.listen { report in
                // A bound, in case that a report is delivered for ever.
                calls.add(1)
                if calls.value < 100 { seen.add("\(name)\(report.eventID)") }
            }
        }
        add(1...3)
        #expect(deliver() == ["a1", "b1", "a2", "b2", "a3", "b3"] && journal.overwritten == 0)
        add(4...8)
        #expect(deliver() == ["a6", "b6", "a7", "b7", "a8", "b8"] && journal.overwritten == 2)
        #expect(deliver() == [] && journal.reports.map(\.eventID) == [6, 7, 8])
    }

    // MARK: - Policy and limits

    @Test func `a policy sets the dry run only when it differs from the policy before`() {
        let manager = manager()
        manager.isDryRun = true
        manager.adopt(PressurePolicy(mostBackgroundTasks: 1))
        #expect(manager.isDryRun, "an operator has set this")
        manager.adopt(PressurePolicy(isDryRun: true))
        manager.adopt(.standard)
        #expect(!manager.isDryRun)
    }

    @Test func `a policy limits the number of background tasks`() {
        let manager = manager()
        manager.adopt(PressurePolicy(mostBackgroundTasks: 1))
        let tasks = (0..<3).map { manager.beginBackgroundTask("task \($0)") { _, _ in } }
        #expect(tasks.map(\.isActive) == [true, false, false])
        tasks[0].end()
    }

    @Test func `tasks given up for an operator are reported without an event`() async {
        let manager = manager(), task = manager.beginBackgroundTask("stuck") { _, _ in }
        manager.expireBackgroundTasks(.operator, within: .zero)
        await until { !manager.reports.isEmpty }
        let report = manager.reports.last
        #expect(report?.action == .expireBackgroundTasks(grace: .zero) && report?.outcome == .overran(["stuck"]))
        #expect(report?.eventID == 0 && report?.level == .normal && report?.evidence == [])
        task.end()
    }

    @Test func `the tasks of scenes are known, and count among the tasks that have ended`() {
        let manager = manager(), scenes = manager.parts.sceneTasks
        let first = scenes.make(), second = scenes.make()
        #expect(scenes.all.count == 2 && scenes.all.allSatisfy { $0 === first || $0 === second })
        manager.beginBackgroundTask("process") { _, _ in }.end()
        for tasks in [first, second] { tasks.begin("scene", #fileID, #line, handler: nil).end() }
        #expect(manager.endedTasks == 3)
        for tasks in [first, second] { tasks.detach() }
    }

    @Test func `an operator's request expires the tasks of scenes as well, and names those that do not end`() {
        let manager = manager(), scene = manager.parts.sceneTasks.make(), reasons = Log<ExpirationReason>()
        let quick = scene.begin(
            "quick", #fileID, #line,
            handler: .blocking { task, reason in
                reasons.add(reason)
                task.end()
            })
        let first = manager.expireBackgroundTasks(.operator, within: .seconds(5))
        #expect(first.isEmpty && reasons.all == [.operator] && !quick.isActive)
        let stuck = [
            manager.beginBackgroundTask("process") { _, _ in }, scene.begin("scene", #fileID, #line, handler: nil),
        ]
        #expect(manager.expireBackgroundTasks(.operator, within: .zero) == ["process", "scene"])
        for task in stuck { #expect(!task.isActive) }
        // A task that begins after those of its scene were asked is not asked, nor waited for.
        let later = Log<BackgroundTask>()
        let early = manager.beginBackgroundTask("early") { task, _ in
            later.add(scene.begin("later", #fileID, #line, handler: nil))
            task.end()
        }
        #expect(manager.expireBackgroundTasks(.operator, within: .seconds(5)).isEmpty && !early.isActive)
        #expect(later.all.map(\.isActive) == [true])
        for task in later.all { task.end() }
        scene.detach()
    }

    @Test(arguments: [(1, 100), (10, 1000), (20, 2000), (60, 2000)])
    func `a tenth of a shutdown, and at most two seconds, are kept for cancelled work`(seconds: Int, reserve: Int) {
        #expect(ResourceManager.shutdownReserve(of: .seconds(seconds)) == .milliseconds(reserve))
    }

    @Test func `a limit is set for the cache with that name, and other names are refused with the reason`() throws {
        let manager = manager(), cache = PurgeableCache<Int, Int>("images", limit: .mebibytes(8))
        manager.register(cache)
        try manager.setLimit(.mebibytes(2), ofCacheNamed: "images")
        #expect(cache.limit == .mebibytes(2))
        func reason(_ name: String) throws -> String {
            let error = try #require(throws: ResourceManagerError.self) {
                try manager.setLimit(.zero, ofCacheNamed: name)
            }
            return error.description
        }
        #expect(try reason("rows").hasSuffix("no cache has that name; caches with a limit: images"))
        for _ in 0..<2 { manager.register(NotedHolder("twin", held: 1)) }
        #expect(try reason("twin").contains("2 purgeables have that name"))
        manager.register(NotedHolder("single", held: 1))
        #expect(try reason("single").contains("not a ResizablePurgeable"))
        #expect(cache.limit == .mebibytes(2))
        let more = (0..<30).map { PurgeableCache<Int, Int>("c\($0)") }
        for cache in more { manager.register(cache) }
        let named = try reason("rows").split(separator: ", ").count
        #expect(named == 20, "the first twenty names")
    }
}
