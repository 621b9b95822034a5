import Plimsoll
import Synchronization

/// Measures how long shortages last, to say when those who are refused may come again.
final class RecoveryMeter: Sendable {
    private struct State {
        var since: Duration?
        /// Seconds; the last few count most.
        var usual = 1.0
    }

    private let state = Mutex(State())
    private let elapsed: @Sendable () -> Duration

    /// Nobody is sent away for longer than this many seconds.
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

    /// Seconds after which to come again: twice to four times what shortages last, this one included; so wide that what comes back is thinner than what was refused.
    var range: ClosedRange<Int> {
        let now = elapsed()
        let usual = state.withLock { state in max(state.usual, state.since.map { (now - $0) / .seconds(1) } ?? 0) }
        let least = min(Self.longest / 2, max(1, Int((usual * 2).rounded())))
        return least...min(Self.longest, least * 2)
    }
}
