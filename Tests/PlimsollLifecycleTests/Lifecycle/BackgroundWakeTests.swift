import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Processes that are frozen in the background and woken now and then.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundWakeTests {
    let stage = Stage()
    var lifecycle: Lifecycle { stage.lifecycle }

    /// Freezes the process for `interval`, and returns when the way back is done.
    private func wake(after interval: Duration = .seconds(600)) async {
        let wakes = Log<Bool>()
        let registration = lifecycle.onResume("wake") { _ in wakes.add(true) }
        stage.clock.freeze(for: interval)
        await until("the wake is delivered") { !wakes.all.isEmpty }
        await until("the way back is done") { lifecycle.arrival != nil }
        registration.cancel()
    }

    @Test func `C33 T30 each wake has an allowance: as long as the freeze, and at most a whole allowance`() async throws {
        let manager = stage.manager
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .supervisor)
        for number in 1...10 {
            await wake()
            let task = manager.beginBackgroundTask("wake \(number)") { task, _ in task.end() }
            #expect(task.isActive && task.refusal == nil && task.timeRemaining ?? .zero > .seconds(29), "wake \(number)")
            // The supervisor's budget for a wake.
            stage.clock.advance(by: .seconds(10))
            #expect(task.isActive, "wake \(number)")
            task.end()
        }
        // Some seconds without a processor are no wake: the allowance regains no more than was lost.
        stage.clock.advance(by: .seconds(10))
        let before = try #require(manager.backgroundTimeRemaining)
        await wake(after: .seconds(3))
        let after = try #require(manager.backgroundTimeRemaining)
        #expect(after > before && after <= before + .seconds(3) && after < .seconds(15), "\(before) \(after)")
    }

    @Test func `C33 C28 a spent allowance is whole again after a long freeze, and runs out again`() async throws {
        let manager = stage.manager, reasons = Log<ExpirationReason>()
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .supervisor)
        for number in 1...3 {
            stage.clock.advance(by: .seconds(40))
            #expect(manager.beginBackgroundTask("late") { _, _ in }.refusal != nil)
            await wake()
            let task = manager.beginBackgroundTask("wake") { task, reason in
                reasons.add(reason)
                task.end()
            }
            #expect(task.isActive)
            stage.clock.advance(by: .seconds(31))
            await until("it is asked to stop") { reasons.all.count == number }
        }
        #expect(reasons.all == [.allowance, .allowance, .allowance])
        try await lifecycle.enterForeground(cause: .operator)
        #expect(manager.backgroundTimeRemaining == nil)
    }

    @Test func `C33 C94 tasks of a scene have an allowance for each wake as well`() async throws {
        // The clock moves by minutes here, and must suspend no scene.
        lifecycle.policy.sceneSuspendsAfter = nil
        try await lifecycle.launch()
        let scene = lifecycle.connectScene("tenant", reason: .systemRequest)
        await scene.connected()
        try await lifecycle.enterBackground(cause: .supervisor)
        stage.clock.advance(by: .seconds(31))
        #expect(!scene.tasks.mayBegin)
        await wake()
        #expect(scene.tasks.mayBegin)
    }

    @Test func `C46 secrets of a wake are erased, and changes saved, before the process has arrived again`() async throws {
        let key = lifecycle.keep(try SecretTests.secret()), kept = lifecycle.keep(try SecretTests.secret(keepsInBackground: true))
        let log = stage.log, value = Counter(), lifecycle = lifecycle
        lifecycle.onScrub("counter") { log.add("erased \(lifecycle.arrival.map { "\($0)" } ?? "on the way")") }
        lifecycle.preserve(
            "value", in: MemoryStateStore(),
            snapshot: {
                log.add("saved \(value.value)")
                return [UInt8(value.value)]
            }, restore: { _ in })
        // In each wake the process reads the key again and continues to count.
        lifecycle.onResume("poll") { _ in
            try key.refill { SecretTests.fill(&$0, 1) }
            value.add(1)
        }
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .supervisor)
        #expect(log.all == ["saved 0", "erased on the way"] && key.isWiped && !kept.isWiped)
        for wake in 1...3 {
            await self.wake()
            #expect(log.all.suffix(2) == ["saved \(wake)", "erased on the way"] && log.all.count == 2 * wake + 2)
            #expect(lifecycle.lastScrub?.reason == .wake && lifecycle.arrival == true)
            #expect(key.isWiped && SecretTests.isZero(key) && !kept.isWiped)
        }
    }

    @Test func `C46 late changes of a wake are saved and erased before the next freeze`() async throws {
        let key = lifecycle.keep(try SecretTests.secret()), saved = Log<Int>(), arrivals = Log<Bool?>(), value = Counter()
        let store = MemoryStateStore(), lifecycle = lifecycle
        lifecycle.preserve(
            "value", in: store,
            snapshot: {
                saved.add(value.value)
                arrivals.add(lifecycle.arrival)
                return [UInt8(value.value)]
            }, restore: { _ in })
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .supervisor)
        await wake()
        let writes = store.writes
        // Late work outside background tasks.
        try key.refill { SecretTests.fill(&$0, 1) }
        value.add(1)
        try await lifecycle.enterBackground(cause: .supervisor, within: .seconds(5))
        #expect(key.isWiped && SecretTests.isZero(key) && saved.all.last == 1 && store.writes == writes + 1)
        #expect(lifecycle.arrival == true && lifecycle.lastScrub?.reason == .wake)
        // During the new save the process has not arrived. A freeze now would lose the change.
        #expect(arrivals.all == [nil, nil, nil])
        // A change by a task is saved, and the secret erased, once the task has ended.
        let task = stage.manager.beginBackgroundTask("poll") { task, _ in task.end() }
        try key.refill { SecretTests.fill(&$0, 2) }
        value.add(1)
        #expect(await lifecycle.checkpoint(within: .seconds(5)).isEmpty)
        #expect(!key.isWiped && saved.all.last == 2, "a task that runs keeps what it uses")
        task.end()
        #expect(await lifecycle.checkpoint(within: .seconds(5)).isEmpty)
        #expect(key.isWiped)
    }

    /// A store in memory that holds a lock from a write until `relinquish`.
    private final class LockedStore: StateStore {
        private let shelf = ShelfStore()
        private let locked = Mutex(false)

        var isLocked: Bool { locked.withLock { $0 } }
        func write(_ name: String, _ bytes: [UInt8]) throws {
            locked.withLock { $0 = true }
            try shelf.write(name, bytes)
        }
        func read(_ name: String) throws -> [UInt8]? { try shelf.read(name) }
        func remove(_ name: String) throws { try shelf.remove(name) }
        func relinquish() { locked.withLock { $0 = false } }
    }

    @Test func `a further save in the background leaves no store locked`() async throws {
        let store = LockedStore(), value = Counter(), lifecycle = lifecycle
        lifecycle.preserve("value", in: store, snapshot: { [UInt8(value.value)] }, restore: { _ in })
        try await lifecycle.launch()
        #expect(store.isLocked)
        try await lifecycle.enterBackground(cause: .supervisor)
        #expect(!store.isLocked)
        value.add(1)
        #expect(await lifecycle.checkpoint(within: .seconds(5)).isEmpty)
        #expect(try store.read("value")?.last == 1)
        #expect(!store.isLocked)
    }

    @Test func `C48 the background leaves no store locked: of the count of launches, of a state, or of a scene`() async throws {
        let launches = LockedStore(), cart = LockedStore(), tenant = LockedStore(), value = Counter(), lifecycle = lifecycle
        lifecycle.countLaunches(in: launches)
        lifecycle.preserve("cart", in: cart, snapshot: { [UInt8(value.value)] }, restore: { _ in })
        try await lifecycle.launch()
        let scene = lifecycle.connectScene("tenant", reason: .userRequest) { scene in
            scene.preserve(in: tenant, snapshot: { [UInt8(value.value)] }, restore: { _ in })
        }
        await scene.connected()
        #expect(launches.isLocked)
        value.add(1)
        try await lifecycle.enterBackground(cause: .supervisor)
        #expect(lifecycle.arrival == true)
        #expect(try cart.read("cart")?.last == 1)
        #expect(try tenant.read("scene-tenant") == [1])
        #expect(!launches.isLocked && !cart.isLocked && !tenant.isLocked)
    }

    @Test func `C43 C46 a wake with an unsaved state has not arrived`() async throws {
        struct Full: Error {}
        let store = MemoryStateStore(), value = Counter()
        lifecycle.preserve("value", in: store, snapshot: { [UInt8(value.value)] }, restore: { _ in })
        lifecycle.onResume("poll") { _ in value.add(1) }
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .supervisor)
        #expect(lifecycle.arrival == true)
        store.fail(with: Full())
        await wake()
        #expect(lifecycle.arrival == false)
        #expect(lifecycle.reports.last?.failures.contains { $0.contains("value") } == true, "\(lifecycle.reports.last?.description ?? "")")
    }

    @Test func `C46 after a freeze during a further save the state does not count as saved`() async throws {
        let alarms = stage.manager.parts.alarms, threads = stage.manager.parts.threads
        let engine = LifecycleEngine(alarms, threads, stages: { _ in [] }, afterGap: { _ in true }, onStep: { _ in })
        _ = try await engine.request(.launch, within: .seconds(5)) { .background }
        #expect(engine.arrival == true)
        await engine.arriveAgain {
            engine.gapEnded(RunningGap(.frozen, .seconds(60)))
            await until("the way back is done") { engine.arrival != nil }
            return true
        }
        #expect(engine.arrival == false)
    }

    @Test func `C4 C46 in the foreground a freeze erases nothing and saves nothing`() async throws {
        let key = lifecycle.keep(try SecretTests.secret()), saved = Counter(), gaps = Counter()
        lifecycle.preserve(
            "value", in: MemoryStateStore(),
            snapshot: {
                saved.add(1)
                return []
            }, restore: { _ in })
        try await lifecycle.launch()
        lifecycle.onResume("gap") { _ in gaps.add(1) }
        stage.clock.freeze(for: .seconds(600))
        await until("the way back is done") { lifecycle.reports.last?.target == .active && gaps.value == 1 && lifecycle.pausables.extent() == .open }
        #expect(!key.isWiped && saved.value == 0)
    }
}
