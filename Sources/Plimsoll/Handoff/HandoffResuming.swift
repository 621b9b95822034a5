import Synchronization

/// How a replica goes on with what others left.
public struct TaskHandoffPolicy: Sendable, Hashable {
    /// How long taken work is held without a word from this replica. It is renewed three times in that time, and stopped here when nine tenths of it have passed
    /// without an answer: so long does it take until another goes on after this one died.
    public var lease = Duration.seconds(30)
    /// How long to wait when there was nothing to take.
    public var poll = Duration.seconds(1)
    /// How long at most after the store has failed; the first time a tenth of a second, then twice as long each time.
    public var longestPause = Duration.seconds(30)
    /// Nothing is taken at a higher level of pressure.
    public var whenAtMost = PressureLevel.normal
    /// How long work that failed is left alone: that long after the first attempt, twice as long after each further one, at most an hour.
    public var retry = Duration.seconds(5)

    /// The defaults.
    public init() {}
}

/// What happened to work of others, for logs and metrics.
public enum TaskHandoffEvent: Sendable, Hashable {
    /// It was taken.
    case taken(HandedOffTask)
    /// It is done.
    case completed(TaskHandoffClaim)
    /// This replica had to stop too, or may not begin it; it was given back.
    case released(TaskHandoffClaim)
    /// It failed, for that reason; it is tried again later, or set aside.
    case failed(TaskHandoffClaim, String)
    /// It is not ours any more: the lease ended without an answer of the store, or somebody else has it. It was cancelled.
    case lost(TaskHandoffClaim)
    /// The store did not do what it was asked.
    case storeFailed(TaskHandoffError)
}

extension ResourceManager {
    /// Goes on with work that other replicas handed over, one piece after another, until the task is cancelled. For more at once call it several times.
    ///
    /// Each piece runs as a background task of its name, and expires like any: then it is given back with what it saved last. A store that fails is asked again later;
    /// nothing of that ends the call.
    ///
    /// ```swift
    /// await manager.resumeHandedOff(from: store, names: ["export"]) { task, checkpoint in
    ///     try await export(from: checkpoint.start) { checkpoint.save($0) }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - store: where work is taken from.
    ///   - policy: how often, how much at once, and how long it is held.
    ///   - names: which tasks this replica can go on with.
    ///   - owner: what this replica is called in the store; another than any other's.
    ///   - onEvent: called in between; it must not keep.
    ///   - body: the work. Once it has returned the work is done; if it throws, it is tried again later, here or elsewhere. Cancelled when it must stop or when the claim
    ///     is lost; it should return soon then, since it may run elsewhere.
    public func resumeHandedOff(
        from store: any TaskHandoff, names: [String], as owner: String = HandoffOwner.own, policy: TaskHandoffPolicy = TaskHandoffPolicy(),
        onEvent: @escaping @Sendable (TaskHandoffEvent) -> Void = { _ in },
        _ body: @escaping @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Void
    ) async {
        let taker = HandoffTaker(manager: self, store: store, names: names, owner: owner, policy: policy, onEvent: onEvent, body: body)
        await taker.run()
    }
}

/// One loop that takes work and does it.
struct HandoffTaker: Sendable {
    let manager: ResourceManager
    let store: any TaskHandoff
    let names: [String]
    let owner: String
    let policy: TaskHandoffPolicy
    let onEvent: @Sendable (TaskHandoffEvent) -> Void
    let body: @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Void

    private static let firstPause = Duration.milliseconds(100)

    func run() async {
        var pause = Self.firstPause
        while !Task.isCancelled {
            guard manager.level <= policy.whenAtMost, manager.parts.tasks.mayBegin else {
                await wait(policy.poll)
                continue
            }
            // Before it is asked: so the lease ends here before it ends there.
            let since = now
            do throws(TaskHandoffError) {
                let work = try await store.take(names, by: owner, for: policy.lease)
                pause = Self.firstPause
                if let work { await carryOut(work, since: since) } else { await wait(policy.poll) }
            } catch {
                onEvent(.storeFailed(error))
                await wait(pause)
                pause = min(policy.longestPause, pause * 2)
            }
        }
    }

    /// The machine's time, sleep included: leases end while it sleeps.
    var now: Duration { manager.parts.alarms.time.elapsed() + manager.parts.alarms.time.asleep() }

    /// Up to a fifth less, so that many replicas don't ask at one instant.
    private func wait(_ time: Duration) async { _ = await Pause().wait(time * Double.random(in: 0.8...1), on: manager.parts.alarms) }

    private func carryOut(_ work: HandedOffTask, since: Duration) async {
        onEvent(.taken(work))
        let checkpoint = HandoffCheckpoint(work.claim.name, start: work.checkpoint, attempt: work.attempt, fence: work.claim.fence)
        let hold = HandoffHold(taker: self, work: work, checkpoint: checkpoint, since: since)
        // The one that renews goes on until the work has ended, also while that is being cancelled: it may take its time.
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await hold.work(store: store) }
            group.addTask { await hold.keep() }
            await group.waitForAll()
        }
    }
}
