/// Work that a `ConcurrencyLimiter` has not admitted. It was never begun.
public struct AdmissionRefusal: Error, Sendable, Hashable {
    /// Why not.
    public enum Reason: Sendable, Hashable {
        /// So many were waiting already, which is the most.
        case queueIsFull(mostWaiting: Int)
        /// The limiter was paused, and its policy is to refuse then.
        case paused
        /// The limiter stayed paused for longer than its policy lets anybody wait.
        case pausedTooLong(Duration)
        /// The caller did not want to wait any longer.
        case waitedTooLong(Duration)
    }

    /// The limiter's name.
    public var limiter: String
    /// Why not.
    public var reason: Reason

    /// A refusal by the limiter of that name.
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
            case .paused: "it is paused and set to refuse then (whenPaused: .refuse); ask again once the process is active"
            case .pausedTooLong(let limit): "it was paused for more than \(limit) (whenPaused: .expire); ask again once the process is active"
            case .waitedTooLong(let limit): "no room within \(limit); ask again later, or wait longer (waitingAtMost:)"
            }
        return "limiter \"\(limiter)\" did not admit the work: \(why)"
    }
}
