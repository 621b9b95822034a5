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
    var scrubLast: LifecycleEngine.Stage {
        { [scrub] context in
            await blocking {
                let report = scrub.run(.background, within: min(ScrubSet.budget, max(Self.leastBudget, context.timeRemaining)))
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
    private static let leastBudget = Duration.milliseconds(200)

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

/// Who purges on the way to the background, once there is a manager.
final class BackgroundPurgeHook: Sendable {
    private let body = Mutex<(@Sendable (Duration) -> ActionReport?)?>(nil)

    func connect(_ body: @escaping @Sendable (Duration) -> ActionReport?) { self.body.withLock { $0 = body } }
    func callAsFunction(_ budget: Duration) -> ActionReport? { body.withLock { $0 }?(budget) }
}
