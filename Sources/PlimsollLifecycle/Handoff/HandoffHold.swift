import Plimsoll
import Synchronization

/// A claim on work while the work runs on this replica.
final class HandoffHold: Sendable {
    private struct State {
        var reason: ExpirationReason?
        var isLost = false
        var isOver = false
        var cancel: (@Sendable () -> Void)?
        /// The pause before the next renewal.
        var pause: Pause?
        /// Local end of the lease, by the machine's time.
        var deadline: Duration
    }

    private let taker: HandoffTaker
    private let work: HandedOffTask
    private let checkpoint: HandoffCheckpoint
    private let state: Mutex<State>
    private let lease: Duration

    init(taker: HandoffTaker, work: HandedOffTask, checkpoint: HandoffCheckpoint, since: Duration) {
        (self.taker, self.work, self.checkpoint) = (taker, work, checkpoint)
        lease = taker.policy.lease
        state = Mutex(State(deadline: since + lease * 0.9))
    }

    // MARK: The work

    func carryOut() async {
        do {
            try await taker.manager.parts.tasks.withTask(
                work.name, #fileID, #line,
                { [self] task in
                    do {
                        try await cancellable { try await self.taker.body(task, self.checkpoint) }
                        await end("completed") { store throws(TaskHandoffError) in
                            try await store.complete(self.work)
                        }
                    } catch {
                        await stopped(error)
                    }
                },
                onExpiration: { [self] _, reason in state.withLock { $0.reason = reason } })
        } catch {
            // The work may not begin on this replica at the moment.
            await release(checkpoint: nil, .operator)
        }
        over()
    }

    /// Runs `body` in a task that is cancelled with the current task, or when the claim is lost.
    private func cancellable(_ body: @escaping @Sendable () async throws -> Void) async throws {
        let task = Task { @concurrent in try await body() }
        let isLost = state.withLock { state in
            state.cancel = { task.cancel() }
            return state.isLost
        }
        if isLost { task.cancel() }
        try await withTaskCancellationHandler {
            try await task.value
        } onCancel: {
            task.cancel()
        }
    }

    private func stopped(_ error: any Error) async {
        let newest = checkpoint.last == work.checkpoint ? nil : checkpoint.last
        // The handler that notes the reason runs in parallel with the work. A cancelled task had to stop,
        // regardless of the thrown error.
        if Task.isCancelled || state.withLock({ $0.reason != nil }) {
            let reason = state.withLock { $0.reason } ?? .shutdown
            await release(checkpoint: newest, reason)
        } else {
            let text = String("\(error)".prefix(500))
            let factor = Double(1 << min(16, max(0, work.attempts - 1)))
            let after = min(.seconds(3600), taker.policy.retry * factor)
            await end("failed", text) { store throws(TaskHandoffError) in
                try await store.release(work, checkpoint: newest, failure: (text, after))
            }
        }
    }

    /// Gives the work back, because this replica has to stop.
    private func release(checkpoint: [UInt8]?, _ reason: ExpirationReason) async {
        var work = work
        work.reason = reason
        await end("released") { [work] store throws(TaskHandoffError) in
            try await store.release(work, checkpoint: checkpoint, failure: nil)
        }
    }

    /// Reports the end to the store, and retries until the lease ends. If all attempts fail, the work is done once
    /// more.
    private func end(
        _ event: String, _ problem: String? = nil, _ word: (any TaskHandoff) async throws(TaskHandoffError) -> Void
    ) async {
        var pause = Duration.milliseconds(50)
        while !state.withLock({ $0.isLost }) {
            do throws(TaskHandoffError) {
                try await word(taker.store)
                return taker.onEvent(event, work, problem)
            } catch {
                if error.kind == .lostClaim { return lose() }
                taker.onEvent("store failed", work, error.description)
                guard error.kind != .refused else { return }
                _ = await Pause().wait(pause, on: taker.manager.parts.alarms, endsOnCancellation: false)
                pause = min(.seconds(1), pause * 2)
            }
        }
    }

    private func over() {
        state.withLock { state in
            state.isOver = true
            return state.pause
        }?.end(false)
    }

    // MARK: The claim

    /// Renews the claim until the work is over or the claim lost.
    func keep() async {
        let alarms = taker.manager.parts.alarms
        while let next = pause() {
            guard await next.pause.wait(next.time, on: alarms, endsOnCancellation: false) else { return }
            let asked = taker.now
            // A store that takes longer than the lease must not keep this replica at work that another replica owns
            // by then.
            let lapse = alarms.set(.timer, after: max(.zero, state.withLock { $0.deadline } - asked)) { [weak self] in
                self?.lapse()
            }
            await renew(asked)
            lapse.cancel()
        }
    }

    private func renew(_ asked: Duration) async {
        let newest = checkpoint.takeNew()
        do throws(TaskHandoffError) {
            do throws(TaskHandoffError) {
                try await taker.store.renew(work, for: lease, checkpoint: newest)
            } catch {
                guard error.kind == .refused, newest != nil else { throw error }
                // The store may refuse the checkpoint only; the claim still holds.
                taker.onEvent("store failed", work, error.description)
                try await taker.store.renew(work, for: lease, checkpoint: nil)
            }
            state.withLock { $0.deadline = asked + lease * 0.9 }
        } catch {
            if newest != nil { checkpoint.putBack() }
            if state.withLock({ $0.isOver }) { return }
            if error.kind == .lostClaim { return lose() }
            taker.onEvent("store failed", work, error.description)
            lapse()
        }
    }

    private func lapse() {
        let now = taker.now
        if state.withLock({ !$0.isOver && now >= $0.deadline }) { lose() }
    }

    private func pause() -> (pause: Pause, time: Duration)? {
        let now = taker.now
        return state.withLock { state in
            guard !state.isOver, !state.isLost else { return nil }
            let pause = Pause()
            state.pause = pause
            // Sooner if the last renewal failed.
            return (pause, max(.milliseconds(1), min(lease * (1.0 / 3), (state.deadline - now) * 0.5)))
        }
    }

    private func lose() {
        let (cancel, isFirst) = state.withLock { state in
            defer { state.isLost = true }
            return (state.cancel, !state.isLost)
        }
        guard isFirst else { return }
        cancel?()
        taker.onEvent("lost", work, "the lease ended without an answer, or another replica has the work")
    }
}
