import Plimsoll
import Synchronization

/// Keeps what a shedder refuses from the time at which memory becomes short until it is plentiful again: an episode. Allocates nothing.
final class ShedEpisodes: Sendable {
    /// Counts of refusals, by priority and then reason in the order of their cases.
    typealias Counts = SIMD16<UInt64>

    /// What there is to tell of episodes.
    enum News: Equatable {
        /// Requests are refused.
        case began(QuiesceExtent)
        /// So many episodes with refusals are over, which together lasted so long.
        case ended(times: Int, lasted: Duration, Counts)
    }

    private struct State {
        var present: (began: Duration, before: Counts, extent: QuiesceExtent)?
        var isTold = false
        var ended: (times: Int, lasted: Duration, refused: Counts) = (0, .zero, .zero)
    }

    private let state = Mutex(State())

    /// How much may go on now, and what had been refused in all by then.
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
            state.ended = (state.ended.times + 1, state.ended.lasted + (now - present.began), state.ended.refused &+ refused)
        }
    }

    /// What has not been told yet, oldest first. An episode in which nothing has been refused is no news.
    func takeNews(_ total: Counts) -> [News] {
        state.withLock { state in
            var news: [News] = []
            if state.ended.times > 0 {
                news.append(.ended(times: state.ended.times, lasted: state.ended.lasted, state.ended.refused))
                (state.ended, state.isTold) = ((0, .zero, .zero), false)
            }
            if let present = state.present, !state.isTold, total != present.before {
                news.append(.began(present.extent))
                state.isTold = true
            }
            return news
        }
    }

    /// Refused a second in the present episode; `nil` if there is none.
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
