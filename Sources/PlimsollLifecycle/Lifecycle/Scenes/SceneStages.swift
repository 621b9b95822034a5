import Plimsoll
import Synchronization

/// The stages of a scene's steps besides the handlers.
struct SceneStages: Sendable {
    /// A reference to the scene, which is created after these stages.
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
        LifecycleUnit.Surroundings(
            before: { transition in (transition.isDescent ? [] : [rise(to: transition.to)]) + before(transition) },
            after: after)
    }

    /// Returns the first stage of a step up. From then on no request takes the process below the scene.
    private func rise(to state: LifecycleState) -> LifecycleEngine.Stage {
        { context in
            guard let scene = scene.value else { return FanOut.Outcome() }
            scene.stands(at: state)
            // The process may have gone down since the step was requested, and goes first (C94).
            let needed: @Sendable () -> LifecycleState = { min(state, scene.aim) }
            if scene.lifecycle.state < needed() { try? await scene.lifecycle.followScenes(context.cause, upTo: needed) }
            return FanOut.Outcome()
        }
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
        // Release memory first, then erase secrets, and only then save state. The saved state is the final one if the
        // process is killed (C43).
        case (.inactive, .background): [purge, scrub, save, stage { tasks.enterBackground() }, hide]
        case (.notRunning, .background): [stage { tasks.enterBackground() }, hide]
        case (.suspended, .background): [hide]
        // The changes made in the background are saved too, once no new work of the scene can begin.
        case (_, .suspended): [stage { tasks.suspended(true) }, stage { executor.quiesce(to: .paused) }, scrub, save]
        // Tasks that still wait in the scene's executor may run to their end.
        case (_, .notRunning): [letGo, stage { tasks.close() }, stage { executor.quiesce(to: .open) }]
        default: []
        }
    }

    /// Returns a stage that blocks a thread.
    private func blocking(_ body: @escaping @Sendable (Scene, LifecycleContext) -> FanOut.Outcome)
        -> LifecycleEngine.Stage
    {
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
            return FanOut.Outcome(
                overran: HandlerTiming.overran(stragglers, "background task", context.timeRemaining))
        }
    }

    /// Purges the scene's memory that the background does not need (C87, C97).
    private func purge(_ context: LifecycleContext) async -> FanOut.Outcome {
        guard let scene = scene.value else { return FanOut.Outcome() }
        let lifecycle = scene.lifecycle
        let deadline = max(context.deadline, lifecycle.alarms.heartbeat.running + KeepingStages.leastBudget)
        return await FanOut.call(scene.purges, .forward, until: deadline, lifecycle.alarms, lifecycle.threads)
    }

    private var scrub: LifecycleEngine.Stage {
        blocking { scene, context in
            let report = scene.scrub.run(
                .background, within: min(ScrubSet.budget, max(KeepingStages.leastBudget, context.timeRemaining)))
            return FanOut.Outcome(
                overran: HandlerTiming.overran(report.overran, "scrub of scene \(scene.id)", report.took))
        }
    }

    /// Saves on leaving the front, provisionally: `save` repeats the work on the way into the background.
    private var saveFirst: LifecycleEngine.Stage {
        blocking { scene, context in
            let failures = scene.save(within: KeepingStages.firstShare(of: context))
            return FanOut.Outcome(failures: failures.map { "on leaving the foreground: \($0)" }, isProvisional: true)
        }
    }

    private var save: LifecycleEngine.Stage {
        blocking { scene, context in
            let failures = scene.save(within: max(KeepingStages.leastBudget, context.timeRemaining))
            return FanOut.Outcome(failures: failures.map(\.description))
        }
    }

    private func letGo(_ context: LifecycleContext) async -> FanOut.Outcome {
        _ = scene.value?.letGoOfAll()
        scene.value?.forgetState()
        return FanOut.Outcome()
    }
}
