import Synchronization

/// The parts of a step that give back what others may need meanwhile, and erase what others may not see.
struct KeepingStages: Sendable {
    let exclusive: ExclusiveResources
    let scrub: ScrubSet
    let preservation: Preservation
    let threads: HandlerThreads
    /// Purges what the background does not need.
    let purgeMemory: @Sendable (Duration) -> ActionReport?

    /// On the way to the background, after the observers: what only one may hold is given back, within what is left of their time (C48).
    var release: LifecycleEngine.Stage {
        { [exclusive] context in await blocking { exclusive.release(within: context.timeRemaining).outcome } }
    }

    /// Then what the background does not need is purged (C87, C88).
    var purge: LifecycleEngine.Stage {
        { [purgeMemory] context in
            await blocking {
                var outcome = FanOut.Outcome()
                let budget = max(Self.leastBudget, context.timeRemaining)
                if let report = purgeMemory(budget), case .overran(let names) = report.outcome { outcome.add(overran: names, "holder", report.took) }
                return outcome
            }
        }
    }

    /// What a scene's save on leaving the front may take: handlers come after it.
    static func firstShare(of context: LifecycleContext) -> Duration { max(leastBudget, context.timeRemaining * 0.25) }

    /// Then state is saved; nothing is promised a call later than this (C41, C43). The stores' locks are given back.
    var save: LifecycleEngine.Stage {
        { [preservation] context in
            await blocking {
                var outcome = FanOut.Outcome()
                outcome.failures = preservation.checkpoint(within: max(Self.leastBudget, context.timeRemaining)).map(\.description)
                if outcome.failures.isEmpty { preservation.relinquish() }
                return outcome
            }
        }
    }

    /// On leaving the front for an interruption: what has changed is saved, in half of the time, as nothing says how long it
    /// will last (C41). A way that leads on to the background saves there.
    var saveOnLeaving: LifecycleEngine.Stage {
        { [preservation] context in
            guard context.isLast else { return FanOut.Outcome() }
            return await blocking {
                var outcome = FanOut.Outcome()
                outcome.failures = preservation.checkpoint(within: context.timeRemaining * 0.5).map(\.description)
                return outcome
            }
        }
    }

    /// The run has come to its end in good order, which the next one will know (C24).
    var end: LifecycleEngine.Stage {
        { [preservation] _ in
            await blocking {
                var outcome = FanOut.Outcome()
                if let problem = preservation.ended() { outcome.failures = [problem] }
                return outcome
            }
        }
    }

    /// Last of all, secrets are erased (C44).
    var scrubLast: LifecycleEngine.Stage { scrub(.background) }

    /// After a wake in the background, before the process may stand still again: what has changed since is saved, and
    /// what came back is erased (C46).
    var afterWake: [LifecycleEngine.Stage] { [inBackground(save), inBackground(scrub(.wake))] }

    private func inBackground(_ stage: @escaping LifecycleEngine.Stage) -> LifecycleEngine.Stage {
        { context in context.to == .background ? await stage(context) : FanOut.Outcome() }
    }

    private func scrub(_ reason: ScrubReport.Reason) -> LifecycleEngine.Stage {
        { [scrub] context in
            await blocking {
                let report = scrub.run(reason, within: min(ScrubSet.budget, max(Self.leastBudget, context.timeRemaining)))
                var outcome = FanOut.Outcome()
                outcome.add(overran: report.overran, "scrub", report.took)
                outcome.add(overran: report.inUse, "secret in use", report.took)
                return outcome
            }
        }
    }

    /// On the way back, before the observers: what was given back is taken again.
    var reacquire: LifecycleEngine.Stage {
        { [exclusive] context in await blocking { exclusive.reacquire(within: context.timeRemaining).outcome } }
    }

    /// After a gap in the foreground: what was lost in it is taken again (T29).
    var reacquireLost: LifecycleEngine.Stage {
        { [exclusive] context in
            if exclusive.ground.isClosed { return FanOut.Outcome() }
            return await blocking { exclusive.reacquire(within: context.timeRemaining).outcome }
        }
    }

    /// Erasing is not left out because others took all the time.
    static let leastBudget = Duration.milliseconds(200)

    /// A stage that blocks its thread.
    func blocking(_ body: @escaping @Sendable (LifecycleContext) -> FanOut.Outcome) -> LifecycleEngine.Stage {
        { context in await blocking { body(context) } }
    }

    private func blocking(_ body: @escaping @Sendable () -> FanOut.Outcome) async -> FanOut.Outcome {
        await withCheckedContinuation { done in threads.run { () -> Void in done.resume(returning: body()) } }
    }
}

extension FanOut.Outcome {
    mutating func add(overran names: [String], _ origin: String, _ took: Duration) {
        overran += names.map { HandlerTiming(name: $0, origin: origin, took: took) }
    }
}

extension ExclusiveReport {
    fileprivate var outcome: FanOut.Outcome {
        var outcome = FanOut.Outcome()
        outcome.add(overran: overran, "exclusive resource", took)
        outcome.failures = failed.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" } + stillHeld.map { "\($0): still held" }
        return outcome
    }
}

/// What a process that ends itself saves beside its life cycle: nothing is cleaned up before that is done (C22).
final class EndingSaves: Sendable {
    private let pause = Mutex<Pause?>(nil)

    /// Saving begins; `end` what this returns once it is done.
    func begin() -> Pause {
        let pause = Pause()
        self.pause.withLock { $0 = pause }
        return pause
    }

    /// Waits until it is done, within what is left of the time.
    func stage(_ alarms: Alarms) -> LifecycleEngine.Stage {
        { [self] context in
            if let pause = pause.withLock({ $0 }) { _ = await pause.wait(context.timeRemaining, on: alarms, heedsCancellation: false) }
            return FanOut.Outcome()
        }
    }
}

/// Who purges on the way to the background, once there is a manager.
final class BackgroundPurgeHook: Sendable {
    private let body = Mutex<(@Sendable (Duration) -> ActionReport?)?>(nil)

    func connect(_ body: @escaping @Sendable (Duration) -> ActionReport?) { self.body.withLock { $0 = body } }
    func callAsFunction(_ budget: Duration) -> ActionReport? { body.withLock { $0 }?(budget) }
}
