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
        case (.background, .inactive): [stage { tasks.enterForeground() }, unhide]
        case (.suspended, .background): [stage { executor.quiesce(to: .open) }, stage { tasks.suspended(false) }]
        case (_, .notRunning): [unhide, expireTasks, scrub, save]
        default: []
        }
    }

    private func after(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.active, .inactive): [saveFirst]
        // Memory is given back first, what may not be seen is erased, and only then its state is saved: the last word of what holds if it is killed (C43).
        case (.inactive, .background): [purge, scrub, save, stage { tasks.enterBackground() }, hide]
        case (.notRunning, .background): [stage { tasks.enterBackground() }, hide]
        case (.suspended, .background): [hide]
        // What it did in the background is saved as well, once nothing of it begins any more.
        case (_, .suspended): [stage { tasks.suspended(true) }, stage { executor.quiesce(to: .paused) }, scrub, save]
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

    /// Something that blocks its thread.
    private func blocking(_ body: @escaping @Sendable (Scene, LifecycleContext) -> FanOut.Outcome) -> LifecycleEngine.Stage {
        { context in
            guard let scene = scene.value else { return FanOut.Outcome() }
            return await withCheckedContinuation { done in
                scene.lifecycle.threads.run { () -> Void in done.resume(returning: body(scene, context)) }
            }
        }
    }

    private var hide: LifecycleEngine.Stage { stage { scene.value?.hide() } }
    private var unhide: LifecycleEngine.Stage { stage { scene.value?.unhide() } }

    private var expireTasks: LifecycleEngine.Stage {
        blocking { _, context in
            let stragglers = tasks.expireAndWait(.shutdown, within: context.timeRemaining)
            var outcome = FanOut.Outcome()
            outcome.add(overran: stragglers, "background task", context.timeRemaining)
            return outcome
        }
    }

    /// Its memory that the background does not need (C87, C97).
    private func purge(_ context: LifecycleContext) async -> FanOut.Outcome {
        guard let scene = scene.value else { return FanOut.Outcome() }
        let lifecycle = scene.lifecycle
        let deadline = max(context.deadline, lifecycle.alarms.heartbeat.running + KeepingStages.leastBudget)
        return await FanOut.call(scene.purges, .forward, until: deadline, lifecycle.alarms, lifecycle.threads)
    }

    private var scrub: LifecycleEngine.Stage {
        blocking { scene, context in
            let report = scene.scrub.run(.background, within: min(ScrubSet.budget, max(KeepingStages.leastBudget, context.timeRemaining)))
            var outcome = FanOut.Outcome()
            outcome.add(overran: report.overran, "scrub of scene \(scene.id)", report.took)
            return outcome
        }
    }

    /// On leaving the front, for the first time: `save` does it again on the way into the background.
    private var saveFirst: LifecycleEngine.Stage {
        blocking { scene, context in
            var outcome = FanOut.Outcome(isProvisional: true)
            outcome.failures = scene.save(within: KeepingStages.firstShare(of: context)).map { "on leaving the front: \($0)" }
            return outcome
        }
    }

    private var save: LifecycleEngine.Stage {
        blocking { scene, context in
            var outcome = FanOut.Outcome()
            outcome.failures = scene.save(within: max(KeepingStages.leastBudget, context.timeRemaining)).map(\.description)
            return outcome
        }
    }

    private func letGo(_ context: LifecycleContext) async -> FanOut.Outcome {
        _ = scene.value?.letGoOfAll()
        scene.value?.forgetState()
        return FanOut.Outcome()
    }
}
