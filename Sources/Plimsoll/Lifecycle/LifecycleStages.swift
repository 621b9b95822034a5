/// What the steps of the process consist of besides the observers' part, in order.
struct LifecycleStages: Sendable {
    let alarms: Alarms
    let threads: HandlerThreads
    let tasks: BackgroundTaskRegistry
    let quiesce: QuiesceSet
    let keeping: KeepingStages

    var surroundings: LifecycleUnit.Surroundings {
        var surroundings = LifecycleUnit.Surroundings()
        surroundings.before = before
        surroundings.after = after
        surroundings.beforeResume = [keeping.reacquireLost]
        // Admission, and only then timers (C60).
        surroundings.afterResume = [pause(nil), stage { alarms.release() }]
        return surroundings
    }

    /// At once when a gap is noticed, before anything else runs.
    func gapEnded(_ gap: RunningGap) {
        quiesce.close()
        keeping.exclusive.gapEnded(gap)
    }

    private func before(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.active, .inactive): [pause(.inactive)]
        case (.background, .inactive): [keeping.reacquire]
        case (_, .notRunning): [pause(.inactive), expireTasks(.shutdown), keeping.release]
        default: []
        }
    }

    private func after(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.inactive, .background): [keeping.release, keeping.purge, keeping.scrubLast, pause(.background)]
        case (_, .background): [pause(.background)]
        case (_, .inactive): [pause(.inactive)]
        case (_, .active): [pause(.active)]
        case (_, .notRunning): [keeping.scrubLast, pause(.notRunning)]
        default: []
        }
    }

    /// Work is admitted as `state` has it; `nil` for as before a gap.
    private func pause(_ state: LifecycleState?) -> LifecycleEngine.Stage {
        stage { if let state { quiesce.setState(state) } else { quiesce.open() } }
    }

    /// Something that takes no time.
    private func stage(_ body: @escaping @Sendable () -> Void) -> LifecycleEngine.Stage {
        { _ in
            body()
            return FanOut.Outcome()
        }
    }

    private func expireTasks(_ reason: ExpirationReason) -> LifecycleEngine.Stage {
        { context in
            var outcome = FanOut.Outcome()
            let began = alarms.heartbeat.running
            guard tasks.expire(reason, within: context.timeRemaining) > 0 else { return outcome }
            tasks.awaitExpiry(within: context.timeRemaining)
            let took = alarms.heartbeat.running - began
            outcome.overran = tasks.giveUpStragglers().map { HandlerTiming(name: $0, origin: "background task", took: took) }
            return outcome
        }
    }
}
