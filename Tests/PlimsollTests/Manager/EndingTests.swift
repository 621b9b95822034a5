import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The conditions under which a process ends itself, turn by turn of the response.
@Suite(.serialized, .timeLimit(.minutes(5))) struct EndingTests {
    private let source = PassSource(), clock = ManualClock(), exits = RunningManager.Exits()
    private let policy = PressurePolicy(ladder: .standard.terminating(after: .seconds(2), grace: .seconds(1)))
    private let cache = PurgeableCache<Int, Int>("cache", cost: { _, _ in 1 << 20 })

    /// Returns a manager with a registered cache and a running purging thread, and a response whose turns the test
    /// takes.
    private func make() -> (ResourceManager, PressureResponse) {
        let exits = exits
        let manager = ResourceManager(source: source, policy: policy, time: clock.timekeeper, exit: { exits.add($0, $1) })
        for key in 0..<100 { cache.insert(key, forKey: key) }
        manager.register(cache)
        manager.parts.purgeWorker.start()
        return (manager, PressureResponse(policy: policy, parts: manager.parts, source: source, time: clock.timekeeper))
    }

    /// Waits for the end of the pass. The report comes last: entries leave the cache while the pass is under way.
    private func untilPassEnds(_ manager: ResourceManager) async {
        await until("the pass has ended") { manager.reports.contains { $0.action == .release } && cache.count <= 80 }
    }

    /// Takes a turn in which memory is critical and `shortfall` bytes are to be released.
    private func turn(_ second: Int, _ response: inout PressureResponse, shortfall: ByteCount = .zero) {
        let reading = PressureReading(at: .seconds(second), limit: .gibibytes(1), usage: .mebibytes(1004), available: .mebibytes(20))
        let assessment = PressureAssessment(
            at: .seconds(second), level: .critical, observed: .critical, shortfall: shortfall, evidence: .stall)
        response.respond(to: assessment, reading)
    }

    @Test func `C85 a process does not end while the last purge helped and bytes are left to purge`() async throws {
        var (manager, response) = make()
        source.available = .mebibytes(20)
        turn(0, &response, shortfall: .mebibytes(20))
        await untilPassEnds(manager)
        for second in 1...5 { turn(second, &response) }
        #expect(!manager.parts.inbox.isStopped && exits.count == 0)
        // Nothing is left to purge, so that ending the process is the only step.
        cache.removeAll()
        turn(6, &response)
        #expect(manager.parts.inbox.isStopped && exits.first?.status == 75)
        manager.parts.purgeWorker.stop()
    }

    @Test func `C85 a process ends when the last purge brought nothing, with any bytes still held`() async throws {
        var (manager, response) = make()
        (source.available, source.fall) = (.mebibytes(20), .zero)
        turn(0, &response, shortfall: .mebibytes(20))
        await untilPassEnds(manager)
        turn(1, &response)
        #expect(!manager.parts.inbox.isStopped && cache.count > 0, "two seconds have not passed")
        turn(2, &response)
        #expect(manager.parts.inbox.isStopped && exits.first?.status == 75)
        manager.parts.purgeWorker.stop()
    }

    @Test func `C85 a process does not end when a second reading shows room`() async throws {
        var (manager, response) = make()
        cache.removeAll()
        source.available = .mebibytes(600)
        for second in 0...5 { turn(second, &response) }
        #expect(source.reads > 0 && !manager.parts.inbox.isStopped && exits.count == 0)
        // The process ends just below the critical margin, not at the margin.
        let margin = policy.thresholds.criticalMargin.below(.gibibytes(1))
        source.available = margin
        turn(6, &response)
        #expect(!manager.parts.inbox.isStopped)
        source.available = margin - 1
        turn(7, &response)
        #expect(manager.parts.inbox.isStopped && exits.first?.status == 75)
        manager.parts.purgeWorker.stop()
    }

    @Test func `C79 C85 a purgeable that answers a status releases memory meanwhile, and the process does not end`()
        async throws
    {
        let source = source, exits = exits, blockade = Blockade(), calls = Counter(), held = Mutex(100 << 20)
        (source.available, source.fall) = (.mebibytes(20), .zero)
        let manager = ResourceManager(
            source: source, policy: policy, time: clock.timekeeper, exit: { exits.add($0, $1) })
        manager.register(
            "slow",
            byteCount: {
                calls.add(1)
                // The first call is that of the status.
                if calls.value == 1 { blockade.wait() }
                return held.withLock { $0 }
            },
            release: { target in
                source.fall = .mebibytes(50)
                held.withLock { $0 -= target }
                return target
            })
        func pass() -> Bool { inTurn { turn in manager.parts.purger.run(turn) { _ in } } }
        var response = PressureResponse(
            policy: policy, parts: manager.parts, source: source, time: clock.timekeeper)
        let status: Task<ManagerStatus, any Error> = onThread { manager.status }
        await until("the question for the status") { blockade.count == 1 }
        turn(0, &response, shortfall: .mebibytes(20))
        let first = pass()
        blockade.open()
        _ = try await status.value
        #expect(first && held.withLock { $0 } == 80 << 20)
        turn(1, &response, shortfall: .mebibytes(20))
        #expect(manager.parts.purger.isAwaited, "no pause follows a pass that helped")
        let next = pass()
        for second in 2...4 { turn(second, &response) }
        #expect(next && held.withLock { $0 } == 60 << 20)
        #expect(exits.count == 0 && !manager.parts.inbox.isStopped)
    }

    @Test func `the time that an ending takes does not pass for a freeze`() throws {
        let clock = clock, exits = exits
        let ladder = try EscalationLadder([Rung(at: .critical, after: .seconds(1), .terminate(grace: .seconds(10)))])
        let policy = PressurePolicy(ladder: ladder)
        // Without steps, as for real time: the loop makes no promises on a manual clock.
        let time = Timekeeper(elapsed: clock.timekeeper.elapsed)
        let manager = ResourceManager(source: source, policy: policy, time: time, exit: { exits.add($0, $1) })
        let heartbeat = manager.parts.heartbeat
        manager.beforeTermination("rows") { _ in
            clock.freeze(for: .seconds(3))
            _ = heartbeat.beat(.alarms, next: nil)
        }
        source.available = .mebibytes(20)
        var response = PressureResponse(policy: policy, parts: manager.parts, source: source, time: time)
        _ = heartbeat.beat(.loop, next: .seconds(1))
        for second in 0...1 { turn(second, &response) }
        #expect(exits.count == 1 && heartbeat.gaps == 0)
        #expect(time.elapsed() == .seconds(3), "the save has run")
    }

    @Test func `each save gets the time left, and a save that fails is named with the reason`() async {
        struct Full: Error, CustomStringConvertible { let description = "no room" }
        let saves = SaveRegistry(), threads = HandlerThreads(), left = Log<Duration>()
        clock.advance(by: .seconds(7))
        saves.add("rows") { left.add($0) }
        saves.add("columns") { _ in throw Full() }
        let time = clock.timekeeper
        let failures = await TestSupport.onThread { saves.run(within: .seconds(5), threads: threads, time: time) }
        #expect(left.all == [.seconds(5)] && failures == ["columns failed: no room"])
    }

    @Test func `the last line has no control characters, and names a few of many tasks`() {
        let (manager, _) = make(), thumbs = PurgeableCache<Int, Int>("thumbs\u{1B}[2J")
        manager.register(thumbs)
        let tasks = (0..<40).map { manager.beginBackgroundTask("upload \($0)\n2026-01-01 error") { _, _ in } }
        let reading = PressureReading(at: .zero, limit: .gibibytes(1), usage: .mebibytes(1004), available: .mebibytes(20))
        let line = Ending(parts: manager.parts, time: clock.timekeeper).lastLine(.seconds(2), reading, ["rows failed: \u{9B}2J"])
        #expect(line.hasSuffix(" and 8 more; not saved: rows failed: \u{FFFD}2J\n"), "\(line)")
        for part in ["thumbs\u{FFFD}[2J 0 B", "; running: upload ", "\u{FFFD}2026-01-01 error, upload "] {
            #expect(line.contains(part), "\(line)")
        }
        let controls = line.dropLast().unicodeScalars.filter { $0.value < 32 || (0x7f..<0xa0).contains($0.value) }
        #expect(controls.isEmpty)
        for task in tasks { task.end() }
        manager.parts.purgeWorker.stop()
    }

    /// A source that gives the available memory at a second reading, and a fall of 50 MiB or less for each pass.
    private final class PassSource: PressureSource {
        private let state = Mutex((available: ByteCount.zero, fall: ByteCount.mebibytes(50), reads: 0, measurements: 0))

        var available: ByteCount {
            get { state.withLock { $0.available } }
            set { state.withLock { $0.available = newValue } }
        }
        var fall: ByteCount {
            get { state.withLock { $0.fall } }
            set { state.withLock { $0.fall = newValue } }
        }
        var reads: Int { state.withLock { $0.reads } }

        var capabilities: Capabilities { ScriptedPressureSource().capabilities }
        var rings: Bool { true }
        func wake() {}
        func wait(atMost limit: Duration) {}
        func read(at time: Duration) throws(PressureSourceError) -> PressureReading {
            let available = state.withLock { state in
                state.reads += 1
                return state.available
            }
            return PressureReading(at: time, limit: .gibibytes(1), usage: .gibibytes(1) - available, available: available)
        }
        func footprint() -> Footprint {
            state.withLock { state in
                state.measurements += 1
                return Footprint(resident: .gibibytes(1) - state.fall * Double(state.measurements), usage: .mebibytes(500))
            }
        }
    }
}
