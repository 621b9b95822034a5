import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

@Suite(.serialized, .timeLimit(.minutes(5))) struct ResourceManagerTests {
    static func filledCache(_ name: String = "cache", _ cost: RebuildCost = .cheap, mebibytes: Int = 100) -> PurgeableCache<Int, Int> {
        let cache = PurgeableCache<Int, Int>(name, rebuildCost: cost, cost: { _, _ in 1 << 20 })
        for key in 0..<mebibytes { cache.insert(key, forKey: key) }
        return cache
    }

    @Test func `a manager that never ran is inert and usable`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let cache = Self.filledCache()
        manager.register(cache)
        cache.insert(1, forKey: 1000)
        #expect(cache.count == 101 && manager.level == .normal && manager.backgroundTimeRemaining == nil)
        let task = manager.beginBackgroundTask("flush") { task, _ in task.end() }
        #expect(task.isActive && manager.backgroundTasks.map(\.name) == ["flush"])
        task.end()
        #expect(!task.isActive && manager.backgroundTasks.isEmpty)
    }

    @Test func `C76 C79 a shortage releases the requested bytes and notifies the observers`() async throws {
        let events = Mutex<[PressureEvent]>([])
        try await RunningManager.run { running in
            let cache = Self.filledCache(mebibytes: 150)
            running.manager.register(cache)
            running.manager.observe(from: .warning) { event in events.withLock { $0.append(event) } }
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(600))
            #expect(running.manager.level == .normal && cache.count == 150)
            await running.available(.mebibytes(180), after: .seconds(60))
            let report = try #require(await reports.next())
            #expect(report.action == .release && report.level == .warning && report.evidence.contains(.headroom))
            #expect(report.asked > .mebibytes(100) && report.released >= report.asked && report.released < report.asked + .mebibytes(2))
            #expect(cache.byteCount == 150 << 20 - report.released.bytes)
            #expect(running.manager.level == .warning)
            await running.until { events.withLock { $0.count } == 1 }
        }
        let event = try #require(events.withLock { $0.first })
        #expect(event.level == .warning && event.previous == .normal && event.shortfall > .zero && !event.isSimulated)
    }

    @Test func `C80 entries cheap to rebuild go first, precious ones only at critical`() async throws {
        try await RunningManager.run(policy: .patient) { running in
            let precious = Self.filledCache("precious", .precious), trivial = Self.filledCache("trivial", .trivial, mebibytes: 50)
            let cheapA = Self.filledCache("a", .cheap, mebibytes: 20), cheapB = Self.filledCache("b", .cheap, mebibytes: 60)
            for cache in [precious, cheapA, trivial, cheapB] { running.manager.register(cache) }
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(200))
            let first = try #require(await reports.next())
            #expect(trivial.count == 0 && precious.count == 100)
            // For 1 GiB the line is at 282.6 MiB, so 83 MiB are released: 50 from the trivial cache, the rest from a
            // and b in proportion to their held bytes.
            #expect(first.released >= .mebibytes(82) && (11...12).contains(cheapA.count) && (34...37).contains(cheapB.count))
            await running.available(.mebibytes(20), after: .seconds(60))
            while let report = await reports.next(), report.action != .release {}
            #expect(cheapA.count == 0 && cheapB.count == 0 && precious.count < 100)
        }
    }

    @Test func `closures that count in Int or in ByteCount are purgeables`() async throws {
        try await RunningManager.run { running in
            let database = Counter()
            database.add(50 << 20)
            running.manager.register("sqlite", rebuildCost: .cheap, byteCount: { database.value }) { (target: Int) in
                database.add(-target)
                return target
            }
            let asked = Mutex(0)
            running.manager.register("pool", byteCount: { 50 << 20 }) { target in
                asked.withLock { $0 = target }
                return target
            }
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(180))
            _ = await reports.next()
            #expect(database.value < 20 << 20 && asked.withLock { $0 } > 30 << 20)
        }
    }

    @Test func `T21 a purge that frees nothing is not repeated`() async throws {
        try await RunningManager.run(policy: .patient) { running in
            let calls = Counter()
            running.manager.register("miser", byteCount: { 1 << 30 }) { _ in
                calls.add(1)
                return 0
            }
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(150))
            _ = await reports.next()
            for _ in 0..<20 { await running.available(.mebibytes(149), after: .seconds(1)) }
            #expect(calls.value == 1)
            await running.available(.mebibytes(100), after: .seconds(1))
            while let report = await reports.next(), report.action != .release {}
            #expect(calls.value == 2, "it got worse by a third, so it is tried again")
        }
    }

    @Test func `K30 contents read back at once are released every five seconds, not with each reading`() async throws {
        try await RunningManager.run(policy: .patient) { running in
            let calls = Counter(), usage = ByteCount.mebibytes(874)
            // The contents are in files: the next request reads released contents back, so that a release only causes
            // stall.
            running.manager.register("file-backed", byteCount: { 64 << 20 }) { (target: Int) in
                calls.add(1)
                return target
            }
            var reports = running.comingReports.makeAsyncIterator()
            for second in 0...20 {
                await running.turn(after: .seconds(second == 0 ? 0 : 1)) {
                    running.source.push(
                        PressureReading(
                            at: .zero, boundary: .maximum, limit: .gibibytes(1), usage: usage, resident: usage,
                            stall: .init(some: .seconds(Double(second) * 0.2))))
                }
                if second.isMultiple(of: 5) { while let report = await reports.next(), report.action != .release {} }
            }
            #expect(calls.value == 5 && running.manager.reports.count { $0.action == .release } == 5)
        }
    }

    @Test func `T24 caches do not grow while memory is short, and then in steps`() async throws {
        try await RunningManager.run { running in
            let cache = Self.filledCache()
            running.manager.register(cache)
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(180))
            _ = await reports.next()
            await running.available(.mebibytes(180), after: .seconds(1))
            let left = cache.count
            for key in 1000..<1100 { cache.insert(key, forKey: key) }
            #expect(cache.count <= left, "replaced, not grown")
            await running.available(.mebibytes(300), after: .seconds(10))
            for key in 2000..<2100 { cache.insert(key, forKey: key) }
            #expect(cache.count > left)
        }
    }

    @Test func `C83 C84 T40 a simulation takes the real path, with a label`() async throws {
        let events = Mutex<[PressureEvent]>([])
        try await RunningManager.run(policy: .init(ladder: .standard.terminating(after: .seconds(1)))) { running in
            let cache = Self.filledCache()
            running.manager.register(cache)
            running.manager.observe { event in events.withLock { $0.append(event) } }
            var reports = running.comingReports.makeAsyncIterator()
            await running.available(.mebibytes(900))
            running.manager.simulate(.critical, for: .seconds(60))
            let report = try #require(await reports.next())
            #expect(report.isSimulated)
            await running.until { cache.count <= 50 }
            for _ in 0..<5 { await running.available(.mebibytes(900), after: .seconds(2)) }
            #expect(running.exits.count == 0, "a rehearsal ends no process")
            await running.until { running.manager.reports.contains { $0.outcome == .refused("a simulation does not terminate the process") } }
            running.manager.simulate(.normal, for: .zero)
            await running.available(.mebibytes(900), after: .seconds(20))
        }
        #expect(events.withLock { $0 }.allSatisfy(\.isSimulated) && events.withLock { $0.count } == 1)
    }

    @Test func `a dry run decides, notifies and reports, but releases nothing`() async throws {
        try await RunningManager.run(policy: .init(ladder: .standard.terminating(after: .seconds(1)), isDryRun: true)) { running in
            let cache = Self.filledCache()
            running.manager.register(cache)
            let notified = Counter(), expired = Counter()
            running.manager.observe { _ in notified.add(1) }
            let task = running.manager.beginBackgroundTask("work") { _, _ in expired.add(1) }
            for _ in 0..<10 { await running.available(.mebibytes(20), after: .seconds(1)) }
            await running.until { notified.value == 1 }
            #expect(cache.count == 100 && expired.value == 0 && task.isActive && running.exits.count == 0)
            let dry = running.manager.reports.filter { $0.outcome == .dryRun }.map(\.action)
            #expect(dry.contains(.release) && dry.contains { if case .expireBackgroundTasks = $0 { true } else { false } })
            #expect(dry.contains { if case .terminate = $0 { true } else { false } })
            for _ in 0..<3 { await running.available(.mebibytes(900), after: .seconds(60)) }
            for _ in 0..<5 { await running.available(.mebibytes(20), after: .seconds(1)) }
            let later = running.manager.reports.filter { $0.outcome == .dryRun }.map(\.action)
            #expect(later.count { $0 == .release } > dry.count { $0 == .release }, "the next shortage is reported as well")
        }
    }

    @Test func `suspension and quiescing are refused with a reason until a part can carry them out`() async throws {
        try await RunningManager.run { running in
            for _ in 0..<15 { await running.available(.mebibytes(20), after: .seconds(1)) }
            let refused = running.manager.reports.compactMap { report -> PressureAction? in
                if case .refused(let reason) = report.outcome, !reason.isEmpty { report.action } else { nil }
            }
            #expect(refused == [.quiesce, .suspend])
            #expect(
                running.manager.reports.contains {
                    $0.outcome == .refused("the process has no link to a supervisor that could suspend it; it stays quiesced")
                })
        }
    }

    @Test func `a suspension goes to the linked supervisor and reports the answer, and never for a simulation or a dry run`() async throws {
        let asked = Counter()
        func outcome(_ answer: String?, isDryRun: Bool = false, isSimulated: Bool = false) async throws -> [ActionReport.Outcome] {
            let outcomes = Log<ActionReport.Outcome>()
            try await RunningManager.run(policy: .init(isDryRun: isDryRun)) { running in
                let link = running.manager.onSuspensionRequest {
                    asked.add(1)
                    return answer
                }
                if isSimulated { running.manager.simulate(.critical, for: .seconds(60)) }
                for _ in 0..<15 { await running.available(.mebibytes(isSimulated ? 900 : 20), after: .seconds(1)) }
                for report in running.manager.reports where report.action == .suspend { outcomes.add(report.outcome) }
                link.cancel()
            }
            return outcomes.all
        }
        #expect(try await outcome(nil) == [.done] && asked.value == 1)
        #expect(try await outcome("no supervisor is connected") == [.refused("no supervisor is connected")] && asked.value == 2)
        #expect(try await outcome(nil, isDryRun: true) == [.dryRun] && asked.value == 2)
        #expect(try await outcome(nil, isSimulated: true) == [.refused("a simulation does not suspend the process")] && asked.value == 2)
    }

    @Test func `a source that fails for a while is read again`() async throws {
        try await RunningManager.run { running in
            await running.available(.mebibytes(600))
            running.source.fail(true)
            running.source.fail(false)
            await running.available(.mebibytes(50), after: .seconds(1))
            #expect(running.manager.level == .critical)
        }
    }

    /// A source that can never be read, and that notes the calls of the loop. The third reading ends the loop.
    private final class DeafSource: PressureSource {
        let calls = Log<String>()
        private let inbox = Mutex<Inbox?>(nil)

        var capabilities: Capabilities { ScriptedPressureSource().capabilities }
        var rings: Bool { true }

        func end(_ inbox: Inbox) { self.inbox.withLock { $0 = inbox } }
        func read(at: Duration) throws(PressureSourceError) -> PressureReading {
            calls.add("read")
            if calls.all.count(where: { $0 == "read" }) == 3 { inbox.withLock { $0 }?.stop() }
            throw PressureSourceError("there is nothing to read")
        }
        func wait(atMost limit: Duration) { calls.add("wait") }
        func wake() {}
        func footprint() -> Footprint { Footprint() }
    }

    @Test func `after a reading that fails, the loop waits before the next reading`() async throws {
        let source = DeafSource(), clock = ManualClock()
        let manager = ResourceManager(source: source, time: clock.timekeeper)
        source.end(manager.parts.inbox)
        try await onThread {
            PressureLoop(
                source: source, policy: .standard, time: clock.timekeeper, parts: manager.parts, isEnabled: true,
                onTurn: nil
            ).run()
        }.value
        #expect(source.calls.all == ["read", "wait", "read", "wait", "read", "wait"])
    }

    @Test func `a loop counts as alive for thirteen seconds after its last turn`() {
        let clock = ManualClock()
        let manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        #expect(manager.isAlive, "there was no turn yet")
        manager.parts.publish(PressureReading(at: .zero), PressureAssessment(at: .zero))
        clock.advance(by: .milliseconds(12_900))
        #expect(manager.isAlive)
        clock.advance(by: .milliseconds(100))
        #expect(!manager.isAlive)
        manager.stop()
        #expect(manager.isAlive, "a shutdown may take longer")
    }

    @Test func `a manager runs once`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource())
        let task = Task { try await manager.run() }
        task.cancel()
        try await task.value
        await #expect(throws: ResourceManagerError.self) { try await manager.run() }
    }

    @Test func `the stream of events includes recovery, newest first for a slow reader`() async throws {
        try await RunningManager.run { running in
            var events = running.manager.pressureEvents.makeAsyncIterator()
            await running.available(.mebibytes(150))
            #expect(await events.next()?.level == .warning)
            await running.available(.mebibytes(700), after: .seconds(1))
            await running.available(.mebibytes(700), after: .seconds(10))
            #expect(await events.next()?.level == .normal)
        }
    }
}

extension PressurePolicy {
    /// The standard policy with an hour for each handler: on a busy machine a thread is inside a handler for long, and a
    /// manual clock does not wait for that thread.
    static let patient = PressurePolicy(handlerBudget: .seconds(3600))
}
