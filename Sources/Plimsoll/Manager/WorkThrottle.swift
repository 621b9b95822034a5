import Synchronization

/// Passes a level on to what admits work, on the delivery worker: members of the quiesce set are the application's.
final class WorkThrottle: Sendable {
    private struct State: Equatable {
        var level = PressureLevel.normal
        var isQuiescing = false
    }

    private let posted = Mutex(State())
    private let applied = Mutex(State())
    private let pausables: QuiesceSet

    init(_ pausables: QuiesceSet) { self.pausables = pausables }

    /// Whether that is news for the delivery worker. Allocates nothing.
    func post(_ level: PressureLevel, isQuiescing: Bool) -> Bool {
        let state = State(level: level, isQuiescing: isQuiescing)
        return posted.withLock { posted in
            defer { posted = state }
            return posted != state
        }
    }

    /// Runs on the delivery worker; false if its thread was replaced meanwhile.
    func apply(_ turn: Worker.Turn, time: Timekeeper) -> Bool {
        let state = posted.withLock { $0 }
        let isNews = applied.withLock { applied in
            defer { applied = state }
            return applied != state
        }
        return !isNews || turn.call("quiesce", at: time.elapsed()) { pausables.setPressure(state.level, isQuiescing: state.isQuiescing) }
    }
}
