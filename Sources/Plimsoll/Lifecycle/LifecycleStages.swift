/// What the steps of the process consist of besides the observers' part.
struct LifecycleStages: Sendable {
    let alarms: Alarms
    let threads: HandlerThreads
    let tasks: BackgroundTaskRegistry
    let quiesce: QuiesceSet

    var surroundings: LifecycleUnit.Surroundings {
        var surroundings = LifecycleUnit.Surroundings()
        surroundings.before = before
        surroundings.after = after
        surroundings.afterResume = [stage { quiesce.open() }, stage { alarms.release() }]
        return surroundings
    }

    /// At once when a gap is noticed, before anything else runs.
    func gapEnded() { quiesce.close() }

    private func before(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (.active, .inactive): [stage { quiesce.setState(.inactive) }]
        case (_, .notRunning): [stage { quiesce.setState(.inactive) }, expireTasks(.shutdown)]
        default: []
        }
    }

    private func after(_ transition: LifecycleTransition) -> [LifecycleEngine.Stage] {
        switch (transition.from, transition.to) {
        case (_, .background): [stage { quiesce.setState(.background) }]
        case (.notRunning, .inactive), (.background, .inactive): [stage { quiesce.setState(.inactive) }]
        case (.inactive, .active): [stage { quiesce.setState(.active) }]
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
