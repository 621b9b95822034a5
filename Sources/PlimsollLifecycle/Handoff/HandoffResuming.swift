public import Plimsoll
import Synchronization

extension ResourceManager {
    /// Resumes work that other replicas handed over, one work item at a time, until the task is cancelled. Call several
    /// times for more concurrency.
    ///
    /// Each work item runs as a background task of its name, and can expire. An expired work item is given back with the
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
    ///   - names: tasks that this replica can resume.
    ///   - owner: name of this replica in the store; must be unique. By default 128 random bits, constant while the
    ///     process runs.
    ///   - policy: poll interval, lease and retry delays; by default those of the store.
    ///   - onEvent: receives events in between, for logs and metrics; must not block. `problem` is the reason of the
    ///     last three kinds of event.
    ///     - `taken`: work was taken.
    ///     - `completed`: the work is done.
    ///     - `released`: the work was given back; this replica had to stop too, or may not begin the work.
    ///     - `failed`: the work failed; the store retries the work later, or sets it aside.
    ///     - `lost`: the claim is lost, and the work was cancelled. The lease ended without an answer, or another
    ///       replica has the work.
    ///     - `store failed`: a call to the store failed.
    ///   - body: the work. A return means that the work is done. If `body` throws, the work is retried later, on
    ///     this or another replica. Cancelled when the work must stop or the claim is lost. Return soon after
    ///     cancellation, because the work may run elsewhere.
    public func resumeHandedOff(
        from store: any TaskHandoff, names: [String], as owner: String? = nil, policy: TaskHandoffPolicy? = nil,
        onEvent: @escaping @Sendable (_ event: String, _ work: HandedOffTask?, _ problem: String?) -> Void = {
            _, _, _ in
        },
        _ body: @escaping @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Void
    ) async {
        let taker = HandoffTaker(
            manager: self, store: store, names: names, owner: owner ?? HandedOffTask.ownName,
            policy: policy ?? store.policy, onEvent: onEvent, body: body)
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
    let onEvent: @Sendable (_ event: String, _ work: HandedOffTask?, _ problem: String?) -> Void
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
                onEvent("store failed", nil, error.description)
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
        onEvent("taken", work, nil)
        let checkpoint = HandoffCheckpoint(
            work.name, id: work.id, start: work.checkpoint, attempt: work.attempts, fence: work.fence)
        let hold = HandoffHold(taker: self, work: work, checkpoint: checkpoint, since: since)
        // Renewal continues until the work has ended, even during cancellation, because the work may take its time.
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await hold.carryOut() }
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
    /// - Returns: the result; `nil` if the work had to stop and another replica continues. An error that `body` throws
    ///   after the request to stop counts as stopping.
    /// - Throws: errors of `body` before that request, or `BackgroundTaskRefusal` if the work may not begin.
    ///   `TaskHandoffError` if the work had to stop and the store accepted nothing. The work was then handed over
    ///   through `BackgroundTask.handOver`, for the sink or the next start of this service, as the error says. If the
    ///   error `isUnanswered`, both may have the work.
    @discardableResult
    public func withBackgroundTask<Result: Sendable>(
        _ name: String, handoff store: any TaskHandoff, from start: [UInt8]? = nil, as owner: String? = nil,
        file: StaticString = #fileID,
        line: UInt = #line, _ body: @escaping @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Result
    ) async throws -> Result? {
        let checkpoint = HandoffCheckpoint(name, start: start),
            offering = HandoffOffering(checkpoint, to: store, as: owner ?? HandedOffTask.ownName)
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
            return result
        } catch {
            switch offering.outcome {
            case .handedOff: return nil
            case .kept(let problem): throw problem
            case nil: throw error
            }
        }
    }
}
