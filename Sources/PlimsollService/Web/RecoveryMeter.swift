import Plimsoll
import Synchronization

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
