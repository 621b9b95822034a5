/// Work that a `ConcurrencyLimiter` has not admitted. The work never began.
public struct AdmissionRefusal: Error, Sendable, Hashable {
    /// The reason for the refusal.
    public enum Reason: Sendable, Hashable {
        /// The queue of waiting callers was full. The value is the queue's capacity.
        case queueIsFull(mostWaiting: Int)
        /// The limiter was paused, and the policy refuses work while paused.
        case paused
        /// The limiter stayed paused for longer than the policy allows callers to wait.
        case pausedTooLong(Duration)
        /// The caller's patience ended.
        case waitedTooLong(Duration)
    }

    /// Name of the limiter.
    public var limiter: String
    /// The reason for the refusal.
    public var reason: Reason

    /// Creates a refusal by the limiter of that name.
    public init(limiter: String, reason: Reason) {
        self.limiter = limiter
        self.reason = reason
    }
}

extension AdmissionRefusal: CustomStringConvertible {
    public var description: String {
        let why =
            switch reason {
            case .queueIsFull(let most): "\(most) are waiting already; shed load earlier, or raise mostWaiting"
            case .paused:
                "it is paused and set to refuse then (whenPaused: .refuse); ask again once the process is active"
            case .pausedTooLong(let limit):
                "it was paused for more than \(limit) (whenPaused: .expire); ask again once the process is active"
            case .waitedTooLong(let limit): "no room within \(limit); ask again later, or wait longer (waitingAtMost:)"
            }
        return "limiter \"\(limiter)\" did not admit the work: \(why)"
    }
}
