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
            return exchange(&state.continuation, nil)
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
    /// - Parameter endsOnCancellation: true if cancelling the task ends the wait.
    package func wait(_ delay: Duration, on alarms: Alarms, endsOnCancellation: Bool = true) async -> Bool {
        let alarm = alarms.set(.timer, after: delay) { self.end(true) }
        defer { alarm.cancel() }
        guard endsOnCancellation else { return await wait() }
        return await withTaskCancellationHandler {
            await wait()
        } onCancel: {
            end(false)
        }
    }
}

/// Registry of threads that close a gate and wait for the call inside. Detects waits that would deadlock.
///
/// A callback that cancels another registration waits for that registration's call. If that call in turn cancels
/// the first registration, both would wait for ever. The second of the two finds the cycle here and does not wait.
enum CloseWaits {
    /// A gate with a closer that waits.
    struct Gate: Sendable {
        /// Identity of the gate.
        let id: ObjectIdentifier
        /// The thread inside the gate. 0 if there is none, and for a gate of tasks.
        let caller: @Sendable () -> UInt

        init(_ gate: CallGate) { (id, caller) = (ObjectIdentifier(gate), { [unowned gate] in gate.caller }) }
        init(_ gate: AsyncCallGate) { (id, caller) = (ObjectIdentifier(gate), { 0 }) }
    }

    private struct Wait {
        /// The waiting thread, and the gates that the current task is inside of.
        let thread: UInt
        let inside: [ObjectIdentifier]
        let gate: Gate
    }

    private static let waits = Mutex<[Wait]>([])

    /// Identities of the gates with a closer that waits. For tests.
    static var gates: [ObjectIdentifier] { waits.withLock { $0.map(\.gate.id) } }

    /// Runs `body`, which waits until the calls inside `gate` have ended. Skips `body` if one of those calls waits
    /// for the caller's own call.
    static func wait(for gate: Gate, _ body: () -> Void) {
        let mine = Wait(thread: Thread.current, inside: AsyncCallGate.around, gate: gate)
        let goes = waits.withLock { waits in
            guard !leadsBack(from: gate, to: mine, waits) else { return false }
            waits.append(mine)
            return true
        }
        guard goes else { return }
        body()
        waits.withLock { waits in
            // A thread waits for one gate at a time.
            if let index = waits.firstIndex(where: { $0.thread == mine.thread }) { waits.remove(at: index) }
        }
    }

    /// Returns true if a call inside `gate` waits, directly or through other gates, for the call that is about to
    /// wait.
    private static func leadsBack(from gate: Gate, to mine: Wait, _ waits: [Wait]) -> Bool {
        var seen: Set<ObjectIdentifier> = [], next = [gate]
        while let gate = next.popLast() {
            let caller = gate.caller()
            if caller == mine.thread || mine.inside.contains(gate.id) { return true }
            guard seen.insert(gate.id).inserted else { continue }
            next += waits.filter { caller != 0 && $0.thread == caller || $0.inside.contains(gate.id) }.map(\.gate)
        }
        return false
    }
}
