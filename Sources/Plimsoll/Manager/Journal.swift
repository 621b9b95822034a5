import Synchronization

/// A preallocated ring buffer of the most recent reports, and the listeners for new reports.
///
/// Adding a report allocates nothing and calls no listener. The delivery worker calls the listeners, as for
/// observers. A listener that blocks is named in a report and skipped until the call returns.
final class Journal: Sendable {
    private final class Listener: Sendable {
        let gate = CallGate()
        let body: @Sendable (ActionReport) -> Void

        init(_ body: @escaping @Sendable (ActionReport) -> Void) { self.body = body }
    }

    private struct State {
        var ring: ContiguousArray<ActionReport?>
        var written = 0
        var listeners: [Listener] = []
        /// Index of the next report and of the next listener to call.
        var served = (report: 0, listener: 0)
        /// Number of reports that were overwritten before all listeners received them, or that came while a listener
        /// was inside a call.
        var overwritten = 0
    }

    private let state: Mutex<State>
    let tally = ActionTally()

    init(capacity: Int = 256) { state = Mutex(State(ring: ContiguousArray(repeating: nil, count: capacity))) }

    /// Adds a report. Returns true if there are listeners: the caller must then request the delivery worker.
    func add(_ report: ActionReport) -> Bool {
        tally.add(report)
        return state.withLock { state in
            state.ring[state.written % state.ring.count] = report
            state.written += 1
            return !state.listeners.isEmpty
        }
    }

    func listen(_ body: @escaping @Sendable (ActionReport) -> Void) {
        let listener = Listener(body)
        state.withLock { state in
            if state.listeners.isEmpty { state.served = (state.written, 0) }
            state.listeners.append(listener)
        }
    }

    /// Calls the listeners until no report is left. Runs on the delivery worker. Reports overwritten meanwhile are
    /// lost to listeners.
    func deliver(_ turn: Worker.Turn, time: Timekeeper) {
        while let (report, listener) = next() {
            var isReceived = false
            let inCharge = turn.call("onReport", at: time.elapsed()) {
                // A listener that is still inside a call of a replaced thread receives nothing.
                isReceived = listener.gate.call { listener.body(report) }
            }
            guard inCharge else { return }
            if !isReceived { state.withLock { $0.overwritten += 1 } }
        }
    }

    private func next() -> (ActionReport, Listener)? {
        state.withLock { state in
            if state.served.report < state.written, state.served.listener >= state.listeners.count {
                state.served = (state.served.report + 1, 0)
            }
            let oldest = state.written - state.ring.count
            if state.served.report < oldest {
                state.overwritten += oldest - state.served.report
                state.served = (oldest, 0)
            }
            guard state.served.report < state.written, !state.listeners.isEmpty,
                let report = state.ring[state.served.report % state.ring.count]
            else { return nil }
            state.served.listener += 1
            return (report, state.listeners[state.served.listener - 1])
        }
    }

    /// Calls `body` under the lock with each report that was added after the first `count` reports, as far as the ring
    /// still has it, and sets `count` to the number of all reports. Allocates nothing.
    func each(after count: inout Int, _ body: (ActionReport) -> Void) {
        state.withLock { state in
            var index = max(count, state.written - state.ring.count)
            while index < state.written {
                if let report = state.ring[index % state.ring.count] { body(report) }
                index += 1
            }
            count = state.written
        }
    }

    /// Number of reports that listeners missed.
    var overwritten: Int { state.withLock { $0.overwritten } }

    /// The reports, oldest first.
    var reports: [ActionReport] {
        state.withLock { state in
            let count = state.ring.count
            return (max(0, state.written - count)..<state.written).compactMap { state.ring[$0 % count] }
        }
    }
}
