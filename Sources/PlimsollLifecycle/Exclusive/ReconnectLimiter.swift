import Plimsoll
import Synchronization

/// Limits and spreads reconnections after a gap. Each waits for a random part of the spread time, and a bounded
/// number run at once (T29).
final class ReconnectLimiter: Sendable {
    private struct State {
        var random: SplitMix64
        var free: Int
        var line: [(number: UInt64, continuation: CheckedContinuation<Bool, Never>)] = []
        var next: UInt64 = 0
    }

    private let state: Mutex<State>
    private let spread: Duration
    private let context: ExclusiveContext
    private let alarms: Alarms

    init(most: Int, spread: Duration, seed: UInt64, context: ExclusiveContext, alarms: Alarms) {
        precondition(most > 0, "ReconnectLimiter: most is \(most), allowed is 1 or more")
        precondition(spread >= .zero, "ReconnectLimiter: spread is \(spread), allowed is 0 or more")
        self.spread = spread
        self.context = context
        self.alarms = alarms
        state = Mutex(State(random: SplitMix64(state: seed), free: most))
    }

    /// Returns the delay before the next reconnection: random between 0 and `spread` for that long after a gap,
    /// otherwise 0.
    func reconnectDelay() -> Duration {
        guard let suspectedAt = context.suspectedAt, context.boottime < suspectedAt + spread else { return .zero }
        let part = state.withLock { Double.random(in: 0..<1, using: &$0.random) }
        return spread * part
    }

    /// Runs `connect` after a delay, with a bounded number of others at once.
    ///
    /// - Throws: The error of `connect`; `CancellationError` if the task is cancelled while waiting.
    func run<Result>(_ connect: () async throws -> Result) async throws -> Result {
        let delay = reconnectDelay()
        if delay > .zero { try await pause(delay) }
        guard await enter() else { throw CancellationError() }
        defer { leave() }
        return try await connect()
    }

    // MARK: Waiting

    private func pause(_ delay: Duration) async throws {
        let pause = Pause()
        // No timer: on the way back from a gap timers are held until the handlers, which may wait here, have returned.
        let alarm = alarms.set(.deadline, after: delay) { pause.end(true) }
        defer { alarm.cancel() }
        let isOver = await withTaskCancellationHandler {
            await pause.wait()
        } onCancel: {
            pause.end(false)
        }
        if !isOver { throw CancellationError() }
    }

    /// Waits for a slot. Returns false if the task was cancelled.
    private func enter() async -> Bool {
        let number: UInt64? = state.withLock { state in
            if state.free > 0 {
                state.free -= 1
                return nil
            }
            state.next += 1
            return state.next
        }
        guard let number else { return true }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let early: Bool? = state.withLock { state in
                    if Task.isCancelled { return false }
                    if state.free > 0 {
                        state.free -= 1
                        return true
                    }
                    state.line.append((number, continuation))
                    return nil
                }
                if let early { continuation.resume(returning: early) }
            }
        } onCancel: {
            let continuation = state.withLock { state in
                state.line.firstIndex { $0.number == number }.map { state.line.remove(at: $0).continuation }
            }
            continuation?.resume(returning: false)
        }
    }

    private func leave() {
        let next: CheckedContinuation<Bool, Never>? = state.withLock { state in
            if state.line.isEmpty {
                state.free += 1
                return nil
            }
            return state.line.removeFirst().continuation
        }
        next?.resume(returning: true)
    }
}
