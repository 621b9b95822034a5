/// When a ticker ticks: at the points of its phase, of which it may leave out some but never moves one.
struct TickSchedule: Sendable {
    /// What a ticker does at a point that it met.
    enum Decision: Equatable {
        case run(missed: Int)
        /// Too late, or not now.
        case skip
        /// At the next common instant, or in its turn among those that make up for something.
        case postpone(to: Duration)
    }

    /// How far apart ticks are in an extent.
    enum Pace: Equatable {
        case full
        /// At common instants only: whole multiples of this on the machine's clock.
        case coalesced(Duration)
        case stopped
    }

    let period: Duration
    let makesUp: Bool
    /// How long after it could a missed tick is made up for: not the same for all tickers, so that they are no burst.
    private let spread: Duration
    /// The point that is no tick: from it on they are counted.
    private let origin: Duration
    /// The number of the last point that ran or that was passed when it did.
    private var last: Int64 = 0

    /// A tick later than this by its clock has missed its point; threads on a busy machine are late by less.
    static let tolerance = Heartbeat.tolerance

    /// - Parameter ordinal: how many tickers began before this one.
    init(period: Duration, makesUp: Bool, origin: Duration, ordinal: UInt64) {
        self.period = period
        self.makesUp = makesUp
        self.origin = origin
        // Multiples of the golden ratio, less their whole parts, lie apart whatever their number; in 1/1024 of a tenth of the period.
        let share = (ordinal &* 0x9e37_79b9_7f4a_7c15) >> 54
        spread = .nanoseconds(min(period, .seconds(100)).inNanoseconds / 10 * Int64(share) / 1024)
    }

    /// The next point after `now`, as the pace has it; `nil` if it is stopped.
    func next(after now: Duration, _ pace: Pace) -> Duration? {
        let point = origin + Self.times(period, number(at: now) + 1)
        switch pace {
        case .full: return point
        case .coalesced(let stride): return Self.ceiling(point, stride)
        case .stopped: return nil
        }
    }

    /// What to wait for after a pause: the next point, or sooner if one that was missed is to be made up for.
    func resume(at now: Duration, _ pace: Pace) -> Duration? {
        guard let next = next(after: now, pace) else { return nil }
        return pace == .full && makesUp && number(at: now) > last ? min(now + spread, next) : next
    }

    /// What to do at `now` about a tick that was due at `due`.
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

    /// The number of the last point at or before `now`.
    private func number(at now: Duration) -> Int64 { (now - origin).inNanoseconds / period.inNanoseconds }

    private static func ceiling(_ time: Duration, _ stride: Duration) -> Duration {
        let (time, stride) = (time.inNanoseconds, stride.inNanoseconds)
        return .nanoseconds((time + stride - 1) / stride * stride)
    }

    private static func times(_ period: Duration, _ count: Int64) -> Duration { .nanoseconds(period.inNanoseconds * count) }
}
