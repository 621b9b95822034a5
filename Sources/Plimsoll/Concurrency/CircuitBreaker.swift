/// A circuit breaker with exponential back-off for a server. After some failures in a row, no caller asks the
/// server for a pause. Then one caller tries, and another failure doubles the pause.
///
/// A value type that takes its time as `at:`; its owner guards concurrent access.
package struct CircuitBreaker: Sendable {
    /// Failure threshold and back-off range of a circuit breaker.
    package struct Limits: Sendable {
        /// Number of failures in a row that open the breaker; 1 or more.
        package var failures: Int
        /// The first pause.
        package var shortest: Duration
        package var longest: Duration

        package init(failures: Int = 3, shortest: Duration = .milliseconds(100), longest: Duration = .seconds(30)) {
            precondition(failures > 0, "CircuitBreaker: failures is \(failures), allowed is 1 or more")
            precondition(
                shortest > .zero && shortest <= longest,
                "CircuitBreaker: pauses are \(shortest) to \(longest); the shortest must be above 0 and at most the longest"
            )
            (self.failures, self.shortest, self.longest) = (failures, shortest, longest)
        }
    }

    private enum State {
        /// Callers may ask; so many calls have failed in a row.
        case closed(failures: Int)
        /// No caller may ask until then. Another failure after that doubles `pause`.
        case open(until: Duration, pause: Duration)
        /// One caller is trying.
        case trying(since: Duration, pause: Duration)
    }

    private let limits: Limits
    private var state = State.closed(failures: 0)

    package init(_ limits: Limits = Limits()) { self.limits = limits }

    /// True if every caller may ask.
    package var isClosed: Bool { if case .closed = state { true } else { false } }

    /// Returns true if the caller may ask now. While the breaker is open, only one caller gets true, once the pause
    /// is over. That caller must report the result afterwards.
    package mutating func mayTry(at now: Duration) -> Bool {
        switch state {
        case .closed: return true
        case .open(let until, let pause):
            guard now >= until else { return false }
            state = .trying(since: now, pause: pause)
            return true
        case .trying(let since, let pause):
            // The trying caller has not reported a result in time: let another try.
            guard now - since >= limits.longest else { return false }
            state = .trying(since: now, pause: pause)
            return true
        }
    }

    /// Returns the time until a caller may ask; zero if that is now.
    package func retryIn(at now: Duration) -> Duration {
        switch state {
        case .closed: .zero
        case .open(let until, _): max(.zero, until - now)
        case .trying(let since, _): max(.zero, since + limits.longest - now)
        }
    }

    /// Records that the server answered.
    package mutating func succeeded() { state = .closed(failures: 0) }

    /// Records that the server failed.
    ///
    /// - Parameter share: the share of the pause to wait, in `0...1`. A random share keeps the many clients of a
    ///   failed server from returning at one instant.
    package mutating func failed(at now: Duration, share: Double = 1) {
        switch state {
        case .closed(let failures) where failures + 1 < limits.failures: state = .closed(failures: failures + 1)
        case .closed: open(limits.shortest, now, share)
        case .trying(_, let pause): open(min(limits.longest, pause * 2), now, share)
        // A caller that had begun before the breaker opened.
        case .open: break
        }
    }

    private mutating func open(_ pause: Duration, _ now: Duration, _ share: Double) {
        state = .open(until: now + pause * share, pause: pause)
    }
}
