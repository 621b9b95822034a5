import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Handlers that block, re-enter, and unregister themselves or others.
@Suite(.serialized, .timeLimit(.minutes(5))) struct HandlerTests {
    @Test func `T1 an observer is never called after cancel, not even by a delivery under way`() async throws {
        try await RunningManager.run { running in
            let calls = Counter()
            let registration = Mutex<Registration?>(nil)
            let other = running.manager.observe { _ in calls.add(100) }
            let first = running.manager.observe { _ in
                calls.add(1)
                // Cancels its own registration and another one during the delivery.
                registration.withLock { $0 }?.cancel()
                other.cancel()
            }
            registration.withLock { $0 = first }
            await running.available(.mebibytes(150))
            // The first observer is called after the other one.
            await running.until { !calls.value.isMultiple(of: 100) }
            await running.available(.mebibytes(50), after: .seconds(1))
            await running.available(.mebibytes(50), after: .seconds(1))
            #expect(calls.value == 1 || calls.value == 101, "each at most once, and not for the second event")
            other.cancel()
        }
    }

    @Test func `T1 cancel waits for a call on another thread`() async throws {
        try await RunningManager.run { running in
            let inside = Parker(), goOn = Parker()
            let isInside = Counter()
            let registration = running.manager.observe { _ in
                isInside.add(1)
                inside.unpark()
                goOn.park()
                isInside.add(-1)
            }
            await running.available(.mebibytes(150))
            await running.blocking { inside.park() }
            let cancelled = Counter()
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    await running.blocking { registration.cancel() }
                    #expect(isInside.value == 0)
                    cancelled.add(1)
                }
                group.addTask {
                    #expect(cancelled.value == 0)
                    goOn.unpark()
                }
            }
            #expect(cancelled.value == 1)
        }
    }

    @Test func `T6 T7 a blocking observer is named, and the others are served`() async throws {
        try await RunningManager.run { running in
            let release = Parker(), notified = Counter(), blocked = Counter()
            running.manager.observe(from: .warning, "blocker") { event in
                blocked.add(1)
                if event.level == .warning { release.park() }
            }
            running.manager.observe { _ in notified.add(1) }
            await running.available(.mebibytes(150))
            await running.until { blocked.value == 1 }
            await running.available(.mebibytes(150), after: .seconds(6))
            await running.until { notified.value == 1 }
            #expect(running.manager.reports.contains { $0.outcome == .overran(["blocker"]) })
            // The first observer still blocks and is skipped. The other observer receives the next event.
            await running.available(.mebibytes(50), after: .seconds(1))
            await running.until { notified.value == 2 }
            #expect(blocked.value == 1)
            release.unpark()
            await running.until { blocked.value == 2 }
        }
    }

    @Test func `T6 T7 a listener that blocks is named once, and misses reports until the call returns`() async throws {
        try await RunningManager.run { running in
            let goOn = Parker(), calls = Counter(), manager = running.manager
            manager.onReport { _ in
                calls.add(1)
                if calls.value == 1 { goOn.park() }
            }
            await running.available(.mebibytes(150))
            await running.until { calls.value == 1 }
            for _ in 0..<3 {
                await running.available(.mebibytes(150), after: .seconds(6))
                // The report that names the listener is for that listener, too.
                await running.until { manager.parts.journal.overwritten > 0 || calls.value > 1 }
            }
            #expect(calls.value == 1, "one call inside, and none beside that")
            #expect(manager.reports.filter { $0.outcome == .overran(["onReport"]) }.count == 1)
            goOn.unpark()
            await running.until {
                manager.parts.report(
                    ActionReport(eventID: 0, action: .warn, level: .normal, evidence: [], began: .zero))
                return calls.value > 1
            }
        }
    }

    @Test func `T6 an observer that blocked through a shortage is notified of the recovery on return, once`() async throws {
        try await RunningManager.run { running in
            let release = Parker(), notified = Counter()
            let received = Mutex<[PressureLevel]>([])
            running.manager.observe(from: .normal, "blocker") { event in
                received.withLock { $0.append(event.level) }
                if event.level == .warning { release.park() }
            }
            running.manager.observe(from: .normal) { _ in notified.add(1) }
            await running.available(.mebibytes(150))
            await running.until { received.withLock { $0 } == [.warning] }
            await running.available(.mebibytes(150), after: .seconds(6))
            await running.until { notified.value == 1 }
            await running.available(.mebibytes(50), after: .seconds(1))
            await running.until { notified.value == 2 }
            for _ in 0..<6 where running.manager.level > .normal { await running.available(.mebibytes(700), after: .seconds(10)) }
            await running.until { notified.value >= 3 }
            #expect(running.manager.level == .normal && received.withLock { $0 } == [.warning])
            release.unpark()
            await running.until { received.withLock { $0.count } > 1 }
            #expect(received.withLock { $0 } == [.warning, .normal], "the newest of what it missed")
        }
    }

    @Test func `a blocking purgeable is named, and the next purge skips that purgeable`() async throws {
        try await RunningManager.run { running in
            let release = Parker(), blocked = Counter()
            running.manager.register("stuck", rebuildCost: .trivial, byteCount: { 500 << 20 }) { (_: Int) -> Int in
                blocked.add(1)
                release.park()
                return 0
            }
            let cache = ResourceManagerTests.filledCache()
            running.manager.register(cache)
            await running.available(.mebibytes(150))
            await running.until { blocked.value == 1 }
            #expect(cache.count == 100)
            await running.available(.mebibytes(150), after: .seconds(6))
            #expect(running.manager.reports.contains { $0.outcome == .overran(["stuck"]) })
            await running.available(.mebibytes(150), after: .seconds(1))
            await running.until { cache.count < 100 }
            #expect(blocked.value == 1)
            release.unpark()
        }
    }

    @Test func `K32 a purgeable may unregister during a release`() async throws {
        try await RunningManager.run { running in
            let registration = Mutex<Registration?>(nil)
            let calls = Counter()
            let mine = running.manager.register("leaver", byteCount: { 500 << 20 }) { (target: Int) -> Int in
                calls.add(1)
                registration.withLock { $0 }?.cancel()
                return target
            }
            registration.withLock { $0 = mine }
            await running.available(.mebibytes(150))
            await running.until { calls.value == 1 }
            for _ in 0..<3 { await running.available(.mebibytes(100), after: .seconds(40)) }
            #expect(calls.value == 1)
        }
    }

    /// A purgeable that blocks in `restrict`.
    private final class Blocking: Purgeable {
        let name = "blocking", rebuildCost = RebuildCost.cheap
        private let blockade: Blockade
        private let blocksOnLifting: Bool

        /// - Parameter blocksOnLifting: true to block when a restriction is lifted, false to block when one is set.
        init(_ blockade: Blockade, blocksOnLifting: Bool = false) {
            (self.blockade, self.blocksOnLifting) = (blockade, blocksOnLifting)
        }

        var heldBytes: Int { 0 }
        func release(_ target: Int) -> Int { 0 }
        func restrict(to limit: ByteCount?) { if (limit == nil) == blocksOnLifting { blockade.wait() } }
    }

    @Test(.needsLinux) func `a second cancel returns only once the first has lifted the restriction`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource()), blockade = Blockade()
        let ended = Log<String>(), threads = Log<Int32>()
        let registration = manager.register(Blocking(blockade, blocksOnLifting: true))
        let entry = try #require(manager.parts.purgeables.snapshot.first)
        let wasRestricted = entry.gate.call { entry.restrict() }
        #expect(wasRestricted && blockade.count == 0)
        #expect(
            Thread.start("first") {
                registration.cancel()
                ended.add("first")
            })
        await until("the lifting") { blockade.count == 1 }
        #expect(
            Thread.start("second") {
                threads.add(threadNumber)
                registration.cancel()
                ended.add("second")
            })
        await until("the wait for the lifting") {
            !ended.all.isEmpty || threads.all.first.map { isBlocked($0) } ?? false
        }
        #expect(ended.all.isEmpty)
        blockade.open()
        await until("both ends") { ended.all.count == 2 }
        // Later calls find nothing to do.
        registration.cancel()
        #expect(blockade.count == 1 && !entry.isRestricted)
    }

    @Test func `a thread that was replaced inside a restriction does not report the release`() async {
        let purgeables = PurgeableRegistry(), meter = ChargeMeter {}, blockade = Blockade()
        purgeables.add(PurgeableRegistry.Entry(Blocking(blockade), meter: meter, volatileMeter: meter))
        let purger = Purger(registry: purgeables, source: ScriptedPressureSource(), time: ManualClock().timekeeper)
        let goesOn = Log<Bool>(), reports = Log<ActionReport>()
        let worker = Worker("purges") { turn in goesOn.add(purger.run(turn) { reports.add($0) }) }
        worker.start()
        let report = ActionReport(eventID: 1, action: .release, level: .warning, evidence: .headroom, began: .zero)
        purger.post(.init(report: report, includesPrecious: false))
        worker.request()
        await until { blockade.count == 1 }
        #expect(worker.replaceIfStuck(at: .seconds(5), budget: .seconds(5)) == "blocking")
        // The new thread runs at once, and finds no request.
        await until { goesOn.all == [true] }
        blockade.open()
        await until { goesOn.all.count == 2 }
        #expect(goesOn.all == [true, false] && reports.all.isEmpty)
        worker.stop()
    }

    @Test func `a purgeable that overstates a release is believed up to the held bytes`() async throws {
        try await RunningManager.run { running in
            running.manager.register("boaster", byteCount: { 10 << 20 }) { (_: Int) -> Int in Int.max }
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(150))
            #expect(await reports.next()?.released == .mebibytes(10))
        }
    }

    @Test func `T26 purgeables that claim huge or negative sizes disturb no other purgeable`() async throws {
        try await RunningManager.run { running in
            for claim in [Int.max, Int.max, Int.min, -1] {
                running.manager.register("claim", byteCount: { claim }) { (_: Int) -> Int in Int.min }
            }
            let cache = ResourceManagerTests.filledCache("honest", .expensive)
            running.manager.register(cache)
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(180))
            let report = try #require(await reports.next())
            #expect(report.released >= .mebibytes(100) && cache.count == 0)
        }
    }

    @Test func `an observer may register, observe and simulate from the callback`() async throws {
        try await RunningManager.run { running in
            let received = Counter()
            running.manager.observe { _ in
                running.manager.observe { _ in received.add(1) }
                running.manager.register(ResourceManagerTests.filledCache())
                running.manager.simulate(.critical, for: .seconds(1))
                received.add(100)
            }
            await running.available(.mebibytes(150))
            await running.until { received.value >= 101 }
            #expect(running.manager.status.holders.contains { $0.name == "cache" } && running.manager.level == .critical)
        }
    }
}

extension RunningManager {
    /// Runs a blocking body on a thread that may block.
    func blocking(_ body: @escaping @Sendable () -> Void) async {
        await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
            manager.parts.threads.run {
                body()
                done.resume()
            }
        }
    }
}
