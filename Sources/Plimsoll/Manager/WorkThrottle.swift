import Synchronization

/// Passes the level to the members of the quiesce set, on the delivery worker: the members are application code.
final class WorkThrottle: Sendable {
    private struct State: Equatable {
        var level = PressureLevel.normal
        var isQuiescing = false
    }

    private let posted = Mutex(State())
    private let applied = Mutex(State())
    private let pausables: QuiesceSet

    init(_ pausables: QuiesceSet) { self.pausables = pausables }

    /// Sets the level for the members. Returns true if the delivery worker must apply a change. Allocates nothing.
    func post(_ level: PressureLevel, isQuiescing: Bool) -> Bool {
        let state = State(level: level, isQuiescing: isQuiescing)
        return posted.withLock { posted in
            defer { posted = state }
            return posted != state
        }
    }

    /// Runs on the delivery worker. Returns false if the thread was replaced meanwhile.
    func apply(_ turn: Worker.Turn, time: Timekeeper) -> Bool {
        let state = posted.withLock { $0 }
        let isNews = applied.withLock { applied in
            defer { applied = state }
            return applied != state
        }
        return !isNews
            || turn.call("quiesce", at: time.elapsed()) {
                pausables.setPressure(state.level, isQuiescing: state.isQuiescing)
            }
    }
}
