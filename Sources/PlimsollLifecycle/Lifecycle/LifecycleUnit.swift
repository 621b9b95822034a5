import Plimsoll
import Synchronization

/// Returns a stage that takes no time.
func stage(_ body: @escaping @Sendable () -> Void) -> LifecycleEngine.Stage {
    { _ in
        body()
        return FanOut.Outcome()
    }
}

/// The parts that the process and each scene have of their own: a state, step observers and background tasks.
struct LifecycleUnit: Sendable {
    let engine: LifecycleEngine
    let observers: LifecycleObservers

    /// True if a step in progress may wait for the current task, which runs within a handler of this unit.
    var mayAwaitCaller: Bool { observers.areEntered && engine.isBusy }

    /// The stages around the observers of a step.
    struct Surroundings: Sendable {
        /// The stages before the observers of a step.
        var before: @Sendable (LifecycleTransition) -> [LifecycleEngine.Stage] = { _ in [] }
        /// The stages after the observers of a step.
        var after: @Sendable (LifecycleTransition) -> [LifecycleEngine.Stage] = { _ in [] }
        /// The stages after the resume hooks, on the way back from a gap.
        var afterResume: [LifecycleEngine.Stage] = []
    }

    init(
        _ alarms: Alarms, _ threads: HandlerThreads, _ surroundings: Surroundings,
        onStep: @escaping @Sendable (LifecycleTransition) -> Void,
        onGap: @escaping @Sendable (LifecycleReport) -> Void = { _ in }
    ) {
        let observers = LifecycleObservers()
        self.observers = observers
        engine = LifecycleEngine(
            alarms, threads,
            stages: { transition in
                let own: LifecycleEngine.Stage = { context in
                    let (order, handlers) = observers.handlers(for: transition, context)
                    return await FanOut.call(handlers, order, until: context.deadline, alarms, threads)
                }
                let first: LifecycleEngine.Stage = { context in
                    await FanOut.call(
                        observers.hooks(.comeBack, context), .forward, until: context.deadline, alarms, threads)
                }
                let comesBack = transition.from == .background && transition.to == .inactive
                return (comesBack ? [first] : []) + surroundings.before(transition) + [own]
                    + surroundings.after(transition)
            },
            afterGap: { context in
                var report = LifecycleReport(target: context.to)
                let began = alarms.heartbeat.running
                report.add(
                    await FanOut.call(
                        observers.hooks(.resume, context), .forward, until: context.deadline, alarms, threads))
                for stage in surroundings.afterResume { report.add(await stage(context)) }
                report.took = alarms.heartbeat.running - began
                onGap(report)
                return report.isClean
            },
            onStep: onStep)
    }

    /// Adds action and inverse pairs.
    func observe(
        _ name: String, _ origin: String, onInactive: UndoPair.Step?, onActive: UndoPair.Step?,
        onBackground: UndoPair.Step?,
        onForeground: UndoPair.Step?
    ) -> Registration {
        observers.add(
            LifecycleObservers.Observer(
                name, origin, resign: UndoPair(onInactive, onActive, isDone: true),
                retreat: UndoPair(onBackground, onForeground, isDone: false)))
    }
}
