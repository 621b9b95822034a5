import Plimsoll
import Synchronization

/// The stages of a step that release resources other processes may need, and erase data that others must not see.
struct KeepingStages: Sendable {
    let exclusive: ExclusiveResources
    let scrub: ScrubSet
    let preservation: Preservation
    let threads: HandlerThreads
    /// Purges caches that the background does not need.
    let purgeMemory: @Sendable (Duration) -> ActionReport?

    /// Releases exclusive resources on the way to the background, after the observers, within the observers'
    /// remaining time (C48).
    var release: LifecycleEngine.Stage {
        { [exclusive] context in await blocking { exclusive.release(within: context.timeRemaining).outcome } }
    }

    /// Purges caches that the background does not need, after `release` (C87, C88).
    var purge: LifecycleEngine.Stage {
        { [purgeMemory] context in
            await blocking {
                let report = purgeMemory(max(Self.leastBudget, context.timeRemaining))
                guard let report, case .overran(let names) = report.outcome else { return FanOut.Outcome() }
                return FanOut.Outcome(overran: HandlerTiming.overran(names, "purgeable", report.took))
            }
        }
    }

    /// The time that a scene's save may take on leaving the front. Handlers are called after the save.
    static func firstShare(of context: LifecycleContext) -> Duration { max(leastBudget, context.timeRemaining * 0.25) }

    /// Saves state after `purge`, and then releases the stores' locks. No later call is promised (C41, C43).
    var save: LifecycleEngine.Stage {
        { [preservation] context in
            await blocking {
                let failures = preservation.checkpoint(within: max(Self.leastBudget, context.timeRemaining))
                if failures.isEmpty { preservation.relinquish() }
                return FanOut.Outcome(failures: failures.map(\.description))
            }
        }
    }

    /// Saves changed state when the process leaves the front for an interruption (C41).
    ///
    /// The save gets half of the time, because the length of the interruption is unknown. A change that leads on to
    /// the background saves there instead.
    var saveOnLeaving: LifecycleEngine.Stage {
        { [preservation] context in
            guard context.isLast else { return FanOut.Outcome() }
            return await blocking {
                let failures = preservation.checkpoint(within: context.timeRemaining * 0.5)
                return FanOut.Outcome(failures: failures.map(\.description))
            }
        }
    }

    /// Records that the run ended in good order, for the next run to read (C24).
    var end: LifecycleEngine.Stage {
        { [preservation] _ in
            await blocking { FanOut.Outcome(failures: preservation.ended().map { [$0] } ?? []) }
        }
    }

    /// Erases secrets, last of all (C44).
    var scrubLast: LifecycleEngine.Stage { scrub(.background) }

    /// Erases secrets at the end of the process, those kept in the background too: no work is left to need them (C44).
    var scrubAll: LifecycleEngine.Stage { scrub(.termination) }

    /// Runs after a wake-up in the background, before the process may be frozen again. Saves what has changed since,
    /// and erases secrets that came back (C46).
    var afterWake: [LifecycleEngine.Stage] { [inBackground(save), inBackground(scrub(.wake))] }

    private func inBackground(_ stage: @escaping LifecycleEngine.Stage) -> LifecycleEngine.Stage {
        { context in context.to == .background ? await stage(context) : FanOut.Outcome() }
    }

    private func scrub(_ reason: ScrubReport.Reason) -> LifecycleEngine.Stage {
        { [scrub] context in
            await blocking {
                let report = scrub.run(
                    reason, within: min(ScrubSet.budget, max(Self.leastBudget, context.timeRemaining)))
                return FanOut.Outcome(
                    overran: HandlerTiming.overran(report.overran, "scrub", report.took)
                        + HandlerTiming.overran(report.inUse, "secret in use", report.took))
            }
        }
    }

    /// Reacquires the released resources on the way back, before the observers.
    var reacquire: LifecycleEngine.Stage {
        { [exclusive] context in await blocking { exclusive.reacquire(within: context.timeRemaining).outcome } }
    }

    /// Reacquires the resources that were lost in a gap, once the gap in the foreground has ended (T29).
    var reacquireLost: LifecycleEngine.Stage {
        { [exclusive] context in
            if exclusive.context.isClosed { return FanOut.Outcome() }
            return await blocking { exclusive.reacquire(within: context.timeRemaining).outcome }
        }
    }

    /// The least time for a stage: erasing is not skipped because other stages used up all the time.
    static let leastBudget = Duration.milliseconds(200)

    /// Returns a stage that blocks its thread.
    func blocking(_ body: @escaping @Sendable (LifecycleContext) -> FanOut.Outcome) -> LifecycleEngine.Stage {
        { context in await blocking { body(context) } }
    }

    private func blocking(_ body: @escaping @Sendable () -> FanOut.Outcome) async -> FanOut.Outcome {
        await withCheckedContinuation { done in threads.run { () -> Void in done.resume(returning: body()) } }
    }
}

extension HandlerTiming {
    static func overran(_ names: [String], _ origin: String, _ took: Duration) -> [HandlerTiming] {
        names.map { HandlerTiming(name: $0, origin: origin, took: took, isFinished: false) }
    }
}

extension ExclusiveReport {
    fileprivate var outcome: FanOut.Outcome {
        FanOut.Outcome(
            overran: HandlerTiming.overran(overran, "exclusive resource", took),
            failures: failed.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
                + stillHeld.map { "\($0): still held" })
    }
}

/// The saves that run beside a life cycle which ends under pressure. Clean-up starts after these saves (C22).
final class EndingSaves: Sendable {
    /// A struct: in a generic type such as `Mutex`, each access wraps a bare closure once more.
    private struct Saves { var wait: (@Sendable (Duration) async -> Void)? }
    private let saves = Mutex(Saves())

    func begin(_ wait: @escaping @Sendable (_ limit: Duration) async -> Void) { saves.withLock { $0.wait = wait } }

    /// Returns a stage that waits until saving is done, within the remaining time.
    var stage: LifecycleEngine.Stage {
        { [self] context in
            await saves.withLock { $0.wait }?(context.timeRemaining)
            return FanOut.Outcome()
        }
    }
}
