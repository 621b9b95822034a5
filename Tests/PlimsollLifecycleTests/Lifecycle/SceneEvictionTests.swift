import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The system disconnects scenes outside the foreground whenever memory is needed.
@Suite(.serialized, .timeLimit(.minutes(5))) struct SceneEvictionTests {
    let stage = Stage()
    let store = ShelfStore()
    var lifecycle: Lifecycle { stage.lifecycle }

    /// Connects a scene in the background with a cache of its own. `snapshot` is called with each snapshot.
    private func connect(
        _ id: String, mebibytes: Int, snapshot: @escaping @Sendable () throws -> Void = {}
    ) async -> (Scene, PurgeableCache<Int, Int>) {
        let cache = PurgeableCache<Int, Int>(id, cost: { _, _ in 1 << 20 }), store = store
        for key in 0..<mebibytes { cache.insert(key, forKey: key) }
        let scene = lifecycle.connectScene(id, reason: .systemRequest) { scene in
            scene.register(cache)
            scene.preserve(
                in: store,
                snapshot: {
                    try snapshot()
                    return Array(id.utf8)
                }, restore: { _ in })
        }
        await scene.connected()
        return (scene, cache)
    }

    private func eviction(of state: String) throws -> any Purgeable {
        try #require(stage.manager.parts.purgeables.snapshot.first { $0.purgeable is SceneEviction && $0.name.contains(state) }).purgeable
    }

    /// Brings `scene` to the foreground and blocks until the scene is there. Runs off the cooperative pool, whose
    /// threads tests like this one block.
    private static func bringToFront(_ scene: Scene) {
        let done = Parker()
        scene.lifecycle.threads.run {
            _ = try? await scene.enterForeground(cause: .operator)
            done.unpark()
        }
        _ = done.park(atMost: .seconds(30))
    }

    @Test func `C96 a scene brought to the front before the eviction's turn is not evicted`() async throws {
        let (small, cache) = await connect("small", mebibytes: 4)
        // The larger scene is first. During its save, the smaller scene is brought to the foreground.
        let (large, _) = await connect("large", mebibytes: 8) { Self.bringToFront(small) }
        #expect(try eviction(of: "background").release(100 << 20) == 8 << 20)
        await until("the larger one is gone") { large.state == .notRunning && lifecycle.scenes.count == 1 }
        #expect(small.state == .active && cache.count == 4 && lifecycle.scenes.map(\.id) == ["small"])
    }

    @Test func `C96 a scene brought to the front during the eviction's save stays unchanged`() async throws {
        let wanted = Mutex<Scene?>(nil)
        let (scene, cache) = await connect("a", mebibytes: 4) { wanted.withLock { $0 }.map { Self.bringToFront($0) } }
        wanted.withLock { $0 = scene }
        #expect(try eviction(of: "background").release(100 << 20) == .zero)
        wanted.withLock { $0 = nil }
        #expect(scene.state == .active && cache.count == 4 && lifecycle.scenes.map(\.id) == ["a"])
    }

    @Test func `C96 T33 a scene that got work to finish during the eviction's save stays`() async throws {
        let wanted = Mutex<Scene?>(nil), task = Mutex<BackgroundTask?>(nil)
        let (scene, cache) = await connect("a", mebibytes: 4) {
            guard let scene = wanted.withLock({ $0 }) else { return }
            task.withLock { $0 = scene.beginBackgroundTask("upload", onExpiration: { task, _ in task.end() }) }
        }
        wanted.withLock { $0 = scene }
        #expect(try eviction(of: "background").release(100 << 20) == .zero)
        #expect(scene.state == .background && cache.count == 4)
        wanted.withLock { $0 = nil }
        task.withLock { $0 }?.end()
    }

    @Test func `C96 only a new connection brings a leaving scene back, with the saved state`() async throws {
        let (scene, _) = await connect("a", mebibytes: 4)
        let release = Blockade()
        scene.onDisconnect("slow") { _ in release.wait() }
        #expect(try eviction(of: "background").release(100 << 20) == 4 << 20)
        await #expect(throws: LifecycleError.self) { try await scene.enterForeground(cause: .operator) }
        // The old scene is still disconnecting.
        let restored = Log<String>()
        let again = lifecycle.connectScene("a", reason: .userRequest) { [store] scene in
            scene.preserve(in: store, snapshot: { [] }, restore: { restored.add(String(decoding: $0, as: UTF8.self)) })
        }
        #expect(again !== scene && again.state == .notRunning && restored.all.isEmpty)
        release.open()
        await again.connected()
        #expect(scene.state == .notRunning && again.state == .active && restored.all == ["a"] && lifecycle.scenes.first === again)
    }

    @Test func `C90 C96 suspended scenes end at warning, background scenes at critical, and foreground scenes never`() async throws {
        // The clock moves by minutes here, and must suspend no scene.
        try await RunningManager.run { running in
            let lifecycle = running.manager.lifecycle
            lifecycle.policy.sceneSuspendsAfter = nil
            var scenes: [String: Scene] = [:]
            for id in ["front", "back", "still"] {
                let scene = lifecycle.connectScene(id, reason: .userRequest) { scene in scene.declare { 64 << 20 } }
                await scene.connected()
                scenes[id] = scene
            }
            let (front, back, still) = (try #require(scenes["front"]), try #require(scenes["back"]), try #require(scenes["still"]))
            try await back.enterBackground(cause: .idle)
            try await still.suspend(cause: .idle)
            await running.available(.mebibytes(150))
            await until("the suspended scene is gone") { still.state == .notRunning }
            // No suspended scene is left. The next pass at this level does not touch the background.
            await running.available(.mebibytes(150), after: .seconds(40))
            await until("the manager is at rest") { running.manager.parts.threads.busy == 0 }
            #expect(running.manager.level == .warning && back.state == .background)
            await until("the background scene is gone") {
                // A pass that still runs when the clock moves is followed by another pass only after more time.
                await running.available(.mebibytes(20), after: .seconds(20))
                return back.state == .notRunning && lifecycle.scenes.count == 1
            }
            #expect(front.state == .active && lifecycle.scenes.map(\.id) == ["front"])
        }
    }

    @Test func `C96 an operator's full release disconnects every scene behind the front, saved first`() async throws {
        let (back, _) = await connect("back", mebibytes: 4)
        let (still, _) = await connect("still", mebibytes: 2)
        // Caches are released first. Some memory is freed only when the scenes end.
        for scene in [back, still] { scene.declare { 1 << 20 } }
        try await still.suspend(cause: .idle)
        let front = lifecycle.connectScene("front", reason: .userRequest)
        await front.connected()
        let report: ActionReport = await stage.manager.release()
        #expect(report.origin == .operator)
        await until("both are gone") { back.state == .notRunning && still.state == .notRunning }
        #expect(try store.read("scene-back") == Array("back".utf8) && store.read("scene-still") == Array("still".utf8))
        #expect(front.state == .active)
    }
}
