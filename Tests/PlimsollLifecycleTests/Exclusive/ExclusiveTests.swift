import Glibc
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct ExclusiveTests {
    let clock = ManualClock()
    let calls = Log<String>()
    let manager: ResourceManager
    var exclusive: ExclusiveResources { manager.lifecycle.exclusive }

    init() {
        manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        // Most tests report gaps by hand. One of the last tests covers gaps that the life cycle reports.
        exclusive.alarms.whenGapEnds { _ in }
    }

    /// A resource that logs the calls that it receives.
    private func noting(
        _ name: String, after: [String] = [], lease: Duration? = nil
    ) throws -> ExclusiveResource {
        let resource = ExclusiveResource(
            name, after: after, lease: lease, drain: { [calls] _ in calls.add("drain \(name)") },
            release: { [calls] in calls.add("release \(name)") }, forceClose: { [calls] in calls.add("force \(name)") },
            reacquire: { [calls] epoch in calls.add("acquire \(name) \(epoch)") })
        try exclusive.add(resource)
        return resource
    }

    private func release(within budget: Duration = .seconds(5)) async -> ExclusiveReport {
        let exclusive = exclusive
        return await onThread { exclusive.release(within: budget) }
    }

    private func reacquire(within budget: Duration = .seconds(5)) async -> ExclusiveReport {
        let exclusive = exclusive
        return await onThread { exclusive.reacquire(within: budget) }
    }

    /// Runs `body` past its budget: the clock moves by the budget as soon as `body` waits.
    private func passing(
        _ budget: Duration, once isBegun: () -> Bool = { true }, _ body: @escaping @Sendable () -> ExclusiveReport
    ) async -> ExclusiveReport {
        let report = Log<ExclusiveReport>(), alarms = exclusive.alarms, before = alarms.total
        async let run: Void = onThread { report.add(body()) }
        await until { alarms.total != before && isBegun() }
        clock.advance(by: budget)
        await until { !report.all.isEmpty }
        await run
        return report.all[0]
    }

    @Test func `C48 dependents are released first, and acquired last, each in a new epoch`() async throws {
        let database = try noting("database", after: ["jobs", "http"])
        let (jobs, http) = (try noting("jobs", after: ["http"]), try noting("http"))
        let out = await release()
        #expect(out.done == ["http", "jobs", "database"] && out.stillHeld.isEmpty && out.overran.isEmpty)
        #expect(calls.all == ["drain http", "release http", "drain jobs", "release jobs", "drain database", "release database"])
        #expect(!database.isHeld && !jobs.isHeld && !http.isHeld && manager.lifecycle.heldResources.isEmpty)
        // Again, as in a flapping interruption: nothing is left to release.
        #expect(await release().done.isEmpty)
        let back = await reacquire()
        #expect(back.done == ["database", "jobs", "http"] && calls.all.suffix(3) == ["acquire database 2", "acquire jobs 2", "acquire http 2"])
        #expect(manager.lifecycle.heldResources == ["database", "jobs", "http"] && database.epoch == 2)
        #expect(await reacquire().done.isEmpty && calls.all.count == 9)
        #expect(exclusive.history.map(\.step) == [.release, .release, .reacquire, .reacquire])
    }

    @Test func `C48 a cyclic order is refused when closed, with the cycle`() throws {
        _ = try noting("a", after: ["b"])
        _ = try noting("b", after: ["c"])
        #expect(throws: ExclusiveResourceError(resource: "c", reason: .cycle(["c", "a", "b", "c"]))) { try noting("c", after: ["a"]) }
        #expect(throws: ExclusiveResourceError(resource: "self", reason: .cycle(["self", "self"]))) { try noting("self", after: ["self"]) }
        #expect(throws: ExclusiveResourceError(resource: "a", reason: .duplicateName)) { try noting("a") }
        let c = try noting("c")
        #expect(manager.lifecycle.heldResources == ["a", "b", "c"] && c.isHeld)
    }

    @Test func `C48 others can take a file lock while this process is in the background`() async throws {
        let path = "/tmp/plimsoll-lock-\(getpid())-\(UInt32.random(in: 0...(.max)))"
        let file = open(path, O_RDWR | O_CREAT, 0o600), other = open(path, O_RDWR)
        defer {
            close(file)
            close(other)
            unlink(path)
        }
        try #require(file >= 0 && other >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
        try exclusive.add(
            ExclusiveResource(
                "file", release: { flock(file, LOCK_UN) }, reacquire: { _ in if flock(file, LOCK_EX | LOCK_NB) != 0 { throw CancellationError() } }))
        #expect(flock(other, LOCK_EX | LOCK_NB) != 0)
        _ = await release()
        #expect(flock(other, LOCK_EX | LOCK_NB) == 0)
        #expect(await reacquire().failed.keys.sorted() == ["file"] && manager.lifecycle.heldResources.isEmpty)
        flock(other, LOCK_UN)
        #expect(await reacquire().done == ["file"] && flock(other, LOCK_EX | LOCK_NB) != 0)
    }

    @Test(arguments: [true, false]) func `C49 a listener is closed before a freeze, if needed by force: no client is left waiting in the backlog`(
        isStuck: Bool
    ) async throws {
        let listener = try LoopbackListener()
        let stuck = AsyncStream.makeStream(of: Void.self)
        try exclusive.add(
            ExclusiveResource(
                "http", drain: { _ in if isStuck { for await _ in stuck.stream {} } }, release: { listener.close() },
                forceClose: { listener.close() }, reacquire: { _ in try listener.open() }))
        #expect(listener.accepts())
        let exclusive = exclusive
        let report = isStuck ? await passing(.seconds(1)) { exclusive.release(within: .seconds(1)) } : await release()
        #expect(report.overran == (isStuck ? ["http"] : []) && report.stillHeld.isEmpty && !listener.accepts())
        stuck.continuation.finish()
        #expect(await reacquire().done == ["http"] && listener.accepts())
        listener.close()
    }

    @Test func `C52 a use in flight ends before the release, and no new use begins`() async throws {
        let resource = try noting("gpu")
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls
        async let use: Void = resource.withUse { epoch in
            calls.add("begin \(epoch)")
            for await _ in gate.stream {}
            calls.add("end \(resource.isCurrent(epoch))")
        }
        await until { !calls.all.isEmpty }
        async let out = release()
        await until { calls.all.contains("drain gpu") }
        #expect(throws: ExclusiveResourceError(resource: "gpu", reason: .inBackground)) { try resource.withUse { _ in } }
        gate.continuation.finish()
        try await use
        #expect(await out.done == ["gpu"] && calls.all == ["begin 1", "drain gpu", "end true", "release gpu"])
    }

    @Test func `C52 a resource not drained by the deadline is closed by force and named, and a late end touches nothing`() async throws {
        let resource = try noting("gpu"), after = try noting("other", after: ["gpu"])
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls
        async let use: Void = resource.withUse { epoch in
            calls.add("begin")
            for await _ in gate.stream {}
            calls.add("end \(resource.isCurrent(epoch))")
        }
        await until { !calls.all.isEmpty }
        let exclusive = exclusive
        let report = await passing(.seconds(5)) { exclusive.release(within: .seconds(5)) }
        #expect(report.overran.contains("gpu") && report.stillHeld.isEmpty && calls.all.contains("force gpu") && !resource.isHeld && !after.isHeld)
        #expect(await reacquire().done.contains("gpu"))
        gate.continuation.finish()
        try await use
        #expect(calls.all.last == "end false" && !calls.all.contains("release gpu"))
        // The old use no longer counts: the next release waits for no use.
        #expect(await release().done.contains("gpu"))
    }

    @Test func `C48 a resource that cannot even be closed by force is named as still held`() async throws {
        let gate = AsyncStream.makeStream(of: Void.self)
        try exclusive.add(ExclusiveResource("stuck", release: { for await _ in gate.stream {} }))
        let exclusive = exclusive
        let report = await passing(.seconds(1)) { exclusive.release(within: .seconds(1)) }
        #expect(report.overran == ["stuck"] && report.stillHeld == ["stuck"] && manager.lifecycle.heldResources == ["stuck"])
        gate.continuation.finish()
        await until { manager.lifecycle.heldResources.isEmpty }
    }

    @Test func `C48 C53 a resource whose release fails stays in use, and is released on the next way`() async throws {
        struct Failure: Error {}
        let calls = calls
        let lock = ExclusiveResource(
            "lock",
            release: {
                calls.add("release")
                if calls.all.count == 1 { throw Failure() }
            }, reacquire: { calls.add("acquire \($0)") })
        try exclusive.add(lock)
        let out = await release()
        #expect(out.failed.keys.sorted() == ["lock"] && out.stillHeld == ["lock"])
        #expect(await reacquire().done.isEmpty && lock.isHeld)
        #expect(try lock.withUse { $0 } == 1)
        let again = await release()
        #expect(again.done == ["lock"] && again.stillHeld.isEmpty && !lock.isHeld)
        #expect(await reacquire().done == ["lock"] && calls.all == ["release", "release", "acquire 2"])
    }

    @Test func `C48 a resource that takes all the time does not keep others from releasing, and is reacquired late`() async throws {
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls
        let slow = ExclusiveResource("slow", release: { for await _ in gate.stream {} }, reacquire: { calls.add("acquire slow \($0)") })
        let lock = ExclusiveResource("lock", after: ["slow"], release: { calls.add("release lock") }, reacquire: { calls.add("acquire lock \($0)") })
        try exclusive.add(slow)
        try exclusive.add(lock)
        let exclusive = exclusive
        let report = await passing(.seconds(1)) { exclusive.release(within: .seconds(1)) }
        #expect(report.overran.contains("slow") && report.stillHeld.contains("slow"))
        await until { !lock.isHeld }
        #expect(await reacquire().done == ["lock"] && slow.isHeld)
        // So late that the process is in the foreground again.
        gate.continuation.finish()
        await until { slow.epoch == 2 && slow.isHeld }
        #expect(calls.all == ["release lock", "acquire lock 2", "acquire slow 2"])
    }

    /// Releases all resources while the clock stands still. Records an issue if that call waits.
    private func releaseAtOnce(_ what: String) async -> ExclusiveReport? {
        let report = Log<ExclusiveReport>(), exclusive = exclusive
        let ended = Task { await onThread { report.add(exclusive.release(within: .seconds(1))) } }
        guard await until("\(what) ends", { !report.all.isEmpty }) else { return nil }
        await ended.value
        return report.all[0]
    }

    @Test(arguments: ["drain", "release"])
    func `a release that still hangs is named at once on later ways, and neither waited for nor begun again`(hanging: String) async throws {
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls
        let body: @Sendable (String) async -> Void = { name in
            calls.add(name)
            if name == hanging { for await _ in gate.stream {} }
        }
        let stuck = ExclusiveResource("stuck", drain: { _ in await body("drain") }, release: { await body("release") })
        try exclusive.add(stuck)
        let other = ExclusiveResource("other", release: {}, reacquire: { _ in })
        try exclusive.add(other)
        let exclusive = exclusive, threads = manager.lifecycle.threads
        // The clock moves once this resource hangs and the other's release has ended.
        let first = await passing(.seconds(1), once: { calls.all.last == hanging && threads.busy == 0 }) {
            exclusive.release(within: .seconds(1))
        }
        #expect(first.done == ["other"] && first.overran == ["stuck"] && first.stillHeld == ["stuck"])
        for way in 2...3 {
            #expect(await reacquire().done == ["other"], "way \(way)")
            let again = await releaseAtOnce("way \(way)")
            #expect(again?.done == ["other"] && again?.overran == ["stuck"] && again?.stillHeld == ["stuck"], "way \(way)")
        }
        gate.continuation.finish()
        await until("the release has ended") { !stuck.isHeld }
        #expect(calls.all == ["drain", "release"])
        #expect(await release().overran.isEmpty)
    }

    @Test func `a release that hangs and then fails is tried again on the next way`() async throws {
        struct Failure: Error {}
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls
        let lock = ExclusiveResource(
            "lock",
            release: {
                calls.add("release")
                if calls.all.count > 1 { return }
                for await _ in gate.stream {}
                throw Failure()
            })
        try exclusive.add(lock)
        let exclusive = exclusive
        _ = await passing(.seconds(1), once: { !calls.all.isEmpty }) { exclusive.release(within: .seconds(1)) }
        _ = await reacquire()
        let next = await releaseAtOnce("the next way")
        #expect(next?.done == [] && next?.overran == ["lock"] && next?.stillHeld == ["lock"])
        _ = await reacquire()
        gate.continuation.finish()
        await until("the release has failed") { lock.state.withLock { $0.phase == .held } }
        #expect(await release().done == ["lock"])
        #expect(calls.all == ["release", "release"] && !lock.isHeld)
    }

    @Test func `a forced close that still hangs is named at once on later ways, and not begun again`() async throws {
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls, mayClose = Atomic(false)
        let gpu = ExclusiveResource(
            "gpu", release: { for await _ in gate.stream {} },
            forceClose: {
                calls.add("force")
                blockUntil { mayClose.load(ordering: .relaxed) }
            })
        try exclusive.add(gpu)
        let exclusive = exclusive, report = Log<ExclusiveReport>()
        async let run: Void = onThread { report.add(exclusive.release(within: .seconds(1))) }
        await until("the deadlines of the first way have passed") {
            clock.advance(by: .milliseconds(100))
            return !report.all.isEmpty
        }
        await run
        #expect(report.all[0].stillHeld == ["gpu"])
        // On a busy machine the close may begin only now.
        await until("the close has begun") { calls.all == ["force"] }
        for way in 2...3 {
            _ = await reacquire()
            let again = await releaseAtOnce("way \(way)")
            #expect(again?.overran == ["gpu"] && again?.stillHeld == ["gpu"], "way \(way)")
        }
        mayClose.store(true, ordering: .relaxed)
        await until("the close has ended") { !gpu.isHeld }
        #expect(calls.all == ["force"])
        gate.continuation.finish()
    }

    @Test func `C52 a resource whose forced close ends late is reacquired`() async throws {
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls, mayClose = Atomic(false)
        let resource = ExclusiveResource(
            "gpu", release: { for await _ in gate.stream {} }, forceClose: { blockUntil { mayClose.load(ordering: .relaxed) } },
            reacquire: { calls.add("acquire \($0)") })
        try exclusive.add(resource)
        let exclusive = exclusive, report = Log<ExclusiveReport>()
        async let run: Void = onThread { report.add(exclusive.release(within: .seconds(1))) }
        await until("both waits have passed") {
            clock.advance(by: .milliseconds(100))
            return !report.all.isEmpty
        }
        await run
        #expect(report.all[0].stillHeld == ["gpu"])
        #expect(await reacquire().done.isEmpty)
        mayClose.store(true, ordering: .relaxed)
        await until("the resource is back") { calls.all == ["acquire 2"] && resource.isHeld }
        gate.continuation.finish()
    }

    @Test func `C51 using or acquiring a resource in the background throws and is reported`() async throws {
        let resource = try noting("gpu")
        _ = await release()
        let refusal = ExclusiveResourceError(resource: "gpu", reason: .inBackground)
        #expect(throws: refusal) { try resource.withUse { _ in calls.add("used") } }
        await #expect(throws: refusal) { try await resource.acquire() }
        #expect(exclusive.violations == [refusal, refusal] && exclusive.violationCount == 2 && !calls.all.contains("used"))
        _ = await reacquire()
        #expect(try resource.withUse { $0 } == 2)
        for _ in 0..<100 {
            _ = await release()
            _ = try? resource.withUse { $0 }
        }
        #expect(exclusive.violations.count == 64 && exclusive.violationCount == 102)
    }

    @Test func `C53 a session with a peer is opened and closed in pairs, through all failures`() async throws {
        let balance = Log<Int>(), failing = Log<Bool>()
        struct Refused: Error {}
        let session = ExclusiveResource(
            "licence", isHeld: false, release: { balance.add(-1) },
            reacquire: { _ in
                if failing.all.last == true { throw Refused() }
                balance.add(1)
            })
        try exclusive.add(session)
        // Not held: the way to the background and back does not touch the session.
        _ = await release()
        #expect(await reacquire().done.isEmpty && balance.all.isEmpty)
        try await session.acquire()
        try await session.acquire()
        _ = await release()
        failing.add(true)
        #expect(await reacquire().failed.count == 1)
        _ = await release()
        failing.add(false)
        #expect(await reacquire().done == ["licence"])
        _ = await release()
        #expect(balance.all == [1, -1, 1, -1])
    }

    @Test func `T8 a resource acquired too late is released at once`() async throws {
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls
        let slow = ExclusiveResource(
            "slow", release: { calls.add("release") },
            reacquire: { _ in
                calls.add("asked")
                for await _ in gate.stream {}
                calls.add("got")
            })
        try exclusive.add(slow)
        _ = await release()
        let exclusive = exclusive
        let back = await passing(.seconds(1), once: { calls.all.contains("asked") }) { exclusive.reacquire(within: .seconds(1)) }
        #expect(back.overran == ["slow"])
        #expect(await release().done.isEmpty)
        gate.continuation.finish()
        await until { calls.all.count >= 4 && !slow.isHeld }
        #expect(calls.all == ["release", "asked", "got", "release"])
    }

    @Test func `T8 an acquisition that hangs through the background is given up when it ends, and only then repeated`() async throws {
        let gate = AsyncStream.makeStream(of: Void.self), calls = calls
        let slow = ExclusiveResource(
            "slow", after: ["user"], release: { calls.add("release") },
            reacquire: { epoch in
                calls.add("asked \(epoch)")
                for await _ in gate.stream {}
                calls.add("got \(epoch)")
            })
        try exclusive.add(slow)
        try exclusive.add(ExclusiveResource("user", release: {}, reacquire: { _ in calls.add("user") }))
        _ = await release()
        let exclusive = exclusive
        _ = await passing(.seconds(1), once: { calls.all.contains("asked 2") }) { exclusive.reacquire(within: .seconds(1)) }
        _ = await release()
        // In front again, and the first acquisition still hangs.
        let back = await passing(.seconds(1)) { exclusive.reacquire(within: .seconds(1)) }
        #expect(back.overran == ["slow"] && back.failed.keys.sorted() == ["user"] && back.done.isEmpty)
        gate.continuation.finish()
        await until("the second acquisition has ended") { slow.epoch == 3 && slow.isHeld }
        #expect(calls.all == ["release", "asked 2", "got 2", "release", "asked 3", "got 3"])
    }

    @Test func `T8 a late acquisition in the background takes nothing, and is repeated on the next way back`() async throws {
        let calls = calls
        let late = ExclusiveResource("late", release: { calls.add("release") }, reacquire: { _ in calls.add("got") })
        try exclusive.add(late)
        _ = await release()
        // As a thread does that the way back did not wait for.
        await #expect(throws: ExclusiveResourceError(resource: "late", reason: .inBackground)) { try await late.take() }
        #expect(!late.isHeld && exclusive.held.isEmpty && exclusive.violationCount == 0)
        #expect(await reacquire().done == ["late"] && calls.all == ["release", "got"])
    }

    @Test func `a failed dependency keeps dependents from being reacquired, and a failing drain does not stop the release`() async throws {
        struct Failure: Error {}
        let database = ExclusiveResource(
            "database", after: ["http"], drain: { _ in throw Failure() }, release: { [calls] in calls.add("release database") },
            forceClose: { [calls] in calls.add("force database") }, reacquire: { _ in throw Failure() })
        try exclusive.add(database)
        _ = try noting("http")
        let out = await release()
        #expect(out.done == ["http"] && out.failed.keys.sorted() == ["database"] && out.stillHeld.isEmpty)
        #expect(calls.all.suffix(1) == ["release database"])
        let back = await reacquire()
        #expect(back.done.isEmpty && back.failed.keys.sorted() == ["database", "http"] && !calls.all.contains { $0.hasPrefix("acquire") })
    }

    // MARK: Fencing

    @Test func `T29 after a freeze, earlier work fails the epoch check even before the gap is handled`() async throws {
        let lock = try noting("lock"), leader = try noting("leader", lease: .zero)
        // The manager's loop, or an alarm, reads the clock while the process runs.
        let alarm = exclusive.alarms.set(.deadline, after: .seconds(1000)) {}
        defer { alarm.cancel() }
        clock.advance(by: .seconds(1))
        let epoch = try leader.withUse { $0 }
        #expect(leader.isCurrent(epoch) && lock.isCurrent(1))
        let exclusive = exclusive
        exclusive.alarms.whenGapEnds { [leader, lock] gap in
            // The first code that runs after the freeze.
            #expect(!leader.isCurrent(epoch) && !lock.isCurrent(epoch) && leader.epoch == epoch)
            exclusive.gapEnded(gap)
            #expect(!leader.isCurrent(epoch) && !lock.isCurrent(1))
        }
        clock.freeze(for: .seconds(60))
        #expect(throws: ExclusiveResourceError(resource: "leader", reason: .stale(epoch: 1, current: 2))) { try leader.check(epoch) }
        // A lock outlives a freeze. Leadership need not.
        #expect(lock.isHeld && lock.epoch == 2 && !leader.isHeld)
        #expect(throws: ExclusiveResourceError(resource: "leader", reason: .notHeld)) { try leader.withUse { $0 } }
        #expect(try lock.withUse { $0 } == 2)
        #expect(await reacquire().done == ["leader"] && leader.isCurrent(3))
    }

    @Test func `T29 between a sleep and the handling of the gap no resource may be used`() throws {
        let lock = try noting("lock")
        clock.sleepHost(for: .seconds(10))
        #expect(!lock.isCurrent(1))
        #expect(throws: ExclusiveResourceError(resource: "lock", reason: .unverified)) { try lock.withUse { $0 } }
        #expect(throws: ExclusiveResourceError(resource: "lock", reason: .unverified)) { try lock.check(1) }
        exclusive.gapEnded(RunningGap(.hostSleep, .seconds(10)))
        #expect(try lock.withUse { $0 } == 2)
    }

    @Test(arguments: [true, false]) func `T29 a lease runs out by a time that neither freeze nor sleep stops`(isSleep: Bool) async throws {
        let lease = try noting("lease", lease: .seconds(15))
        clock.advance(by: .seconds(10))
        #expect(lease.isHeld)
        try await lease.renew {}
        clock.advance(by: .seconds(10))
        #expect(lease.isHeld && lease.isCurrent(1))
        if isSleep { clock.sleepHost(for: .seconds(4)) } else { clock.freeze(for: .seconds(4)) }
        exclusive.gapEnded(RunningGap(isSleep ? .hostSleep : .frozen, .seconds(4)))
        // Shorter than the rest of the lease: still held, but work that began before must check again.
        #expect(lease.isHeld && !lease.isCurrent(1) && lease.isCurrent(2))
        if isSleep { clock.sleepHost(for: .seconds(4)) } else { clock.freeze(for: .seconds(4)) }
        #expect(!lease.isHeld && !lease.isCurrent(2))
        exclusive.gapEnded(RunningGap(isSleep ? .hostSleep : .frozen, .seconds(4)))
        #expect(!lease.isHeld && manager.lifecycle.heldResources.isEmpty)
        #expect(await reacquire().done == ["lease"] && lease.isHeld && lease.isCurrent(4))
        clock.advance(by: .seconds(15))
        #expect(!lease.isHeld)
        #expect(throws: ExclusiveResourceError(resource: "lease", reason: .leaseExpired)) { try lease.withUse { $0 } }
        // The lease belongs to another holder now and is not released.
        #expect(await release().done.isEmpty && !calls.all.contains("release lease"))
    }

    /// Acquires a resource during whose acquisition the process is frozen. Returns the epochs of all acquisitions.
    private func acquireAcrossFreeze(lease: Duration? = nil) async throws -> (ExclusiveResource, epochs: [UInt64]) {
        let gate = AsyncStream.makeStream(of: Void.self), epochs = Log<UInt64>()
        let resource = ExclusiveResource(
            "lock", lease: lease, isHeld: false, release: {},
            reacquire: { epoch in
                epochs.add(epoch)
                for await _ in gate.stream {}
            })
        try exclusive.add(resource)
        async let taken: Void = resource.acquire()
        await until { !epochs.all.isEmpty }
        exclusive.gapEnded(RunningGap(.frozen, .seconds(9)))
        gate.continuation.finish()
        try await taken
        return (resource, epochs.all)
    }

    @Test func `T29 a freeze during an acquisition makes that epoch stale`() async throws {
        let (lock, epochs) = try await acquireAcrossFreeze()
        #expect(epochs == [2] && lock.isHeld && !lock.isCurrent(2) && lock.isCurrent(3))
    }

    @Test func `T29 a lease of unknown time that was granted before a freeze counts as lost, and is acquired again`() async throws {
        let (leader, epochs) = try await acquireAcrossFreeze(lease: .zero)
        #expect(epochs == [2, 4] && leader.isHeld && !leader.isCurrent(3) && leader.isCurrent(4))
    }

    @Test(arguments: [true, false]) func `T29 C50 the life cycle handles a gap without a call, and has lost resources acquired again`(isSleep: Bool)
        async throws
    {
        let clock = ManualClock(), source = ScriptedPressureSource()
        let lifecycle = ResourceManager(source: source, time: clock.timekeeper).lifecycle
        try await lifecycle.launch(into: .active)
        let taken = Log<UInt64>()
        let leader = ExclusiveResource("leader", lease: .zero, release: {}, reacquire: { taken.add($0) })
        try lifecycle.exclusive.add(leader)
        let connected = lifecycle.exclusive.connectionEpoch, epoch = try leader.withUse { $0 }
        if isSleep { clock.sleepHost(for: .seconds(60)) } else { clock.freeze(for: .seconds(60)) }
        #expect(!leader.isCurrent(epoch) && lifecycle.exclusive.isSuspect(since: connected))
        await until { leader.isHeld }
        #expect(taken.all == [3] && leader.isCurrent(3))
    }

    // MARK: Connections

    @Test func `C50 T29 pooled connections are suspect after every gap until validated`() async throws {
        var old = exclusive.connectionEpoch, second = old
        #expect(!exclusive.isSuspect(since: old))
        clock.sleepHost(for: .seconds(10))
        #expect(exclusive.isSuspect(since: old), "before the gap is noticed")
        exclusive.gapEnded(RunningGap(.hostSleep, .seconds(10)))
        #expect(exclusive.isSuspect(since: old) && !exclusive.isSuspect(since: exclusive.connectionEpoch))
        old = exclusive.connectionEpoch
        #expect(!exclusive.isSuspect(since: old) && exclusive.isSuspect(since: second))
        // Another gap during the check makes the result worthless.
        let began = exclusive.connectionEpoch
        exclusive.gapEnded(RunningGap(.frozen, .seconds(10)))
        second = began
        #expect(exclusive.isSuspect(since: second) && exclusive.isSuspect(since: old))
        old = exclusive.connectionEpoch
        _ = await release()
        _ = await reacquire()
        #expect(exclusive.isSuspect(since: old), "after the background")
        #expect(try await exclusive.reconnect("pool", spread: .zero) { 1 } == 1)
    }

    @Test func `C50 T29 connections are made anew over a stretch of time, a few at once`() async throws {
        let limiter = exclusive.reconnectLimiter(most: 3, spread: .seconds(5), seed: 42)
        let same = exclusive.reconnectLimiter(most: 3, spread: .seconds(5), seed: 42)
        #expect(limiter.reconnectDelay() == .zero, "no gap, no delay")
        exclusive.gapEnded(RunningGap(.frozen, .seconds(60)))
        let delays = (0..<100).map { _ in limiter.reconnectDelay() }
        #expect(delays == (0..<100).map { _ in same.reconnectDelay() })
        #expect(delays.allSatisfy { $0 >= .zero && $0 < .seconds(5) } && Set(delays).count > 90)
        #expect(delays.contains { $0 < .seconds(1) } && delays.contains { $0 > .seconds(4) })

        let running = Log<Int>(), done = Log<Int>(), clock = clock
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<40 {
                group.addTask {
                    try await limiter.run {
                        running.add(1)
                        await giveWay(10)
                        running.add(-1)
                        done.add(number)
                    }
                }
            }
            await until {
                clock.advance(by: .milliseconds(100))
                return done.all.count == 40
            }
            try await group.waitForAll()
        }
        let most = running.all.reduce(into: (now: 0, most: 0)) { $0 = ($0.now + $1, max($0.most, $0.now + $1)) }.most
        #expect(Set(done.all).count == 40 && most <= 3)
        clock.advance(by: .seconds(6))
        #expect(limiter.reconnectDelay() == .zero)
    }

    @Test func `C50 T29 the first connections to a peer after a gap are spread as well`() {
        exclusive.gapEnded(RunningGap(.frozen, .seconds(60)))
        clock.advance(by: .seconds(1))
        let limiter = exclusive.reconnectLimiter(most: 3, spread: .seconds(5), seed: 42)
        let delays = (0..<100).map { _ in limiter.reconnectDelay() }
        #expect(delays.contains { $0 > .seconds(4) } && delays.allSatisfy { $0 < .seconds(5) })
        clock.advance(by: .seconds(4))
        #expect(limiter.reconnectDelay() == .zero, "five seconds after the gap")
    }

    @Test func `C50 T29 a handler of the way back that connects anew waits for the delay, and not until the deadline`() async throws {
        let stage = Stage(), lifecycle = stage.lifecycle, exclusive = lifecycle.exclusive, connected = Counter()
        let limiter = exclusive.reconnectLimiter(most: 1, spread: .seconds(2), seed: 42)
        exclusive.reconnects.withLock { $0["database"] = limiter }
        lifecycle.onResume("pool") { _ in try await exclusive.reconnect("database") { connected.add(1) } }
        try await lifecycle.launch()
        stage.clock.freeze(for: .seconds(60))
        _ = try await stage.whileTimePasses { await until("the way back has ended") { lifecycle.reports.count == 2 } }
        let back = try #require(lifecycle.reports.last)
        #expect(connected.value == 1 && back.overran.isEmpty && back.took > .zero)
    }

    @Test func `C50 a reconnect that waits for its delay can be cancelled, and connects no more`() async throws {
        exclusive.gapEnded(RunningGap(.frozen, .seconds(60)))
        let limiter = exclusive.reconnectLimiter(most: 1, spread: .seconds(5), seed: 42), begun = Counter()
        let alarms = exclusive.alarms, before = alarms.total
        let waiting = Task { try await limiter.run { begun.add(1) } }
        await until("the reconnect waits") { alarms.total > before }
        waiting.cancel()
        // The clock stands still, so that only the cancellation ends the wait.
        await #expect(throws: CancellationError.self) { try await waiting.value }
        #expect(begun.value == 0)
    }

    @Test func `a waiting reconnect can be cancelled, and takes no other's place`() async throws {
        let limiter = exclusive.reconnectLimiter(most: 1, spread: .zero, seed: 1)
        let gate = AsyncStream.makeStream(of: Void.self), begun = Log<Int>()
        async let first: Void = limiter.run {
            begun.add(1)
            for await _ in gate.stream {}
        }
        await until { !begun.all.isEmpty }
        let second = Task { try await limiter.run { begun.add(2) } }
        second.cancel()
        await #expect(throws: CancellationError.self) { try await second.value }
        async let third: Void = limiter.run { begun.add(3) }
        gate.continuation.finish()
        _ = try await (first, third)
        #expect(begun.all == [1, 3])
    }
}

/// A socket that listens on the loopback.
final class LoopbackListener: Sendable {
    private let descriptor = Mutex<Int32>(-1)
    /// An address of this listener alone, so that no other process's socket gets the port while the listener is closed.
    private let host = UInt32.random(in: 0x7f01_0000...0x7ffe_ffff)
    private let port = Mutex<in_port_t>(0)

    struct Failure: Error { var code = errno }

    init() throws { try open() }

    func open() throws {
        let socket = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var on: Int32 = 1
        setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
        var address = self.address
        let bound = withUnsafePointer(to: &address) { $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(socket, $0, length) } }
        guard bound == 0, listen(socket, 16) == 0 else { throw Failure() }
        var room = length
        withUnsafeMutablePointer(to: &address) { $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { _ = getsockname(socket, $0, &room) } }
        port.withLock { $0 = address.sin_port }
        descriptor.withLock { $0 = socket }
    }

    func close() {
        descriptor.withLock { descriptor in
            // A process that another test is just starting may have a copy of the descriptor.
            if descriptor >= 0 { shutdown(descriptor, Int32(SHUT_RDWR)) }
            if descriptor >= 0 { Glibc.close(descriptor) }
            descriptor = -1
        }
    }

    /// Returns true if the kernel completes a handshake for the socket.
    func accepts() -> Bool {
        let socket = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { Glibc.close(socket) }
        var address = self.address
        return withUnsafePointer(to: &address) { $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(socket, $0, length) } } == 0
    }

    private var length: socklen_t { socklen_t(MemoryLayout<sockaddr_in>.size) }
    private var address: sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = host.bigEndian
        address.sin_port = port.withLock { $0 }
        return address
    }
}
