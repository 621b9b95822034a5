import Synchronization

/// The expiration of one task whose work may be handed over.
///
/// The work is put into the store at once, held by this process, and given free when the body has stopped: so it is not lost if the process ends in between, and not
/// done by two if it doesn't.
final class HandoffOffering: Sendable {
    enum Outcome {
        case handedOff(String)
        case kept(Handover.Place, TaskHandoffError)
    }

    private struct State {
        /// Whether the body came to its end; `nil` while it runs.
        var isFinished: Bool?
        var outcome: Outcome?
    }

    private let state = Mutex(State())
    private let store: any TaskHandoff
    private let checkpoint: HandoffCheckpoint
    private let owner: String
    /// True if it ends because the body has.
    private let bodyEnds = Pause()

    init(_ checkpoint: HandoffCheckpoint, to store: any TaskHandoff, as owner: String) {
        (self.checkpoint, self.store, self.owner) = (checkpoint, store, owner)
    }

    var outcome: Outcome? { state.withLock { $0.outcome } }

    /// The body has returned, or thrown.
    func bodyEnded(isFinished: Bool) {
        state.withLock { $0.isFinished = isFinished }
        bodyEnds.end(true)
    }

    /// The task's expiration handler, cancelled at the end of its grace.
    func handOff(_ task: BackgroundTask, _ reason: ExpirationReason) async {
        if state.withLock({ $0.isFinished }) ?? false { return }
        let bytes = checkpoint.last ?? []
        let offer = TaskHandoffOffer(name: checkpoint.name, checkpoint: bytes, reason: reason, attempts: checkpoint.attempt - 1)
        // For as long as the body may still run, and a little more for the call that gives it free.
        let lease = (task.timeRemaining ?? .seconds(5)) + .seconds(2)
        do throws(TaskHandoffError) {
            let claim = try await store.offer(offer, heldBy: owner, for: lease)
            state.withLock { $0.outcome = .handedOff(claim.id) }
            let hasEnded = await withTaskCancellationHandler {
                await bodyEnds.wait()
            } onCancel: {
                bodyEnds.end(false)
            }
            // Otherwise nobody knows how long it goes on: the lease gives it free.
            guard hasEnded else { return }
            if state.withLock({ $0.isFinished }) ?? false {
                try await store.complete(claim)
                state.withLock { $0.outcome = nil }
            } else {
                let newest = checkpoint.last
                try await store.release(claim, checkpoint: newest == bytes ? nil : newest, .expired(reason))
            }
        } catch {
            // Once it is in the store it is taken from there, at the end of the lease at the latest.
            guard outcome == nil else { return }
            let place = task.handOver(bytes)
            state.withLock { $0.outcome = .kept(place, error) }
        }
    }
}

extension ResourceManager {
    /// Runs `body` as background work that another replica can go on with: when it must stop, what it saved last is put into `store`.
    ///
    /// ```swift
    /// try await manager.withBackgroundTask("export", handoff: store) { task, checkpoint in
    ///     try await export(from: checkpoint.start) { checkpoint.save($0) }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - name: what the work is called; replicas resume it by that name.
    ///   - store: where it goes when it must stop. Within the grace that expiring tasks have; its time limits should be shorter than that.
    ///   - start: where to begin.
    ///   - owner: what this replica is called in the store.
    ///   - file: where it is begun, for reports.
    ///   - line: the line there.
    ///   - body: the work. When it expires, the task it runs in is cancelled; until it has returned nobody else is given the work, nor before the grace ends.
    /// - Returns: what came of it. Whatever `body` throws once it was asked to stop is taken for stopping.
    /// - Throws: what `body` throws before that, or `BackgroundTaskRefusal` if it may not begin.
    public func withBackgroundTask<Result: Sendable>(
        _ name: String, handoff store: any TaskHandoff, from start: [UInt8]? = nil, as owner: String = HandoffOwner.own, file: StaticString = #fileID,
        line: UInt = #line, _ body: @escaping @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Result
    ) async throws -> HandoffOutcome<Result> {
        let checkpoint = HandoffCheckpoint(name, start: start), offering = HandoffOffering(checkpoint, to: store, as: owner)
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

/// What replicas call themselves in a hand-over store.
public enum HandoffOwner {
    /// This process: 128 random bits, the same as long as it runs.
    public static let own = String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt64.random(in: .min ... .max), radix: 36)
}
