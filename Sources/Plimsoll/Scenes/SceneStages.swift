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
    let executor: PausableExecutor
    let scene = Owner()

    var surroundings: LifecycleUnit.Surroundings {
        LifecycleUnit.Surroundings(before: before, after: after)
    }

    private func before(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.background, .inactive): [stage { tasks.enterForeground() }]
        case (.suspended, .background): [stage { executor.quiesce(to: .open) }, stage { tasks.suspended(false) }]
        case (_, .notRunning): [expireTasks, writeSnapshot]
        default: []
        }
    }

    private func after(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.inactive, .background), (.notRunning, .background): [stage { tasks.enterBackground() }]
        case (_, .suspended): [stage { tasks.suspended(true) }, stage { executor.quiesce(to: .paused) }]
        // Whoever still waits in its executor may come to an end.
        case (_, .notRunning): [letGo, stage { tasks.close() }, stage { executor.quiesce(to: .open) }]
        default: []
        }
    }

    /// Something that takes no time.
    private func stage(_ body: @escaping @Sendable () -> Void) -> LifecycleEngine.Stage {
        { _ in
            body()
            return FanOut.Outcome()
        }
    }

    private func expireTasks(_ context: LifecycleContext) async -> FanOut.Outcome {
        guard let threads = scene.value?.lifecycle.threads else { return FanOut.Outcome() }
        let stragglers = await withCheckedContinuation { done in
            threads.run { () -> Void in done.resume(returning: tasks.expireAndWait(.shutdown, within: context.timeRemaining)) }
        }
        var outcome = FanOut.Outcome()
        outcome.add(overran: stragglers, "background task", context.timeRemaining)
        return outcome
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
