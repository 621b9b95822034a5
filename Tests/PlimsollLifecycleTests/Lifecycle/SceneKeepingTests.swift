import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The work of a scene outside the foreground: a save, the release of memory, erasure, and suspension.
@Suite(.serialized, .timeLimit(.minutes(5))) struct SceneKeepingTests {
    let stage = Stage()
    let store = ShelfStore()
    var lifecycle: Lifecycle { stage.lifecycle }

    /// Connects a scene in the foreground whose state is one byte.
    private func connect(_ id: String, _ state: Mutex8 = Mutex8(), configure: (Scene) -> Void = { _ in }) async -> Scene {
        let store = store
        let scene = lifecycle.connectScene(id, reason: .userRequest) { scene in
            scene.preserve(in: store, snapshot: { [state.value] }, restore: { state.value = $0.first ?? 0 })
            configure(scene)
        }
        await scene.connected()
        return scene
    }

    @Test func `C41 C97 a scene saves on leaving the front, on the way to the background and on suspension`() async throws {
        let state = Mutex8(1), store = store, onTheWay = Log<[UInt8]?>()
        let a = await connect("a", state) { scene in
            scene.observe(
                "flush",
                onBackground: { _ in
                    onTheWay.add(try store.read("scene-a"))
                    state.value = 2
                })
        }
        let b = await connect("b")
        try await a.enterBackground(cause: .idle)
        #expect(onTheWay.all == [[1]], "saved on leaving the front")
        #expect(try store.read("scene-a") == [2], "saved after the handlers of the background")
        state.value = 3
        try await a.suspend(cause: .idle)
        #expect(try store.read("scene-a") == [3], "saved once it is suspended")
        #expect(b.state == .active && lifecycle.state == .active)
    }

    @Test func `C41 a scene that works in the background is saved with the process`() async throws {
        let state = Mutex8(1)
        let a = await connect("a", state)
        let b = await connect("b")
        try await a.enterBackground(cause: .idle)
        state.value = 2
        #expect(try store.read("scene-a") == [1])
        try await b.enterBackground(cause: .idle)
        #expect(lifecycle.state == .background && lifecycle.arrival == true)
        #expect(try store.read("scene-a") == [2])
        state.value = 3
        #expect(await lifecycle.checkpoint(within: .seconds(5)).isEmpty)
        #expect(try store.read("scene-a") == [3])
    }

    @Test func `C43 a process with an unsaved scene does not count as saved, until a save succeeds`() async throws {
        let isBroken = Mutex(true)
        let a = lifecycle.connectScene("a", reason: .userRequest) { [store] scene in
            scene.preserve(
                in: store,
                snapshot: {
                    if isBroken.withLock({ $0 }) { throw StoreFailure() }
                    return [7]
                }, restore: { _ in })
        }
        await a.connected()
        let report = try await a.enterBackground(cause: .idle)
        #expect(report.failures.contains { $0.contains("scene-a") && !$0.contains("leaving the front") })
        #expect(lifecycle.state == .background && lifecycle.arrival == false)
        #expect(await lifecycle.checkpoint(within: .seconds(5)).map(\.name) == ["scene-a"])
        isBroken.withLock { $0 = false }
        #expect(await lifecycle.checkpoint(within: .seconds(5)).isEmpty)
        #expect(try store.read("scene-a") == [7])
    }

    @Test func `C41 a save that fails on leaving the front and succeeds on the way to the background counts as saved`() async throws {
        let calls = Counter()
        let a = lifecycle.connectScene("a", reason: .userRequest) { [store] scene in
            scene.preserve(
                in: store,
                snapshot: {
                    calls.add(1)
                    if calls.value == 1 { throw StoreFailure() }
                    return [7]
                }, restore: { _ in })
        }
        await a.connected()
        let report = try await a.enterBackground(cause: .idle)
        #expect(report.failures.count == 1 && report.failures[0].hasPrefix("on leaving the foreground: "))
        #expect(lifecycle.arrival == true && a.unit.engine.arrival == true)
        #expect(try store.read("scene-a") == [7])
    }

    @Test func `C26 C41 a hanging first save has a quarter of the time, and the handlers and the last save have the rest`() async throws {
        let heartbeat = stage.manager.parts.heartbeat, held = Blockade(), calls = Counter(), state = Mutex8(1), reached = Log<Duration>()
        let a = lifecycle.connectScene("a", reason: .userRequest) { [store] scene in
            scene.preserve(
                in: store,
                snapshot: {
                    calls.add(1)
                    let value = state.value
                    if calls.value == 1 { held.wait() }
                    return [value]
                }, restore: { _ in })
            scene.observe(
                "a",
                onBackground: { _ in
                    reached.add(heartbeat.running)
                    state.value = 2
                    held.open()
                })
        }
        await a.connected()
        let quarter = LifecyclePolicy.standard.backgroundDeadline / 4, start = heartbeat.running
        let way = Task { try await a.enterBackground(cause: .idle) }
        await until("the first save hangs") { held.count == 1 }
        // The clock moves nowhere else, so the handlers see the time at which the wait for the first save ended.
        stage.clock.advance(by: quarter)
        await until("the handlers are called") { !reached.all.isEmpty }
        held.open()
        let report = try await way.value
        #expect(reached.all == [start + quarter])
        #expect(report.failures.count == 1 && report.failures[0].hasPrefix("on leaving the foreground: "), "\(report.failures)")
        #expect(report.failures[0].contains("the save did not finish within \(quarter)"), "\(report.failures)")
        #expect(a.state == .background && lifecycle.arrival == true)
        #expect(try store.read("scene-a") == [2], "saved after the handlers of the background")
    }

    @Test func `C44 C87 C97 behind the front memory is released, hidden contents are erased, and then the state is saved`() async throws {
        let log = stage.log, store = store
        let spare = PurgeableCache<Int, [UInt8]>("for speed", cost: { _, value in value.count })
        let cart = PurgeableCache<Int, [UInt8]>("cart", cost: { _, value in value.count })
        for key in 0..<8 {
            spare.insert([UInt8](repeating: 1, count: 1 << 10), forKey: key)
            cart.insert([UInt8](repeating: 1, count: 1 << 10), forKey: key)
        }
        let a = lifecycle.connectScene("a", reason: .userRequest) { scene in
            scene.register(spare, purgesOnBackground: true)
            scene.register(cart)
            scene.observe("a", onBackground: { _ in log.add("background, \(spare.count)") })
            scene.onScrub("a") { log.add("scrub, \(spare.count)") }
            scene.preserve(
                in: store,
                snapshot: {
                    log.add("snapshot")
                    return []
                }, restore: { _ in })
        }
        let b = lifecycle.connectScene("b", reason: .userRequest) { scene in scene.onScrub("b") { log.add("scrub b") } }
        await a.connected()
        await b.connected()
        try await a.enterBackground(cause: .idle)
        // On leaving the foreground the scene is saved unchanged, because the scene may return at once.
        #expect(log.all == ["snapshot", "background, 8", "scrub, 0", "snapshot"])
        #expect(spare.count == 0 && cart.count == 8, "memory needed to continue stays")
        #expect(b.state == .active && lifecycle.state == .active, "a scene at a time")
        try await a.suspend(cause: .idle)
        #expect(log.all.dropFirst(4) == ["scrub, 0", "snapshot"], "contents that came back in the background are erased")
        await a.disconnect(cause: .operator)
        #expect(log.all.dropFirst(6) == ["scrub, 0", "snapshot"] && cart.count == 0)
    }

    @Test func `C94 C97 a cache whose registration is cancelled is no longer the scene's, and keeps the contents`() async throws {
        let spare = PurgeableCache<Int, [UInt8]>("for speed", cost: { _, value in value.count })
        let cart = PurgeableCache<Int, [UInt8]>("cart", cost: { _, value in value.count })
        for cache in [spare, cart] { for key in 0..<8 { cache.insert([UInt8](repeating: 1, count: 1 << 10), forKey: key) } }
        let a = await connect("a"), purgeables = stage.manager.parts.purgeables
        let registrations = [a.register(spare, purgesOnBackground: true), a.register(cart)]
        #expect(a.byteCount == 16 << 10 && purgeables.snapshot.contains { $0.name == "cart" })
        for _ in 0..<2 { for registration in registrations { registration.cancel() } }
        #expect(a.byteCount == 0 && !purgeables.snapshot.contains { $0.name == "cart" })
        try await a.enterBackground(cause: .idle)
        await a.disconnect(cause: .operator)
        #expect(spare.count == 8 && cart.count == 8)
    }

    @Test func `C97 the state of a scene is saved once more on disconnection, and never afterwards`() async throws {
        let state = Mutex8(), a = await connect("a", state)
        state.value = 1
        await a.disconnect(cause: .operator)
        #expect(try store.read("scene-a") == [1])
        state.value = 2
        #expect(await lifecycle.checkpoint(within: .seconds(5)).isEmpty)
        #expect(try store.read("scene-a") == [1])
    }

    @Test func `C97 a scene that is disconnected on the way to the background is known and saved until the end`() async throws {
        let state = Mutex8(1), leaving = Blockade(), erasing = Blockade()
        let a = await connect("a", state) { scene in
            scene.observe("a", onInactive: { _ in leaving.wait() })
            scene.onScrub("a") {
                state.value = 2
                erasing.wait()
            }
        }
        let first = Task { try await a.enterBackground(cause: .idle) }
        await until("the scene leaves the front") { leaving.count == 1 }
        let second = Task { await a.disconnect(cause: .operator) }
        await until("the second request waits") { a.unit.engine.waiting == 2 }
        leaving.open()
        // Superseded, while the scene is on the way to its end.
        _ = try await first.value
        #expect(lifecycle.scenes.map(\.id) == ["a"])
        erasing.open()
        _ = await second.value
        #expect(try store.read("scene-a") == [2] && lifecycle.scenes.isEmpty)
    }

    @Test func `a state registered after a scene has come up is restored at once`() async throws {
        try store.write("scene-a", [9])
        let a = lifecycle.connectScene("a", reason: .systemRequest), state = Mutex8()
        await a.connected()
        a.preserve(in: store, snapshot: { [state.value] }, restore: { state.value = $0.first ?? 0 })
        #expect(state.value == 9)
    }

    @Test func `a scene that cannot be restored reports that, keeps the unreadable state aside, and starts clean`() async throws {
        try store.write("scene-a", [9])
        let a = lifecycle.connectScene("a", reason: .userRequest) { [store] scene in
            scene.preserve(in: store, snapshot: { [1] }, restore: { _ in throw StoreFailure() })
        }
        await a.connected()
        #expect(a.state == .active && lifecycle.reports.contains { $0.failures.contains { $0.hasPrefix("state of scene a was not restored") } })
        try await a.enterBackground(cause: .idle)
        #expect(try store.read("scene-a") == [1])
        #expect(try store.read("scene-a.aside") == [9])
    }

    // MARK: Resting

    private func rests(_ scene: Scene) -> Bool { scene.contents.withLock { $0.rests } }

    @Test func `C4 C97 a scene hidden for ten seconds is suspended without a call, and runs no work until the return`() async throws {
        let a = await connect("a"), b = await connect("b"), ran = Log<String>()
        try await a.enterBackground(cause: .idle)
        // In the background the executor runs work.
        await Task(executorPreference: a.executor) { ran.add("background") }.value
        stage.clock.advance(by: .seconds(9))
        #expect(a.state == .background)
        stage.clock.advance(by: .seconds(1))
        await until("the scene is suspended") { a.state == .suspended }
        await until("the way into suspension has ended") { stage.manager.parts.threads.busy == 0 }
        #expect(b.state == .active && lifecycle.state == .active)
        Task(executorPreference: a.executor) { ran.add("suspended") }
        await until("the work is kept") { a.executor.waiting == 1 }
        await Task(executorPreference: b.executor) { ran.add("other scene") }.value
        #expect(ran.all == ["background", "other scene"] && a.executor.waiting == 1)
        #expect(!a.beginBackgroundTask("late", onExpiration: { _, _ in }).isActive, "no background task begins in a suspended scene")
        try await a.enterForeground(cause: .operator)
        await until("the work ran") { ran.all.last == "suspended" }
        // In the foreground no time toward suspension passes.
        stage.clock.advance(by: .seconds(60))
        #expect(a.state == .active)
    }

    @Test func `T33 a hidden scene is suspended after the end of work, and ten seconds after the last use`() async throws {
        let busy = await connect("busy"), used = await connect("used")
        for scene in [busy, used] { try await scene.enterBackground(cause: .idle) }
        let task = busy.beginBackgroundTask("upload") { task, _ in task.end() }
        stage.clock.advance(by: .seconds(6))
        used.touch()
        stage.clock.advance(by: .seconds(6))
        await until("the manager is at rest") { stage.manager.parts.threads.busy == 0 }
        #expect(busy.state == .background && used.state == .background)
        task.end()
        await until("the work has ended") { busy.state == .suspended }
        stage.clock.advance(by: .seconds(4))
        await until("it was not used for ten seconds") { used.state == .suspended }
    }

    @Test func `a scene that comes up in the background, or is woken there, is suspended in time as well`() async throws {
        let threads = stage.manager.parts.threads
        let a = lifecycle.connectScene("a", reason: .systemRequest)
        await a.connected()
        for round in 1...3 {
            #expect(a.state == .background, "round \(round)")
            stage.clock.advance(by: .milliseconds(9900))
            await until("the manager is at rest") { threads.busy == 0 }
            #expect(a.state == .background, "round \(round)")
            stage.clock.advance(by: .milliseconds(100))
            guard await until("round \(round): the scene is suspended", { a.state == .suspended }) else { return }
            await until("the way into suspension has ended") { threads.busy == 0 }
            lifecycle.connectScene("a", reason: .systemRequest)
            await until("round \(round): the scene is woken") { a.state == .background }
            await until("the wake-up has ended") { threads.busy == 0 }
        }
    }

    @Test func `a scene that is used, or begins a task, after the decision to suspend stays in the background`() async throws {
        let a = await connect("a"), b = await connect("b")
        try await a.enterBackground(cause: .idle)
        await a.wake()
        // As the thread does that was to carry out an earlier decision.
        await a.rest()
        #expect(a.state == .background && !rests(a))
        let task = a.beginBackgroundTask("upload") { task, _ in task.end() }
        stage.clock.advance(by: .seconds(10))
        await a.rest()
        #expect(a.state == .background && task.isActive && !rests(a))
        task.end()
        await until("the scene is suspended after the end of the work") { a.state == .suspended }
        #expect(b.state == .active)
    }

    @Test func `a system's request revokes a decision to suspend that is not carried out yet, and a later one follows`() async throws {
        let a = await connect("a"), b = await connect("b")
        try await a.enterBackground(cause: .idle)
        a.contents.withLock { $0.rests = true }
        await a.wake()
        #expect(!rests(a))
        // The thread that had decided goes on.
        _ = try await a.follow(.idle, within: .seconds(5))
        #expect(a.state == .background && b.state == .active)
        stage.clock.advance(by: .seconds(10))
        await until("the scene is suspended in time") { a.state == .suspended }
    }

    @Test func `a task that begins between the decision and the suspension brings the scene back`() async throws {
        lifecycle.policy.sceneSuspendsAfter = .zero
        let release = Blockade(), b = await connect("b")
        let a = await connect("a") { scene in scene.observe("a", onBackground: { _ in release.wait() }) }
        let way = Task { try await a.enterBackground(cause: .idle) }
        await until("the scene is on the way to the background") { release.count == 1 }
        // The decision comes while the engine is busy, and the task before the engine's next step.
        let rest = Task { await a.rest() }
        await until("the suspension is requested") { a.unit.engine.target == .suspended }
        let task = a.beginBackgroundTask("upload") { task, _ in task.end() }
        #expect(task.isActive)
        release.open()
        await rest.value
        #expect(a.state == .background && task.isActive)
        task.end()
        await until("the scene is suspended after the end of the work") { a.state == .suspended }
        _ = try await way.value
        #expect(b.state == .active)
    }

    @Test func `C94 former foreground scenes return with the process, and former background scenes stay in the background`() async throws {
        let a = await connect("a"), b = await connect("b")
        try await b.enterBackground(cause: .idle)
        try await lifecycle.enterBackground(cause: .operator)
        stage.clock.advance(by: .seconds(10))
        await until("both rest") { a.state == .suspended && b.state == .suspended }
        try await lifecycle.enterForeground(cause: .operator)
        #expect(a.state == .active && b.state == .suspended && lifecycle.state == .active)
        try await lifecycle.enterBackground(cause: .operator)
        #expect(a.state == .background, "the time to suspension begins anew")
    }

    @Test func `without a limit a hidden scene stays in the background`() async throws {
        let stage = Stage(LifecyclePolicy(sceneSuspendsAfter: nil))
        let a = stage.lifecycle.connectScene("a", reason: .systemRequest)
        await a.connected()
        stage.clock.advance(by: .seconds(3600))
        #expect(a.state == .background && stage.manager.parts.threads.busy == 0)
    }
}

/// A byte shared by several threads.
final class Mutex8: Sendable {
    private let byte: Mutex<UInt8>
    init(_ value: UInt8 = 0) { byte = Mutex(value) }
    var value: UInt8 {
        get { byte.withLock { $0 } }
        set { byte.withLock { $0 = newValue } }
    }
}
