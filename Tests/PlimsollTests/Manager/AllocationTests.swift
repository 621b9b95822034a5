import CAllocationCounter
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// T27, C86: the path that frees memory allocates no memory.
@Suite(.timeLimit(.minutes(5)), .needs(allocation_count_works(), "a sanitizer is in front of malloc")) struct AllocationTests {
    @Test func `T27 C86 judging, deciding and announcing allocate nothing`() {
        var assessor = PressureAssessor(), climb = LadderClimb(.standard), announcer = Announcer(rest: .zero), governor = PurgeGovernor(),
            ramp = RefillRamp(), room = VolatileRoom(), drops = DropWatch()
        let useful = ActionReport(
            eventID: 0, action: .release, level: .warning, evidence: .headroom, began: .zero, released: .mebibytes(10),
            before: Footprint(resident: .mebibytes(10)))
        func turn(_ index: Int) -> Int {
            let available = ByteCount.mebibytes(index % 7 < 3 ? 20 : 400)
            let reading = PressureReading(
                at: .milliseconds(index * 50), limit: .mebibytes(512), usage: .mebibytes(512) - available, available: available,
                volatile: available * 0.5, lazyFreed: ByteCount(index / 7))
            let assessment = assessor.assess(reading)
            var fired = 0
            for action in climb.climb(assessment)
            where action == .release && governor.start(at: assessment.at, level: assessment.level, available: available) {
                fired += 1
                governor.finished(useful, at: assessment.at, available: available)
            }
            _ = ramp.allowance(room: assessment.room, level: assessment.level, at: assessment.at)
            let verdict = room.judge(reading, growth: assessment.growth)
            if verdict.excess > .zero || drops.isDue(reading, isTight: verdict.isTight) { fired += 1 }
            return announcer.event(for: assessment) == nil ? fired : fired + 1
        }
        var fired = 0
        for index in 0..<100 { fired += turn(index) }
        let before = allocation_count()
        for index in 100..<1100 { fired += turn(index) }
        #expect(allocation_count() - before == 0)
        #expect(fired > 0)
    }

    @Test func `T27 K29 C86 the path from a wake-up to the end of a release allocates nothing`() async throws {
        let source = CountingSource(warmingPasses: 2)
        let manager = ResourceManager(source: source, policy: .patient)
        source.leaveOutGaps(of: manager)
        let cache = PurgeableCache<Int, [UInt8]>("cache", shardCount: 4, cost: { 2 * $1.count })
        for key in 0..<2000 { cache.insert(Array(repeating: 1, count: 100 << 10), forKey: key) }
        manager.register(cache)
        // The scripted readings do not improve, so that one pass follows another until nothing is left.
        source.script.push(usage: .mebibytes(420), limit: .mebibytes(512))
        let running = Task { try await manager.run() }
        // The pass that empties the cache is still under way when the cache is empty.
        await until { cache.count == 0 && source.countedPasses > 2 }
        running.cancel()
        try await running.value
        #expect(source.countedPasses > 2 && cache.statistics.purged == 2000)
        #expect(source.handAllocations == 0, "on the purging thread, from the footprint before to the one after")
        #expect(source.loopAllocations == 0, "on the loop, from the end of a wait to the next")
    }

    @Test func `T27 K29 C86 the thread that notifies observers, listeners and admission members allocates nothing`() async throws {
        // The test has no host, whose log would add allocations to those of the library.
        let manager = ResourceManager(source: ScriptedPressureSource(), policy: .patient), parts = manager.parts
        // The number of reports, and the allocation count after the previous report, both noted by the notifying
        // thread.
        let notified = Mutex((count: 0, before: UInt64(0), most: UInt64(0)))
        let admitting = manager.lifecycle.pausables.add(ConcurrencyLimiter("requests", limit: 8))
        let observing = manager.observe(from: .normal, "first") { _ in
            let now = allocation_count()
            notified.withLock { if $0.count > 20 { $0.most = max($0.most, now - $0.before) } }
        }
        manager.onReport { _ in
            let now = allocation_count()
            notified.withLock { $0 = ($0.count + 1, now, $0.most) }
        }
        let running = Task { try await manager.run() }
        let report = ActionReport(eventID: 1, action: .release, level: .warning, evidence: .headroom, began: .zero)
        for round in 1...200 {
            let level = round % 2 == 0 ? PressureLevel.normal : .warning
            parts.observers.post(
                PressureEvent(id: UInt64(round), level: level, previous: .normal, shortfall: .zero, timeLeft: nil, evidence: .headroom))
            _ = parts.admission.post(level, isQuiescing: level == .warning)
            _ = parts.journal.add(report)
            parts.deliveryWorker.request()
            await until { notified.withLock { $0.count } == round }
        }
        running.cancel()
        try await running.value
        #expect(notified.withLock { $0.most } == 0, "from one event's last listener to the next event's first observer")
        withExtendedLifetime((admitting, observing)) {}
        #expect(notified.withLock { $0.count } == 200)
    }

    @Test(.needsLinux) func `T27 K29 C86 giving volatile memory back allocates nothing, for a shortage or for the margin`() async throws {
        // Each pass takes a measurement between volatile memory and the heap.
        let source = CountingSource(warmingPasses: 2, measurementsPerPass: 3)
        let manager = ResourceManager(source: source, policy: .patient)
        source.leaveOutGaps(of: manager)
        let holders = (0..<3).map { FakeVolatile("\($0)", $0 == 0 ? .trivial : .cheap, mebibytes: 20_000) }
        for holder in holders { manager.register(holder) }
        let cache = PurgeableCache<Int, Int>("heap", cost: { _, _ in 1 << 20 })
        for key in 0..<2000 { cache.insert(key, forKey: key) }
        manager.register(cache)
        // 12 MiB are free: less than a pass needs, but not so little that the keeper would measure in between.
        source.script.push(usage: .mebibytes(500), limit: .mebibytes(512), available: .mebibytes(92))
        var running = Task { try await manager.run() }
        await until { source.countedPasses >= 4 }
        running.cancel()
        try await running.value
        #expect(source.handAllocations == 0 && source.loopAllocations == 0)

        let calm = CountingSource(warmingPasses: 2)
        let keeper = ResourceManager(source: calm, policy: .patient)
        calm.leaveOutGaps(of: keeper)
        for holder in holders.map({ _ in FakeVolatile(mebibytes: 20_000) }) { keeper.register(holder) }
        calm.script.push(
            PressureReading(
                at: .zero, limit: .gibibytes(64), usage: .gibibytes(64), workingSet: .gibibytes(30), available: .gibibytes(34), lazyFreed: 1))
        running = Task { try await keeper.run() }
        await until { calm.countedPasses >= 4 }
        running.cancel()
        try await running.value
        #expect(keeper.reports.contains { $0.action == .makeRoom } && !keeper.reports.contains { $0.action == .release })
        #expect(calm.handAllocations == 0 && calm.loopAllocations == 0)
    }
}

/// A scripted source that notes how many allocations each of the manager's threads makes between its calls.
///
/// The first passes are not counted: the runtime sets up metadata once.
final class CountingSource: PressureSource {
    let script = ScriptedPressureSource()
    private struct Counts {
        var atWake: UInt64 = 0
        var gapsAtWake: UInt64 = 0
        var loop: UInt64 = 0
        var atPassStart: UInt64?
        var hand: UInt64 = 0
        var passes = 0
        var measurements = 0
        var resident = ByteCount.gibibytes(64)
    }
    private let counts = Mutex(Counts())
    private let heartbeat = Mutex<Heartbeat?>(nil)
    private let warmingPasses: Int
    private let measurementsPerPass: Int
    /// The number of counted passes. Later passes are shorter, because the holders have nothing left.
    private static let mostPasses = 100

    /// - Parameter measurementsPerPass: calls of `footprint` in a pass.
    init(warmingPasses: Int, measurementsPerPass: Int = 2) {
        self.warmingPasses = warmingPasses
        self.measurementsPerPass = measurementsPerPass
    }

    /// Leaves out turns in which `manager` notices a gap: the return from a gap may allocate.
    func leaveOutGaps(of manager: ResourceManager) { heartbeat.withLock { $0 = manager.parts.heartbeat } }
    private var gaps: UInt64 { heartbeat.withLock { $0?.gaps ?? 0 } }

    var countedPasses: Int { counts.withLock { $0.passes - warmingPasses } }
    var loopAllocations: UInt64 { counts.withLock { $0.loop } }
    var handAllocations: UInt64 { counts.withLock { $0.hand } }

    var capabilities: Capabilities { script.capabilities }
    var rings: Bool { true }
    func wake() { script.wake() }
    func read(at: Duration) throws(PressureSourceError) -> PressureReading { try script.read(at: at) }

    func wait(atMost limit: Duration) {
        let now = allocation_count(), gaps = gaps
        counts.withLock { if $0.passes > warmingPasses, $0.gapsAtWake == gaps { $0.loop = max($0.loop, now - $0.atWake) } }
        script.wait(atMost: limit)
        let gapsAtWake = self.gaps, after = allocation_count()
        counts.withLock { ($0.atWake, $0.gapsAtWake) = (after, gapsAtWake) }
    }

    /// Returns a falling footprint. The manager calls this method before and after each pass. The heap of a test that
    /// counts allocations is not trimmed.
    func footprint() -> Footprint {
        let now = allocation_count()
        return counts.withLock { counts in
            counts.measurements += 1
            if counts.measurements % measurementsPerPass > 1 {
                // This measurement is between volatile memory and the heap.
            } else if let start = counts.atPassStart {
                if counts.passes >= warmingPasses, counts.passes < Self.mostPasses { counts.hand = max(counts.hand, now - start) }
                counts.passes += 1
                counts.atPassStart = nil
            } else {
                counts.atPassStart = now
            }
            // Every pass seems to release memory, so that the next pass is not held off.
            counts.resident -= .mebibytes(100)
            return Footprint(resident: counts.resident)
        }
    }
}
