import Synchronization

/// A one-time wait of a task. Another task, or a timeout, ends the wait.
package final class Pause: Sendable {
    private let state = Mutex<(continuation: CheckedContinuation<Bool, Never>?, outcome: Bool?)>((nil, nil))

    package init() {}

    /// Ends the wait, now or as soon as the wait begins. The wait returns `outcome`.
    package func end(_ outcome: Bool) {
        let continuation = state.withLock { state in
            guard state.outcome == nil else { return nil as CheckedContinuation<Bool, Never>? }
            state.outcome = outcome
            defer { state.continuation = nil }
            return state.continuation
        }
        continuation?.resume(returning: outcome)
    }

    /// Waits until `end` is called. Ignores cancellation.
    package func wait() async -> Bool {
        await withCheckedContinuation { continuation in
            let early = state.withLock { state in
                if state.outcome == nil { state.continuation = continuation }
                return state.outcome
            }
            if let early { continuation.resume(returning: early) }
        }
    }

    /// Waits for `delay`. Returns true once that has passed, false if another task ends the wait or the task is
    /// cancelled.
    ///
    /// - Parameter heedsCancellation: true if cancelling the task ends the wait.
    package func wait(_ delay: Duration, on alarms: Alarms, heedsCancellation: Bool = true) async -> Bool {
        let alarm = alarms.set(.timer, after: delay) { self.end(true) }
        defer { alarm.cancel() }
        guard heedsCancellation else { return await wait() }
        return await withTaskCancellationHandler {
            await wait()
        } onCancel: {
            end(false)
        }
    }
}
