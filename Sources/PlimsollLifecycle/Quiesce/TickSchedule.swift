import Plimsoll

/// The schedule of a ticker: the points of its phase. A schedule may skip points but never moves one.
struct TickSchedule: Sendable {
    /// The decision for a due point.
    enum Decision: Equatable {
        case run(missed: Int)
        /// The tick is too late, or ticks are stopped.
        case skip
        /// The tick moves to the next common instant, or to a later turn among the ticks that are made up for.
        case postpone(to: Duration)
    }

    /// The distance between ticks in an extent.
    enum Pace: Equatable {
        case full
        /// Ticks only at common instants: whole multiples of this on the machine's clock.
        case coalesced(Duration)
        case stopped
    }

    let period: Duration
    let makesUp: Bool
    /// Delay before a missed tick is made up for. Differs between tickers, so that they cause no burst.
    private let spread: Duration
    /// The origin of the phase, itself no tick; points are numbered from here.
    private let origin: Duration
    /// The number of the last point that ran, or that had passed when a tick ran.
    private var last: Int64 = 0

    /// A tick that is later than this has missed the point, by the ticker's clock. Threads on a busy machine are late
    /// by less.
    static let tolerance = Heartbeat.tolerance

    /// - Parameter ordinal: number of tickers that began before this one.
    init(period: Duration, makesUp: Bool, origin: Duration, ordinal: UInt64) {
        self.period = period
        self.makesUp = makesUp
        self.origin = origin
        // Multiples of the golden ratio modulo 1 are spread out for any count of tickers. The unit is 1/1024 of a
        // tenth of the period.
        let share = (ordinal &* 0x9e37_79b9_7f4a_7c15) >> 54
        spread = .nanoseconds(min(period, .seconds(100)).inNanoseconds / 10 * Int64(share) / 1024)
    }

    /// Returns the next point after `now` at that pace; `nil` if stopped.
    func next(after now: Duration, _ pace: Pace) -> Duration? {
        let point = origin + Self.times(period, number(at: now) + 1)
        switch pace {
        case .full: return point
        case .coalesced(let stride): return Self.ceiling(point, stride)
        case .stopped: return nil
        }
    }

    /// Returns the next due time after a pause: the next point, or sooner to make up for a missed one.
    func resume(at now: Duration, _ pace: Pace) -> Duration? {
        guard let next = next(after: now, pace) else { return nil }
        return pace == .full && makesUp && number(at: now) > last ? min(now + spread, next) : next
    }

    /// Decides at `now` about a tick that was due at `due`.
    mutating func fire(due: Duration, at now: Duration, _ pace: Pace) -> Decision {
        switch pace {
        case .full: break
        case .coalesced(let stride):
            let instant = Self.ceiling(due, stride)
            if instant != due { return .postpone(to: instant) }
        case .stopped: return .skip
        }
        if now - due > Self.tolerance {
            guard makesUp else { return .skip }
            if spread > .zero, let instant = resume(at: now, pace) { return .postpone(to: instant) }
        }
        let number = number(at: now)
        defer { last = number }
        return .run(missed: Int(max(0, number - last - 1)))
    }

    /// Returns the number of the last point at or before `now`.
    private func number(at now: Duration) -> Int64 { (now - origin).inNanoseconds / period.inNanoseconds }

    private static func ceiling(_ time: Duration, _ stride: Duration) -> Duration {
        let (time, stride) = (time.inNanoseconds, stride.inNanoseconds)
        return .nanoseconds((time + stride - 1) / stride * stride)
    }

    private static func times(_ period: Duration, _ count: Int64) -> Duration {
        .nanoseconds(period.inNanoseconds * count)
    }
}
