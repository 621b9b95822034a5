import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Rehearsed memory warnings, and the purgeables that may be asked to release memory.
@Suite(.serialized, .timeLimit(.minutes(5))) struct MemoryWarningTests {
    /// A purgeable that holds bytes and logs the requests to release.
    final class Holder: Purgeable {
        let name: String
        let rebuildCost: RebuildCost
        private let held: Mutex<Int>
        private let spares: Mutex<Int>
        let asked = Log<Int>()

        init(_ name: String, _ bytes: ByteCount, _ rebuildCost: RebuildCost = .cheap, spares: ByteCount = .zero) {
            self.name = name
            self.rebuildCost = rebuildCost
            held = Mutex(bytes.bytes)
            self.spares = Mutex(spares.bytes)
        }

        var heldBytes: Int { held.withLock { $0 } }

        func release(_ target: Int) -> Int {
            asked.add(target)
            return held.withLock { held in
                let gone = min(held, target)
                held -= gone
                return gone
            }
        }

        func dropSpares() -> Int {
            spares.withLock { spares in
                defer { spares = 0 }
                return spares
            }
        }
    }

    private func manager() -> ResourceManager { ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper) }

    // MARK: Rehearsals and settings

    @Test func `C84 C83 a rehearsal from the environment walks the real path from the first turn`() async throws {
        let source = ScriptedPressureSource(), clock = ManualClock(), events = Log<PressureEvent>()
        let manager = ResourceManager(source: source, time: clock.timekeeper, environment: { $0 == "PLIMSOLL_SIMULATE" ? "critical:5s" : nil })
        manager.observe { events.add($0) }
        source.push(usage: .mebibytes(100), limit: .gibibytes(1))
        let run = Task { try await manager.run() }
        await until { !events.all.isEmpty }
        #expect(events.all[0].level == .critical && events.all[0].isSimulated && manager.level == .critical)
        run.cancel()
        try await run.value
    }

    @Test(arguments: ["critical", "critical:", "critical:5", "critical:0s", "critical:-5s", "severe:5s", "", "critical:5s ", "critical:99999999999s"])
    func `C84 an invalid rehearsal stops the start, with the value and the allowed form`(text: String) async throws {
        let manager = ResourceManager(
            source: ScriptedPressureSource(), time: ManualClock().timekeeper, environment: { $0 == "PLIMSOLL_SIMULATE" ? text : nil })
        let error = await #expect(throws: ResourceManagerError.self) { try await manager.run() }
        #expect(error?.description.contains("PLIMSOLL_SIMULATE is \"\(text)\"; allowed is LEVEL:DURATION") == true)
    }

    @Test func `an operator's Boolean is one of the listed words, and other words stop the start`() async throws {
        func manager(_ variables: [String: String]) -> (ResourceManager, ScriptedPressureSource) {
            let source = ScriptedPressureSource()
            return (ResourceManager(source: source, time: ManualClock().timekeeper, environment: { variables[$0] }), source)
        }
        let error = await #expect(throws: ResourceManagerError.self) { try await manager(["PLIMSOLL_DRY_RUN": "perhaps"]).0.run() }
        #expect(error?.description == "PLIMSOLL_DRY_RUN is \"perhaps\"; allowed are true, yes, on, 1, and false, no, off, 0")
        let (dry, source) = manager(["PLIMSOLL_DRY_RUN": "YES", "PLIMSOLL_ENABLED": ""])
        dry.register("holder", byteCount: { 1 << 30 }, release: { $0 })
        source.push(usage: .mebibytes(1000), limit: .gibibytes(1))
        let run = Task { try await dry.run() }
        await until { !dry.reports.isEmpty }
        #expect(dry.isDryRun && dry.reports.allSatisfy { $0.outcome != .done })
        run.cancel()
        try await run.value
        let (off, unread) = manager(["PLIMSOLL_ENABLED": "off"])
        unread.push(usage: .mebibytes(1000), limit: .gibibytes(1))
        let idle = Task { try await off.run() }
        await until { off.lifecycle.readiness.isReady }
        #expect(off.level == .normal && off.status.memory == nil)
        idle.cancel()
        try await idle.value
    }

    @Test func `C84 a rehearsal is parsed as a level and a time`() throws {
        for (text, duration) in [("warning:500ms", Duration.milliseconds(500)), ("warning:5s", .seconds(5)), ("warning:2m", .seconds(120))] {
            let request = try SimulationRequest(text)
            #expect(request.level == .warning && request.duration == duration)
        }
        #expect(SimulationRequest.environment("PATH")?.isEmpty == false && SimulationRequest.environment("PLIMSOLL_NO_SUCH_VARIABLE") == nil)
    }

    // MARK: Choosing

    @Test func `C81 purgeables may register in groups, and an operator may select some of them`() async {
        let manager = manager()
        let images = manager.registerGroup("images"), thumbnails = images.registerGroup("thumbnails")
        let (large, small, rows, dear) = (
            Holder("large", .mebibytes(100)), Holder("small", .mebibytes(10)), Holder("rows", .mebibytes(50), .trivial),
            Holder("dear", .mebibytes(70), .precious)
        )
        images.register(large)
        let registration = thumbnails.register(small, tags: ["tenant-42"])
        manager.register(rows, tags: ["tenant-42"])
        manager.register(dear)
        #expect(images.heldBytes == 110 << 20 && thumbnails.heldBytes == 10 << 20 && thumbnails.name == "images/thumbnails")
        #expect(manager.heldBytes() == 230 << 20 && manager.heldBytes(in: .tag("tenant-42")) == 60 << 20)

        #expect(thumbnails.release(4 << 20).released == .mebibytes(4) && small.heldBytes == 6 << 20)
        #expect(await manager.release(20 << 20, from: .named("large")).released == .mebibytes(20))
        // Cheapest first, and no more than asked for.
        let report = await manager.release(60 << 20, from: .all)
        #expect(rows.heldBytes == .zero && large.heldBytes == 70 << 20 && small.heldBytes == 6 << 20 && report.released == .mebibytes(60))
        let rest = await manager.release(from: .all.upTo(.cheap))
        #expect(rest.released == .mebibytes(76) && dear.heldBytes == 70 << 20 && images.heldBytes == .zero)
        #expect(rest.origin == .operator && manager.reports.map(\.origin) == [.operator, .operator, .operator, .operator])
        #expect("\(rest)".hasPrefix("normal (operator): release"))
        registration.cancel()
        #expect(await manager.release(from: .tag("tenant-42")).released == .zero && small.asked.all.count == 2)
        #expect(await manager.release(from: .group("image")).released == .zero, "no group by half its name")
    }

    @Test func `C81 slashes in a name separate groups, and an empty name selects nothing`() {
        let manager = manager(), rows = Holder("rows", .mebibytes(8)), others = Holder("others", .mebibytes(8))
        let tenant = manager.registerGroup("tenants/42")
        tenant.register(rows)
        manager.register(others)
        #expect(tenant.path == ["tenants", "42"] && tenant.name == "tenants/42" && tenant.heldBytes == 8 << 20)
        let tenants = manager.registerGroup("tenants")
        #expect(tenants.heldBytes == 8 << 20 && tenants.registerGroup("/42/").path == tenant.path)
        #expect(tenant.release(3 << 20).released == .mebibytes(3) && rows.heldBytes == 5 << 20)
        for name in ["", "/"] {
            let report: ActionReport = manager.release(from: .group(name))
            #expect(manager.heldBytes(in: .group(name)) == 0 && report.released == .zero)
        }
        #expect(rows.heldBytes == 5 << 20 && others.heldBytes == 8 << 20)
    }

    @Test func `C81 a thousand members of a group are asked as one`() {
        let manager = manager()
        let group = manager.registerGroup("buffers")
        let holders = (0..<1000).map { Holder("buffer \($0)", .kibibytes(1)) }
        for holder in holders { group.register(holder) }
        #expect(group.heldBytes == 1000 << 10 && group.release(300 << 10).released == .kibibytes(300))
        #expect(holders.filter { !$0.asked.all.isEmpty }.count == 300 && group.release().released == .kibibytes(700))
    }

    @Test func `C81 a purgeable already being asked is skipped, and a false answer is not believed`() async {
        let manager = manager(), inside = Log<Bool>(), parker = Parker()
        manager.register("stuck", byteCount: { 1000 }) { (target: Int) in
            inside.add(true)
            parker.park()
            return target
        }
        manager.register("liar", byteCount: { 1000 }) { (_: Int) in Int.max }
        async let first = onThread { () -> ActionReport in manager.release(from: .named("stuck")) }
        await until { !inside.all.isEmpty }
        let report = await manager.release()
        #expect(report.outcome == .overran(["stuck"]) && report.released == 1000)
        parker.unpark()
        #expect(await first.released == 1000)
    }

    // MARK: The background

    @Test func `C87 C88 the way to the background purges speed-only caches, releases spares of others, and keeps handles valid`()
        async throws
    {
        let manager = manager()
        let speed = PurgeableCache<Int, Int>("speed", cost: { _, _ in 100 }), state = PurgeableCache<Int, Int>("state", cost: { _, _ in 100 })
        let pages = VolatileCache<Int, [UInt8]>("pages", limit: .mebibytes(4)), pool = Holder("pool", .mebibytes(1), spares: .kibibytes(64))
        for key in 0..<10 {
            speed.insert(key, forKey: key)
            state.insert(key, forKey: key)
            pages.insert([1, 2], forKey: key)
        }
        _ = pages.withBytes(forKey: 1) { $0.byteCount }
        manager.register(speed, purgesOnBackground: true)
        manager.register(state)
        manager.register(pages)
        manager.register(pool)
        manager.register("idle connections", purgesOnBackground: true, byteCount: { 5000 }, release: { $0 })
        let report = await onThread { manager.parts.purgeForBackground() }
        #expect(speed.count == 0 && state.count == 10 && pages.count == 10 && pool.heldBytes == 1 << 20)
        #expect(report.origin == .background && report.outcome == .done && manager.reports == [report])
        // The purged entries, the connections, the pool's spares, and the volatile cache's buffer of 4 KiB.
        #expect(report.released == .bytes(1000 + 5000) + .kibibytes(64 + 4))
        // The same handles stay in use.
        speed.insert(1, forKey: 1)
        #expect(speed.value(forKey: 1) == 1 && pages.withBytes(forKey: 1) { $0.byteCount } == 2)
    }

    @Test func `C87 the way to the background purges, and no purge comes before`() async throws {
        let clock = ManualClock()
        let manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        let speed = Holder("speed", .mebibytes(1)), key = manager.lifecycle.keep(try SecretTests.secret())
        manager.register(speed, purgesOnBackground: true)
        let lock = ExclusiveResource("lock", release: {}, reacquire: { _ in })
        try manager.lifecycle.exclusive.add(lock)
        manager.lifecycle.observe(
            "all",
            onBackground: { _ in
                #expect(speed.heldBytes == 1 << 20 && !key.isWiped && lock.isHeld)
            })
        try await manager.lifecycle.launch(into: .active)
        try await manager.lifecycle.enterBackground(cause: .operator)
        #expect(speed.heldBytes == .zero && key.isWiped && manager.lifecycle.heldResources.isEmpty)
        #expect(manager.lifecycle.lastScrub?.reason == .background)
        try await manager.lifecycle.enterForeground(cause: .operator)
        #expect(lock.isHeld && lock.epoch == 2)
    }

    @Test func `C88 a purgeable that hangs on the way to the background is named, and the transition continues`() async {
        let clock = ManualClock(), parker = Parker(), inside = Log<Bool>()
        let manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        manager.register("stuck", purgesOnBackground: true, byteCount: { 1000 }) { (_: Int) in
            inside.add(true)
            parker.park()
            return 0
        }
        async let purge = onThread { manager.parts.purgeForBackground(within: .seconds(1)) }
        await until { !inside.all.isEmpty }
        await until {
            clock.advance(by: .seconds(1))
            return !manager.reports.isEmpty
        }
        let report = await purge
        #expect(report.outcome == .overran(["stuck"]) && report.took == .seconds(1))
        parker.unpark()
    }

    @Test func `C89 a purged buffer's handle stays, accesses fail, and another payload can be made`() async {
        let manager = manager()
        let image = PurgeableBuffer("image", byteCount: 100_000)
        #expect(image.withAccess { _ in 1 } == 1)
        manager.register(image, purgesOnBackground: true)
        _ = await onThread { manager.parts.purgeForBackground() }
        #expect(image.isDiscarded && !image.beginAccess() && image.withAccess { _ in 1 } == nil && image.byteCount == 100_000)
        let again = PurgeableBuffer("image", byteCount: 100_000)
        #expect(again.beginAccess())
        // A buffer in use stays, for every request.
        manager.register(again, purgesOnBackground: true)
        _ = await onThread { manager.parts.purgeForBackground() }
        #expect(!again.isDiscarded)
        again.endAccess()
    }
}
