import Plimsoll

/// The stages of the process's steps besides the observers, in order.
struct LifecycleStages: Sendable {
    let alarms: Alarms
    let tasks: BackgroundTaskRegistry
    let pausables: QuiesceSet
    let environment: Environment
    let keeping: KeepingStages
    let endingSaves: EndingSaves

    var surroundings: LifecycleUnit.Surroundings {
        var surroundings = LifecycleUnit.Surroundings()
        surroundings.before = before
        surroundings.after = after
        // First resynchronize the environment, because reacquiring may hang on a network and needs the changes
        // (credentials). Then reacquire what was lost, then admit work, and release the timers last. All timers due
        // in the gap would fire at once before the first request. No request depends on a timer, as all expiry is
        // judged by the clock (C60, T30).
        surroundings.afterResume =
            [resync, keeping.reacquireLost, pause(nil), stage { alarms.release() }] + keeping.afterWake
        return surroundings
    }

    /// Closes admission at once when a gap is noticed, before any other work runs.
    func gapEnded(_ gap: RunningGap) {
        pausables.close()
        environment.hold()
        keeping.exclusive.gapEnded(gap)
        tasks.gapEnded(gap)
    }

    private func before(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.active, .inactive): [pause(.inactive)]
        case (.background, .inactive): [stage { tasks.enterForeground() }, keeping.reacquire]
        case (_, .notRunning):
            // Background tasks that are asked to stop, and the release of resources, may need work of a leased class.
            // After that, leased classes stop as well: their changes belong to the last save (C22).
            [
                pause(.inactive), keeping.blocking(expireTasks), keeping.release, pause(.notRunning), drain,
                keeping.save, endingSaves.stage,
            ]
        default: []
        }
    }

    private func after(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.inactive, .background):
            [
                keeping.release, keeping.purge, drain, keeping.save, keeping.scrubLast,
                stage { tasks.enterBackground() }, pause(.background),
            ]
        case (_, .background): [stage { tasks.enterBackground() }, pause(.background)]
        case (.active, .inactive): [pause(.inactive), keeping.saveOnLeaving]
        case (_, .inactive): [pause(.inactive)]
        case (_, .active): [pause(.active)]
        // The store that records the end may need a secret.
        case (_, .notRunning): [keeping.end, keeping.scrubAll]
        default: []
        }
    }

    /// Returns a stage that admits work according to `state`; `nil` restores the admission from before a gap.
    private func pause(_ state: LifecycleState?) -> LifecycleEngine.Stage {
        stage { if let state { pausables.setState(state) } else { pausables.open() } }
    }

    /// Waits for work that was admitted before the pause, such as a limiter's requests, or a tick that has no thread
    /// yet. Such work may still change the state to be saved.
    ///
    /// The wait gets half of the remaining time, the save the other half. Members that take longer are named as
    /// overrun, and the save does not count as complete.
    private func drain(_ context: LifecycleContext) async -> FanOut.Outcome {
        let began = alarms.heartbeat.running
        let working = await pausables.drain(within: context.timeRemaining * 0.5)
        return FanOut.Outcome(overran: HandlerTiming.overran(working, "quiesce", alarms.heartbeat.running - began))
    }

    /// Reads changed settings again, and notifies the observers that must know before work is admitted.
    private func resync(_ context: LifecycleContext) async -> FanOut.Outcome {
        let result = await environment.resync(within: context.timeRemaining)
        return FanOut.Outcome(
            overran: HandlerTiming.overran(result.late, "environment", context.timeRemaining),
            slowest: result.calls.map { HandlerTiming(name: $0.name, origin: "environment", took: $0.took) })
    }

    private func expireTasks(_ context: LifecycleContext) -> FanOut.Outcome {
        let began = alarms.heartbeat.running
        let stragglers = tasks.expireAndWait(
            .shutdown, within: context.timeRemaining, isExtended: true, allowsOwnEnd: context.cause == .shutdown)
        let took = alarms.heartbeat.running - began
        return FanOut.Outcome(overran: HandlerTiming.overran(stragglers, "background task", took))
    }
}
