import Plimsoll
import PlimsollLifecycle
import Synchronization

/// Counts a shedder's refusals per episode. An episode lasts from the time at which memory becomes short until memory
/// is plentiful again. Allocates nothing.
final class ShedEpisodes: Sendable {
    /// Counts of refusals, by priority and then reason in the order of their cases.
    typealias Counts = SIMD16<UInt64>

    /// News about episodes.
    enum News: Equatable {
        /// Requests are being refused.
        case began(QuiesceExtent)
        /// Number of ended episodes with refusals, and their total duration.
        case ended(times: Int, lasted: Duration, Counts)
    }

    private struct State {
        var present: (began: Duration, before: Counts, extent: QuiesceExtent)?
        var isReported = false
        var ended: (times: Int, lasted: Duration, refused: Counts) = (0, .zero, .zero)
    }

    private let state = Mutex(State())

    /// Records the current extent and the total number of refusals so far.
    func note(_ extent: QuiesceExtent, _ total: Counts, at now: Duration) {
        state.withLock { state in
            guard let present = state.present else {
                if extent != .open { state.present = (now, total, extent) }
                return
            }
            guard extent == .open else {
                state.present?.extent = extent
                return
            }
            state.present = nil
            let refused = total &- present.before
            guard refused != .zero else { return }
            state.ended = (
                state.ended.times + 1, state.ended.lasted + (now - present.began), state.ended.refused &+ refused
            )
        }
    }

    /// Removes and returns unreported news, oldest first. An episode without refusals is not news.
    func takeNews(_ total: Counts) -> [News] {
        state.withLock { state in
            var news: [News] = []
            if state.ended.times > 0 {
                news.append(.ended(times: state.ended.times, lasted: state.ended.lasted, state.ended.refused))
                (state.ended, state.isReported) = ((0, .zero, .zero), false)
            }
            if let present = state.present, !state.isReported, total != present.before {
                news.append(.began(present.extent))
                state.isReported = true
            }
            return news
        }
    }

    /// Refusals per second in the current episode; `nil` without an episode.
    func perSecond(_ total: Counts, at now: Duration) -> Double? {
        guard let present = state.withLock({ $0.present }) else { return nil }
        let seconds = (now - present.began).inSeconds
        return seconds > 0 ? Double((total &- present.before).wrappedSum()) / seconds : 0
    }

    static func index(_ priority: RequestPriority, _ reason: RequestRefusal.Reason) -> Int {
        switch reason {
        case .concurrency: Int(priority.rawValue) * 3
        case .arrivals: Int(priority.rawValue) * 3 + 1
        case .paused: Int(priority.rawValue) * 3 + 2
        }
    }
}
