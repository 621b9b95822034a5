import Synchronization

/// What the steps of a scene consist of besides its handlers' part.
struct SceneStages: Sendable {
    /// The scene, which is made after its stages.
    final class Owner: Sendable {
        private let scene = Mutex<WeakScene?>(nil)
        func set(_ scene: Scene) { self.scene.withLock { $0 = WeakScene(scene: scene) } }
        var value: Scene? { scene.withLock { $0 }?.scene }
    }

    struct WeakScene: Sendable { weak let scene: Scene? }

    let tasks: BackgroundTaskRegistry
    let scene = Owner()

    var surroundings: LifecycleUnit.Surroundings {
        LifecycleUnit.Surroundings(before: before, after: after)
    }

    private func before(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (_, .notRunning): [writeSnapshot]
        default: []
        }
    }

    private func after(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (_, .notRunning): [letGo]
        default: []
        }
    }

    private func writeSnapshot(_ context: LifecycleContext) async -> FanOut.Outcome {
        guard let scene = scene.value else { return FanOut.Outcome() }
        let handler = FanOut.Handler(name: "snapshot of scene \(scene.id)") { try scene.writeSnapshot() }
        return await FanOut.call([handler], .forward, until: context.deadline, scene.lifecycle.alarms, scene.lifecycle.threads)
    }

    private func letGo(_ context: LifecycleContext) async -> FanOut.Outcome {
        _ = scene.value?.letGoOfAll()
        return FanOut.Outcome()
    }
}
