import Synchronization

/// A wait of one task that another ends, or that ends by itself. Once.
final class Pause: Sendable {
    private let state = Mutex<(continuation: CheckedContinuation<Bool, Never>?, outcome: Bool?)>((nil, nil))

    /// Ends the wait, now or as soon as it begins: `outcome` is what it returns.
    func end(_ outcome: Bool) {
        let continuation = state.withLock { state in
            guard state.outcome == nil else { return nil as CheckedContinuation<Bool, Never>? }
            state.outcome = outcome
            defer { state.continuation = nil }
            return state.continuation
        }
        continuation?.resume(returning: outcome)
    }

    /// Waits until somebody ends it, cancelled or not.
    func wait() async -> Bool {
        await withCheckedContinuation { continuation in
            let early = state.withLock { state in
                if state.outcome == nil { state.continuation = continuation }
                return state.outcome
            }
            if let early { continuation.resume(returning: early) }
        }
    }

    /// Waits for `delay`: true once that has passed, false if somebody ends it or the task is cancelled.
    ///
    /// - Parameter heedsCancellation: whether cancelling the task ends it.
    func wait(_ delay: Duration, on alarms: Alarms, heedsCancellation: Bool = true) async -> Bool {
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
