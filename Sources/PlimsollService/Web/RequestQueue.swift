import Plimsoll
import Synchronization

/// A queue of requests that wait a short time for room, ordered by priority and then by arrival.
///
/// While the queue is empty, the check for the next request is one atomic load.
final class RequestQueue: Sendable {
    private struct Waiter {
        let number: UInt64
        let priority: RequestPriority
        let reserve: @Sendable () -> Bool
        let resume: CheckedContinuation<Bool, Never>
    }

    private struct State {
        var next: UInt64 = 0
        /// Waiters, in the order of admission.
        var waiters: [Waiter] = []
        /// Waiters that are not yet in the queue, by number. True for a waiter that has given up meanwhile.
        var arriving: [UInt64: Bool] = [:]
    }

    private let state = Mutex(State())
    private let waiting = Atomic<Int>(0)
    private let capacity: Int
    private let rest: @Sendable (Duration) async -> Void

    init(capacity: Int, rest: @escaping @Sendable (Duration) async -> Void) {
        (self.capacity, self.rest) = (capacity, rest)
    }

    /// Number of waiting requests.
    var count: Int { waiting.load(ordering: .sequentiallyConsistent) }

    /// Number of waiting requests that have a place in the queue.
    var queued: Int { state.withLock { $0.waiters.count } }

    /// Waits until `reserve` has found room. Returns false after `limit`, if the task is cancelled, or if too many
    /// requests wait.
    func wait(_ priority: RequestPriority, atMost limit: Duration, _ reserve: @escaping @Sendable () -> Bool) async
        -> Bool
    {
        guard let number = enter() else { return false }
        let alarm = Task { [self, rest] in
            await rest(limit)
            giveUp(number)
        }
        defer { alarm.cancel() }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isGone = state.withLock { state in
                    if state.arriving.removeValue(forKey: number) == true { return true }
                    let place = state.waiters.firstIndex { $0.priority < priority } ?? state.waiters.endIndex
                    state.waiters.insert(
                        Waiter(number: number, priority: priority, reserve: reserve, resume: continuation), at: place)
                    return false
                }
                // Room may have become free since the caller's attempt.
                if isGone { leave(continuation, isAdmitted: false) } else { admitAll() }
            }
        } onCancel: {
            giveUp(number)
        }
    }

    /// Admits the next request, if there is room.
    func admitNext() { admit(most: 1) }
    /// Admits all requests for which there is room.
    func admitAll() { admit(most: .max) }

    private func admit(most: Int) {
        guard waiting.load(ordering: .sequentiallyConsistent) > 0 else { return }
        var left = most
        while left > 0, let continuation = takeNext() {
            left -= 1
            leave(continuation, isAdmitted: true)
        }
    }

    /// Dequeues the first request for which there is room. `reserve` only counts and calls no other code, so a call
    /// under the lock is safe.
    private func takeNext() -> CheckedContinuation<Bool, Never>? {
        state.withLock { state in
            var refused: RequestPriority?
            // Room that becomes free meanwhile is not for a later request of the same priority.
            for place in state.waiters.indices where state.waiters[place].priority != refused {
                if state.waiters[place].reserve() { return state.waiters.remove(at: place).resume }
                refused = state.waiters[place].priority
            }
            return nil
        }
    }

    private func enter() -> UInt64? {
        guard waiting.add(1, ordering: .sequentiallyConsistent).newValue <= capacity else {
            waiting.subtract(1, ordering: .sequentiallyConsistent)
            return nil
        }
        return state.withLock { state in
            state.next += 1
            state.arriving[state.next] = false
            return state.next
        }
    }

    private func giveUp(_ number: UInt64) {
        let continuation: CheckedContinuation<Bool, Never>? = state.withLock { state in
            guard let place = state.waiters.firstIndex(where: { $0.number == number }) else {
                if state.arriving[number] != nil { state.arriving[number] = true }
                return nil
            }
            return state.waiters.remove(at: place).resume
        }
        if let continuation { leave(continuation, isAdmitted: false) }
    }

    private func leave(_ continuation: CheckedContinuation<Bool, Never>, isAdmitted: Bool) {
        waiting.subtract(1, ordering: .sequentiallyConsistent)
        continuation.resume(returning: isAdmitted)
    }
}

/// Measures the duration of shortages, for the `Retry-After` time of refused requests.
final class RecoveryMeter: Sendable {
    private struct State {
        var since: Duration?
        /// Moving average of the duration in seconds, weighted towards recent shortages.
        var usual = 1.0
    }

    private let state = Mutex(State())
    private let elapsed: @Sendable () -> Duration

    /// Longest retry time in seconds.
    static let longest = 60

    init(_ elapsed: @escaping @Sendable () -> Duration) { self.elapsed = elapsed }

    func note(isShort: Bool) {
        let now = elapsed()
        state.withLock { state in
            guard isShort != (state.since != nil) else { return }
            if let since = state.since {
                let lasted = (now - since) / .seconds(1)
                state.usual += (min(Double(Self.longest), max(0, lasted)) - state.usual) / 4
                state.since = nil
            } else {
                state.since = now
            }
        }
    }

    /// Range of retry times in seconds: two to four times the usual duration of a shortage, including the current
    /// one. The range is wide enough that requests return at a lower rate than they were refused.
    var range: ClosedRange<Int> {
        let now = elapsed()
        let usual = state.withLock { state in max(state.usual, state.since.map { (now - $0) / .seconds(1) } ?? 0) }
        let least = min(Self.longest / 2, max(1, Int((usual * 2).rounded())))
        return least...min(Self.longest, least * 2)
    }
}
