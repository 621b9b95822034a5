import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct SceneTests {
    let stage = Stage()
    let store = ShelfStore()
    var lifecycle: Lifecycle { stage.lifecycle }

    /// Connects a scene that logs its steps, and waits until the scene is up.
    private func connect(_ id: String, _ reason: LifecycleCause = .userRequest, configure: (Scene) -> Void = { _ in }) async -> Scene {
        let log = stage.log
        let scene = lifecycle.connectScene(id, reason: reason) { scene in
            scene.observe(
                id, onInactive: { _ in log.add("\(id) inactive") }, onActive: { _ in log.add("\(id) active") },
                onBackground: { _ in log.add("\(id) background") }, onForeground: { _ in log.add("\(id) foreground") })
            scene.onDisconnect(id) { _ in log.add("\(id) gone") }
            configure(scene)
        }
        await scene.connected()
        return scene
    }

    @Test func `C93 C98 a process without scenes acts as one scene: the same steps, saves and suspensions`() async throws {
        let store = store, work = Mutex<UInt8>(1)
        stage.observe("process")
        lifecycle.preserve("state", in: store, snapshot: { work.withLock { [$0] } }, restore: { _ in })
        try await lifecycle.launch()
        #expect(lifecycle.scenes.isEmpty && lifecycle.state == .active && stage.log.all == ["process active"])
        // Leaving the front saves, whether or not the background follows.
        try await lifecycle.interrupt()
        #expect(lifecycle.state == .inactive)
        #expect(try store.read("state")?.last == 1)
        work.withLock { $0 = 2 }
        try await lifecycle.endInterruption()
        try await lifecycle.enterBackground(cause: .idle)
        #expect(try store.read("state")?.last == 2)
        #expect(lifecycle.state == .background && stage.log.all.suffix(2) == ["process inactive", "process background"])
        try await lifecycle.enterForeground(cause: .operator)
        #expect(lifecycle.scenes.isEmpty && lifecycle.state == .active && stage.log.all.suffix(2) == ["process foreground", "process active"])
    }

    @Test func `C94 each scene has a separate state, and the process the greatest one`() async throws {
        stage.observe("process")
        let a = await connect("a"), b = await connect("b")
        #expect(a.state == .active && b.state == .active && lifecycle.state == .active)
        try await a.enterBackground(cause: .idle)
        #expect(a.state == .background && b.state == .active && lifecycle.state == .active)
        try await b.suspend(cause: .idle)
        #expect(b.state == .suspended && lifecycle.state == .background)
        try await a.enterForeground(cause: .operator)
        #expect(a.state == .active && lifecycle.state == .active && b.state == .suspended)
        // The process steps before the scene on the way up, and after the scene on the way down.
        let log = stage.log.all
        #expect(log.lastIndex(of: "process foreground")! < log.lastIndex(of: "a foreground")!)
        #expect(log.firstIndex(of: "b background")! < log.firstIndex(of: "process background")!)
    }

    @Test func `C94 the process takes all scenes to the background, and brings back only former foreground scenes`() async throws {
        let a = await connect("a"), b = await connect("b")
        try await b.enterBackground(cause: .idle)
        try await lifecycle.enterBackground(cause: .operator)
        #expect(a.state == .background && b.state == .background && lifecycle.state == .background)
        // A scene cannot rise above a hold on the process, but follows the process later.
        try await b.enterForeground(cause: .operator)
        #expect(b.state == .background)
        try await b.enterBackground(cause: .operator)
        try await lifecycle.enterForeground(cause: .operator)
        #expect(a.state == .active && b.state == .background && lifecycle.state == .active)
    }

    @Test func `a scene comes to the front after the process, also if another scene has asked for the process`() async throws {
        let a = await connect("a"), b = await connect("b"), release = Blockade()
        for scene in [a, b] { try await scene.enterBackground(cause: .idle) }
        lifecycle.observe("process", onForeground: { _ in release.wait() })
        let first = Task { try await a.enterForeground(cause: .operator) }
        await until("the process is on the way to the front") { release.count == 1 }
        let second = Task { try await b.enterForeground(cause: .operator) }
        // A scene that does not wait for the process would be in front.
        await until("the second request waits") { lifecycle.unit.engine.waiting == 2 || b.state == .active }
        #expect(b.state == .background && lifecycle.state == .background)
        release.open()
        _ = try await (first.value, second.value)
        #expect(a.state == .active && b.state == .active && lifecycle.state == .active)
    }

    @Test(arguments: [true, false])
    func `C94 a scene waits for the process, also if another request takes over the way up and goes higher`(isScene: Bool) async throws {
        let a = await connect("a"), lifecycle = lifecycle, first = Blockade(), second = Blockade()
        if isScene {
            try await a.enterBackground(cause: .idle)
        } else {
            try await lifecycle.enterBackground(cause: .operator)
        }
        try await lifecycle.interrupt()
        lifecycle.observe("process", onActive: { _ in second.wait() }, onForeground: { _ in first.wait() })
        let request = Task {
            if isScene {
                _ = try await a.enterForeground(cause: .operator)
            } else {
                _ = try await lifecycle.enterForeground(cause: .operator)
            }
        }
        await until("the process is on the way up") { first.count == 1 }
        let end = Task { try await lifecycle.endInterruption() }
        await until("the process is to be active") { lifecycle.unit.engine.target == .active }
        first.open()
        await until("the process goes on to the front") { second.count == 1 }
        // The first request is superseded by now. A scene that does not wait once more would be in front.
        await until("both requests wait") { lifecycle.unit.engine.waiting == 2 || a.state == .active }
        #expect(a.state == .background && lifecycle.state == .inactive)
        second.open()
        _ = try await (request.value, end.value)
        #expect(a.state == .active && lifecycle.state == .active)
    }

    @Test(arguments: [true, false])
    func `C94 the process stays in front of the background until its last scene is there`(isWhole: Bool) async throws {
        let slow = await connect("slow"), quick = await connect("quick"), lifecycle = lifecycle, release = Blockade()
        slow.observe("slow", onBackground: { _ in release.wait() })
        let way = Task {
            if isWhole {
                _ = try await lifecycle.enterBackground(cause: .operator)
            } else {
                _ = try await slow.enterBackground(cause: .idle)
            }
        }
        await until("the slow scene is on the way") { release.count == 1 }
        try await quick.suspend(cause: .idle)
        #expect(quick.state == .suspended && lifecycle.state > .background)
        release.open()
        try await way.value
        #expect(slow.state == .background && lifecycle.state == .background)
    }

    @Test func `C94 the process waits for a scene whose way to the background another request takes over`() async throws {
        let a = await connect("a"), lifecycle = lifecycle, leaving = Blockade(), hiding = Blockade()
        a.observe("slow", onInactive: { _ in leaving.wait() }, onBackground: { _ in hiding.wait() })
        let whole = Task { try await lifecycle.enterBackground(cause: .operator) }
        await until("the scene leaves the front") { leaving.count == 1 }
        let other = Task { try await a.suspend(cause: .idle) }
        await until("the second request waits") { a.unit.engine.waiting == 2 }
        leaving.open()
        await until("the scene goes on") { hiding.count == 1 }
        // Superseded by now. A process that does not wait once more would leave the front.
        await until("the first request waits again") { a.unit.engine.waiting == 2 || lifecycle.state < .active }
        #expect(lifecycle.state == .active)
        hiding.open()
        _ = try await (whole.value, other.value)
        #expect(a.state == .suspended && lifecycle.state == .background)
    }

    @Test func `of two requests for a scene at once the same one decides for the scene and for the process`() async throws {
        let a = await connect("a"), lifecycle = lifecycle, requesting = Log<Int32>()
        try await a.enterBackground(cause: .idle)
        // Stops a request between its two parts. Another request that came in between would be half undone.
        let seen: LifecycleState? = await onThread {
            lifecycle.desired.withLock { _ in
                lifecycle.threads.run {
                    requesting.add(threadNumber)
                    _ = try? await a.enterForeground(cause: .operator)
                }
                var wanted: LifecycleState?
                blockUntil("the request stops") {
                    guard let thread = requesting.all.first, isBlocked(thread) else { return false }
                    wanted = a.contents.withLockIfAvailable { $0.wanted }
                    return wanted != .background
                }
                return wanted
            }
        }
        #expect(seen == nil, "the scene has the new request, and the process does not")
        await until("the scene is in front") { a.state == .active }
        #expect(lifecycle.state == .active)
    }

    @Test func `a handler of the process that connects a scene and waits for that scene does not hold up the step`() async throws {
        lifecycle.policy.sceneSuspendsAfter = nil
        let a = await connect("a"), lifecycle = lifecycle, states = Log<LifecycleState>()
        lifecycle.observe(
            "process",
            onBackground: { _ in
                let b = lifecycle.connectScene("b", reason: .userRequest) { scene in
                    scene.observe("b", onActive: { _ in states.add(lifecycle.state) })
                }
                await b.connected()
            })
        _ = try await stage.whileTimePasses { try await a.enterBackground(cause: .idle) }
        await until("the new scene is in front") { !states.all.isEmpty }
        #expect(states.all == [.active], "the process goes first")
        #expect(lifecycle.reports.allSatisfy { $0.overran.isEmpty }, "\(lifecycle.reports)")
    }

    @Test func `a handler of the process that asks for a scene which another task connects does not hold up the step`() async throws {
        lifecycle.policy.sceneSuspendsAfter = nil
        let a = await connect("a"), lifecycle = lifecycle, reports = Log<LifecycleReport>()
        lifecycle.observe(
            "process",
            onBackground: { _ in
                // As another task does, which then waits for the process.
                await AsyncCallGate.outside { _ = lifecycle.connectScene("b", reason: .userRequest) }
                guard let b = lifecycle.scenes.last else { return }
                reports.add(try await b.enterForeground(cause: .operator))
            })
        _ = try await stage.whileTimePasses { try await a.enterBackground(cause: .idle) }
        await until("the new scene is in front") { lifecycle.scenes.last?.state == .active }
        #expect(reports.all.map(\.isSuperseded) == [true])
        #expect(lifecycle.reports.allSatisfy { $0.overran.isEmpty }, "\(lifecycle.reports)")
    }

    @Test func `a handler of a scene that asks for a state of that scene does not hold up the step`() async throws {
        lifecycle.policy.sceneSuspendsAfter = nil
        let a = await connect("a"), reports = Log<LifecycleReport>()
        a.observe(
            "bouncer",
            onBackground: { [weak a] _ in
                guard let a else { return }
                reports.add(try await a.suspend(cause: .idle))
            })
        let report = try await stage.whileTimePasses { try await a.enterBackground(cause: .idle) }
        await until("the scene is suspended") { a.state == .suspended }
        #expect(reports.all.map(\.isSuperseded) == [true] && report.overran.isEmpty, "\(report)")
    }

    @Test func `a scene whose way up was decided before the process went down waits for the process`() async throws {
        let a = await connect("a"), lifecycle = lifecycle, release = Blockade()
        try await a.enterBackground(cause: .idle)
        lifecycle.observe("process", onForeground: { _ in release.wait() })
        let whole = Task { try await a.enterForeground(cause: .operator) }
        await until("the process is on the way to the front") { release.count == 1 }
        // The second half of a request. Its first half found the process in front, before the process went down.
        let late = Task { try await a.follow(.operator, within: .seconds(5)) }
        // A scene that does not wait for the process would be in front.
        await until("the scene waits") { lifecycle.unit.engine.waiting == 2 || a.state == .active }
        #expect(a.state == .background && lifecycle.state == .background)
        release.open()
        _ = try await (whole.value, late.value)
        #expect(a.state == .active && lifecycle.state == .active)
    }

    @Test func `a request for the process that another one overtakes while scenes go down is superseded`() async throws {
        let a = await connect("a"), lifecycle = lifecycle, release = Blockade()
        a.observe("slow", onBackground: { _ in release.wait() })
        let first = Task { try await lifecycle.enterBackground(cause: .operator) }
        await until("the scene is on the way") { release.count == 1 }
        let second = Task { try await lifecycle.enterForeground(cause: .operator) }
        await until("the scene is called back") { a.unit.engine.target == .active }
        release.open()
        let (down, up) = try await (first.value, second.value)
        #expect(down.isSuperseded && !up.isSuperseded && a.state == .active && lifecycle.state == .active)
    }

    @Test func `a hold before the launch leaves the first step to the launch`() async throws {
        stage.observe("process")
        let hold = lifecycle.hold(.inactive)
        await until("the hold is followed") { stage.manager.parts.threads.busy == 0 }
        #expect(lifecycle.state == .notRunning && stage.log.all.isEmpty)
        try await lifecycle.launch()
        #expect(lifecycle.state == .active && stage.log.all == ["process active"])
        hold.cancel()
    }

    @Test func `a scene that is disconnected before the first step leaves no cache behind, and begins no task`() async throws {
        let lifecycle = lifecycle, manager = stage.manager, release = Blockade()
        lifecycle.observeLaunch("slow", willRestore: { release.wait() })
        let cache = PurgeableCache<Int, [UInt8]>("a's", cost: { _, value in value.count })
        let a = lifecycle.connectScene("a", reason: .userRequest) { scene in scene.register(cache) }
        await until("the launch is under way") { release.count == 1 }
        await a.disconnect(cause: .operator)
        #expect(lifecycle.scenes.isEmpty && lifecycle.state == .notRunning)
        release.open()
        await a.connected()
        #expect(manager.parts.purgeables.snapshot.allSatisfy { $0.name != "a's" } && !a.tasks.mayBegin)
    }

    @Test func `C94 a hold keeps the process active without a foreground scene`() async throws {
        let a = await connect("a")
        let hold = lifecycle.hold(.inactive)
        // The process follows the hold on a thread, which must not take the step of the scene below.
        await until("the hold is followed") { stage.manager.parts.threads.busy == 0 }
        try await a.enterBackground(cause: .idle)
        #expect(lifecycle.state == .inactive)
        hold.cancel()
        await until("lifecycle.state is .background") { lifecycle.state == .background }
    }

    @Test func `C95 a scene requested by a user starts in the foreground, one requested by the system in the background`() async throws {
        let system = await connect("system", .systemRequest)
        // Nothing of the foreground was set up, in the scene or in the process.
        #expect(system.state == .background && lifecycle.state == .background && stage.log.all.isEmpty && system.reason == .systemRequest)
        #expect(system.backgroundTimeRemaining == .seconds(30))
        let user = await connect("user")
        #expect(user.state == .active && lifecycle.state == .active && stage.log.all == ["user active"] && user.backgroundTimeRemaining == nil)
        // A system request for a scene in the foreground leaves the scene there.
        #expect(lifecycle.connectScene("user", reason: .systemRequest) === user)
        // A second request returns the same scene and brings it to the foreground.
        #expect(lifecycle.connectScene("system", reason: .userRequest) === system)
        await until("the scene is in front") { system.state == .active }
        #expect(stage.log.all.suffix(2) == ["system foreground", "system active"] && user.state == .active)
    }

    @Test func `C95 the system's request takes a suspended scene into the background, and no further`() async throws {
        let a = await connect("a")
        try await a.suspend(cause: .idle)
        #expect(a.state == .suspended && lifecycle.state == .background)
        #expect(lifecycle.connectScene("a", reason: .systemRequest) === a)
        await until("the scene runs in the background") { a.state == .background }
        #expect(lifecycle.state == .background && !stage.log.all.contains("a foreground"))
    }

    @Test func `C95 C97 a scene takes no step before it is configured and restored, whoever asks for one meanwhile`() async throws {
        let lifecycle = lifecycle, log = stage.log, store = store, threads = stage.manager.parts.threads
        try store.write("scene-a", [1])
        try await lifecycle.launch()
        let a = await onThread {
            lifecycle.connectScene("a", reason: .systemRequest) { scene in
                // The requests of other threads: one for the scene, and one for the process and all of its scenes.
                lifecycle.connectScene("a", reason: .userRequest)
                lifecycle.threads.run { _ = try? await lifecycle.endInterruption() }
                blockUntil("the requests are done") { threads.busy == 0 }
                log.add("\(scene.state)")
                scene.preserve(in: store, snapshot: { [1] }, restore: { _ in log.add("restored") })
                scene.observe("a", onActive: { _ in log.add("active") })
            }
        }
        await a.connected()
        #expect(log.all == ["notRunning", "restored", "active"] && a.state == .active)
    }

    @Test func `C95 a request for a scene that is being connected is carried out before it returns`() async throws {
        let a = lifecycle.connectScene("a", reason: .systemRequest)
        try await a.enterForeground(cause: .operator)
        #expect(a.state == .active && lifecycle.state == .active)
    }

    @Test func `C96 T33 the largest idle scene ends first, and no foreground scene or scene with unfinished work ends`() {
        func candidate(_ id: String, _ bytes: Int, _ idle: Int, _ state: LifecycleState = .background, tasks: Bool = false) -> Scene.UnitSnapshot {
            Scene.UnitSnapshot(id: id, bytes: ByteCount(bytes), idle: .seconds(idle), state: state, hasTasks: tasks)
        }
        let order = Scene.UnitSnapshot.order([
            candidate("small", 10, 100), candidate("front", 1000, 0, .active), candidate("busy", 900, 50, tasks: true),
            candidate("large", 500, 1), candidate("older", 500, 9, .suspended), candidate("empty", 0, 500),
        ])
        #expect(order.map(\.id) == ["older", "large", "small"])
    }

    @Test func `C96 a scene is disconnected under pressure after the snapshot, and comes back with that snapshot`() async throws {
        let kept = Mutex("cart of three"), store = store
        func configure(_ scene: Scene) {
            scene.preserve(in: store, snapshot: { Array(kept.withLock { $0 }.utf8) }) { bytes in
                kept.withLock { $0 = String(decoding: bytes, as: UTF8.self) }
            }
        }
        let cache = PurgeableCache<Int, [UInt8]>("a's", cost: { _, value in value.count })
        let a = await connect("a") {
            configure($0); $0.register(cache)
        }
        let b = await connect("b") { scene in scene.declare { 1 << 20 } }
        for key in 0..<64 { cache.insert([UInt8](repeating: 1, count: 1 << 16), forKey: key) }
        try await a.enterBackground(cause: .idle)
        try await b.enterBackground(cause: .idle)

        let eviction = try #require(stage.manager.parts.purgeables.snapshot.first { $0.name == "scenes in the background" })
        #expect(eviction.rebuildCost == .precious && eviction.purgeable.heldBytes == 5 << 20)
        #expect(eviction.purgeable.release(2 << 20) == 4 << 20 && cache.byteCount == .zero)
        await until("a.state is .notRunning") { a.state == .notRunning }
        await until("a is gone") { lifecycle.scenes.count == 1 }
        #expect(stage.log.all.filter { $0.hasPrefix("a ") } == ["a active", "a inactive", "a background", "a gone"] && b.state == .background)
        await #expect(throws: LifecycleError.self) { try await a.enterForeground(cause: .operator) }

        kept.withLock { $0 = "nothing" }
        let again = await connect("a", configure: configure)
        #expect(again !== a && again.state == .active && kept.withLock { $0 } == "cart of three")
    }

    @Test func `C96 a scene whose snapshot cannot be written stays`() async throws {
        let store = store
        let a = await connect("a", .systemRequest) { scene in
            scene.preserve(in: store, snapshot: { throw StoreFailure() }, restore: { _ in })
            scene.declare { 8 << 20 }
        }
        let eviction = try #require(stage.manager.parts.purgeables.snapshot.first { $0.name == "scenes in the background" })
        #expect(eviction.purgeable.release(8 << 20) == .zero && a.state == .background)
    }

    @Test func `C78 C94 a memory warning reaches each foreground scene, and no other, as the same event for all`() async throws {
        try await RunningManager.run { running in
            let received = Log<String>(), ids = Log<UInt64>(), lifecycle = running.manager.lifecycle
            let front = lifecycle.connectScene("front", reason: .userRequest), back = lifecycle.connectScene("back", reason: .systemRequest)
            for scene in [front, back] {
                await scene.connected()
                scene.onMemoryWarning { event in
                    received.add(scene.id)
                    ids.add(event.id)
                }
            }
            running.manager.observe { ids.add($0.id) }
            await running.available(.mebibytes(150))
            await running.until { ids.all.count == 2 }
            #expect(received.all == ["front"] && Set(ids.all).count == 1 && front.state == .active && back.state == .background)
        }
    }

    @Test func `C78 C97 the memory warnings of a scene end with the scene`() async throws {
        let a = await connect("a"), threads = stage.manager.parts.threads
        let observers = stage.manager.parts.observers, before = observers.count
        let early = a.onMemoryWarning { _ in }
        a.onMemoryWarning { _ in }
        #expect(observers.count == before + 2)
        early.cancel()
        #expect(observers.count == before + 1)
        await a.disconnect(cause: .operator)
        await until("the manager is at rest") { threads.busy == 0 }
        #expect(observers.count == before)
        a.onMemoryWarning { _ in }
        #expect(observers.count == before, "the scene has ended")
    }

    @Test func `C94 C97 a leaving scene's background tasks stop before the last save, and the clean-up comes last`() async throws {
        let log = stage.log, store = store
        let a = await connect("a") { scene in
            scene.onScrub("a") { log.add("erased") }
            scene.preserve(
                in: store,
                snapshot: {
                    log.add("saved")
                    return []
                }, restore: { _ in })
        }
        try await a.enterBackground(cause: .idle)
        let begun = log.all.count
        let task = a.beginBackgroundTask("upload") { task, reason in
            log.add("stopped, \(reason)")
            task.end()
        }
        #expect(task.isActive)
        await a.disconnect(cause: .operator)
        #expect(log.all.dropFirst(begun) == ["stopped, shutdown", "erased", "saved", "a gone"] && !task.isActive)
    }

    @Test func `C85 C94 memory that stays critical expires the background tasks of scenes as well`() async throws {
        try await RunningManager.run { running in
            let manager = running.manager, reasons = Log<ExpirationReason>()
            let a = manager.lifecycle.connectScene("a", reason: .userRequest)
            await a.connected()
            let task = a.beginBackgroundTask("upload") { task, reason in
                reasons.add(reason)
                task.end()
            }
            for _ in 0..<5 { await running.available(.mebibytes(20), after: .seconds(1)) }
            await running.until {
                manager.reports.contains { if case .expireBackgroundTasks = $0.action { true } else { false } }
            }
            await until("the manager is at rest") { manager.parts.threads.busy == 0 }
            #expect(reasons.all == [.pressure] && !task.isActive && a.state == .active)
        }
    }

    @Test func `C97 a scene connects, leaves, goes to the background and disconnects, each with handlers, under one deadline`() async throws {
        let release = Blockade()
        // The clock may move on while a busy machine delays the end of the wait below.
        lifecycle.policy.sceneSuspendsAfter = nil
        let a = await connect("a") { scene in scene.observe("stuck", onBackground: { _ in release.wait() }) }
        let report = try await stage.whileTimePasses(beside: release) { try await a.enterBackground(cause: .idle) }
        #expect(report.overran.contains { $0.name == "stuck" } && report.took >= .seconds(5) && a.state == .background)
        release.open()
        await a.disconnect(cause: .operator)
        #expect(stage.log.all == ["a active", "a inactive", "a background", "a gone"] && lifecycle.scenes.isEmpty)
        // The last scene has gone: no scene is in the foreground any more.
        await until("lifecycle.state is .background") { lifecycle.state == .background }
    }

    @Test func `C22 C97 termination disconnects every scene before the process ends`() async throws {
        let store = store
        _ = await connect("a") { scene in scene.preserve(in: store, snapshot: { [1, 2, 3] }, restore: { _ in }) }
        _ = await connect("b", .systemRequest)
        lifecycle.onTerminate("process") { [log = stage.log] _ in log.add("process gone") }
        await lifecycle.terminate()
        #expect(stage.log.all.last == "process gone" && Set(stage.log.all).isSuperset(of: ["a gone", "b gone"]))
        #expect(try store.read("scene-a") == [1, 2, 3] && lifecycle.scenes.isEmpty && lifecycle.state == .notRunning)
    }

    @Test func `many scenes come and go, in seeded storms, and none is lost or left behind`() async throws {
        let seed = UInt64.random(in: .min ... .max)
        print("seed \(seed)")
        var random = SeededGenerator(seed: seed)
        let lifecycle = lifecycle
        for _ in 0..<20 {
            let steps = (0..<40).map { _ in (Int.random(in: 0..<8, using: &random), Int.random(in: 0..<4, using: &random)) }
            await withTaskGroup(of: Void.self) { group in
                for (id, action) in steps {
                    group.addTask {
                        let scene = lifecycle.connectScene("s\(id)", reason: action == 0 ? .userRequest : .systemRequest)
                        switch action {
                        case 1: _ = try? await scene.enterForeground(cause: .simulated)
                        case 2: _ = try? await scene.enterBackground(cause: .simulated)
                        case 3: await scene.disconnect(cause: .simulated)
                        default: await scene.connected()
                        }
                    }
                }
            }
        }
        for scene in lifecycle.scenes { await scene.disconnect(cause: .simulated) }
        #expect(lifecycle.scenes.isEmpty && lifecycle.desired.withLock { $0.claims.isEmpty }, "seed \(seed)")
        await until("lifecycle.state is .background") { lifecycle.state == .background }
    }
}

/// A state store in memory.
final class ShelfStore: StateStore {
    private let shelf = Mutex<[String: [UInt8]]>([:])
    func write(_ name: String, _ bytes: [UInt8]) throws { shelf.withLock { $0[name] = bytes } }
    func read(_ name: String) throws -> [UInt8]? { shelf.withLock { $0[name] } }
    func remove(_ name: String) throws { shelf.withLock { $0[name] = nil } }
}

struct StoreFailure: Error {}
