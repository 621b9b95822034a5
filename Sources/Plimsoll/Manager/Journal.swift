import Synchronization

/// The last reports, in a ring that is allocated once, and those who want each as it comes.
final class Journal: Sendable {
    private struct State {
        var ring: ContiguousArray<ActionReport?>
        var written = 0
        var listeners: [@Sendable (ActionReport) -> Void] = []
    }

    private let state: Mutex<State>

    init(capacity: Int = 256) { state = Mutex(State(ring: ContiguousArray(repeating: nil, count: capacity))) }

    /// Called on the threads that act, after they acted.
    func add(_ report: ActionReport) {
        let listeners = state.withLock { state in
            state.ring[state.written % state.ring.count] = report
            state.written += 1
            return state.listeners
        }
        for listener in listeners { listener(report) }
    }

    func listen(_ listener: @escaping @Sendable (ActionReport) -> Void) { state.withLock { $0.listeners.append(listener) } }

    /// Oldest first.
    var reports: [ActionReport] {
        state.withLock { state in
            let count = state.ring.count
            return (max(0, state.written - count)..<state.written).compactMap { state.ring[$0 % count] }
        }
    }
}
