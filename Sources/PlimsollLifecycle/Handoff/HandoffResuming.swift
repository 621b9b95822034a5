public import Plimsoll
import Synchronization

/// The policy by which a replica resumes work of other replicas.
public struct TaskHandoffPolicy: Sendable, Hashable {
    /// Time that the store holds claimed work without a renewal. A replica renews three times in that time, and
    /// stops the work after nine tenths of it without an answer. If a replica dies, another one continues after
    /// this time.
    public var lease = Duration.seconds(30)
    /// Time to wait if no work was available.
    public var poll = Duration.seconds(1)
    /// Longest back-off after a failure of the store. The back-off starts at a tenth of a second and doubles each
    /// time.
    public var longestPause = Duration.seconds(30)
    /// Highest level of pressure at which work is taken.
    public var whenAtMost = PressureLevel.normal
    /// Delay before failed work is retried: this delay after the first attempt, twice as long after each further
    /// one, at most an hour.
    public var retry = Duration.seconds(5)

    /// Creates the default policy.
    public init() {}
}

/// An event in the handling of resumed work, for logs and metrics.
public enum TaskHandoffEvent: Sendable, Hashable {
    /// Work was taken.
    case taken(HandedOffTask)
    /// The work is done.
    case completed(TaskHandoffClaim)
    /// The work was given back: this replica had to stop too, or may not begin the work.
    case released(TaskHandoffClaim)
    /// The work failed, for the given reason. The store retries the work later, or sets it aside.
    case failed(TaskHandoffClaim, String)
    /// The claim is lost, and the work was cancelled: the lease ended without an answer of the store, or another
    /// replica has the work.
    case lost(TaskHandoffClaim)
    /// A call to the store failed.
    case storeFailed(TaskHandoffError)
}

extension ResourceManager {
    /// Resumes work that other replicas handed over, one piece at a time, until the task is cancelled. Call several
    /// times for more concurrency.
    ///
    /// Each piece runs as a background task of its name, and can expire. An expired piece is given back with the
    /// last saved checkpoint. A failing store is retried later; no failure ends the call.
    ///
    /// ```swift
    /// await manager.resumeHandedOff(from: store, names: ["export"]) { task, checkpoint in
    ///     try await export(from: checkpoint.start) { checkpoint.save($0) }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - store: source of the work.
    ///   - policy: poll interval, lease and retry delays.
    ///   - names: tasks that this replica can resume.
    ///   - owner: name of this replica in the store; must be unique.
    ///   - onEvent: receives events in between; must not block.
    ///   - body: the work. A return means that the work is done. If `body` throws, the work is retried later, on
    ///     this or another replica. Cancelled when the work must stop or the claim is lost. Return soon after
    ///     cancellation, because the work may run elsewhere.
    public func resumeHandedOff(
        from store: any TaskHandoff, names: [String], as owner: String = HandoffOwner.own,
        policy: TaskHandoffPolicy = TaskHandoffPolicy(),
        onEvent: @escaping @Sendable (TaskHandoffEvent) -> Void = { _ in },
        _ body: @escaping @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Void
    ) async {
        let taker = HandoffTaker(
            manager: self, store: store, names: names, owner: owner, policy: policy, onEvent: onEvent, body: body)
        await taker.run()
    }
}

/// One loop that takes work and runs it.
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
            // Read before the call to the store, so that the local lease ends before the store's.
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

    /// The machine's time, sleep included: leases go on while the machine sleeps.
    var now: Duration { manager.parts.alarms.time.elapsed() + manager.parts.alarms.time.asleep() }

    /// Waits for `time`, less up to a fifth of it, so that many replicas do not poll at the same instant.
    private func wait(_ time: Duration) async {
        _ = await Pause().wait(time * Double.random(in: 0.8...1), on: manager.parts.alarms)
    }

    private func carryOut(_ work: HandedOffTask, since: Duration) async {
        onEvent(.taken(work))
        let checkpoint = HandoffCheckpoint(
            work.claim.name, start: work.checkpoint, attempt: work.attempt, fence: work.claim.fence)
        let hold = HandoffHold(taker: self, work: work, checkpoint: checkpoint, since: since)
        // Renewal continues until the work has ended, even during cancellation, because the work may take its time.
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await hold.work(store: store) }
            group.addTask { await hold.keep() }
            await group.waitForAll()
        }
    }
}

extension ResourceManager {
    /// Runs `body` as background work that another replica can continue. When the work must stop, the last saved
    /// checkpoint is put into `store`.
    ///
    /// ```swift
    /// try await manager.withBackgroundTask("export", handoff: store) { task, checkpoint in
    ///     try await export(from: checkpoint.start) { checkpoint.save($0) }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - name: name of the work; replicas resume the work by this name.
    ///   - store: destination when the work must stop. Called within the grace of expiring tasks, so the store's
    ///     time limits should be shorter.
    ///   - start: checkpoint to start from.
    ///   - owner: name of this replica in the store.
    ///   - file: file of the call, for reports.
    ///   - line: line of the call.
    ///   - body: the work. Expiration cancels the task that runs `body`. No other replica receives the work before
    ///     `body` has returned or the grace ends.
    /// - Returns: the outcome. An error that `body` throws after the request to stop counts as stopping.
    /// - Throws: errors of `body` before that request, or `BackgroundTaskRefusal` if the work may not begin.
    public func withBackgroundTask<Result: Sendable>(
        _ name: String, handoff store: any TaskHandoff, from start: [UInt8]? = nil, as owner: String = HandoffOwner.own,
        file: StaticString = #fileID,
        line: UInt = #line, _ body: @escaping @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Result
    ) async throws -> HandoffOutcome<Result> {
        let checkpoint = HandoffCheckpoint(name, start: start),
            offering = HandoffOffering(checkpoint, to: store, as: owner)
        do {
            let result = try await parts.tasks.withTask(
                name, file, line,
                { task in
                    do {
                        let result = try await body(task, checkpoint)
                        offering.bodyEnded(isFinished: true)
                        return result
                    } catch {
                        offering.bodyEnded(isFinished: false)
                        throw error
                    }
                }, onExpiration: { task, reason in await offering.handOff(task, reason) })
            return .finished(result)
        } catch {
            switch offering.outcome {
            case .handedOff(let id): return .handedOff(id: id)
            case .kept(let place, let problem): return .kept(place, because: problem)
            case nil: throw error
            }
        }
    }
}
