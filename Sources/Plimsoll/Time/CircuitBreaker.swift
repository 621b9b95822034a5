/// Whether a server that failed may be asked again: after some failures in a row it is left alone for a while, then asked once, and left alone for twice as long
/// if that fails too.
///
/// A value that takes its time as `at:`; whoever owns it guards it.
package struct CircuitBreaker: Sendable {
    /// How many failures in a row it takes, and how long a server is left alone.
    package struct Limits: Sendable {
        /// Failures in a row; 1 or more.
        package var failures: Int
        /// How long the first time.
        package var shortest: Duration
        /// How long at most.
        package var longest: Duration

        package init(failures: Int = 3, shortest: Duration = .milliseconds(100), longest: Duration = .seconds(30)) {
            precondition(failures > 0, "CircuitBreaker: failures is \(failures), allowed is 1 or more")
            precondition(
                shortest > .zero && shortest <= longest,
                "CircuitBreaker: pauses are \(shortest) to \(longest), allowed is above 0, the first the shorter")
            (self.failures, self.shortest, self.longest) = (failures, shortest, longest)
        }
    }

    private enum State {
        /// It is asked; so many have failed in a row.
        case closed(failures: Int)
        /// It is left alone until then, and for twice `pause` after that if it fails again.
        case open(until: Duration, pause: Duration)
        /// One asks it.
        case trying(since: Duration, pause: Duration)
    }

    private let limits: Limits
    private var state = State.closed(failures: 0)

    package init(_ limits: Limits = Limits()) { self.limits = limits }

    /// Whether everybody may ask.
    package var isClosed: Bool { if case .closed = state { true } else { false } }

    /// Whether the caller may ask now. While a server is left alone, that is one, once the pause is over: who is told so says afterwards how it went.
    package mutating func mayTry(at now: Duration) -> Bool {
        switch state {
        case .closed: return true
        case .open(let until, let pause):
            guard now >= until else { return false }
            state = .trying(since: now, pause: pause)
            return true
        case .trying(let since, let pause):
            // Whoever tried never said how it went: another may.
            guard now - since >= limits.longest else { return false }
            state = .trying(since: now, pause: pause)
            return true
        }
    }

    /// Time until somebody may ask; zero if that is now.
    package func retryIn(at now: Duration) -> Duration {
        switch state {
        case .closed: .zero
        case .open(let until, _): max(.zero, until - now)
        case .trying(let since, _): max(.zero, since + limits.longest - now)
        }
    }

    /// It answered.
    package mutating func succeeded() { state = .closed(failures: 0) }

    /// It did not.
    ///
    /// - Parameter share: part of the pause that is kept, in `0...1`: a random one keeps many who lost one server from coming back at one instant.
    package mutating func failed(at now: Duration, share: Double = 1) {
        switch state {
        case .closed(let failures) where failures + 1 < limits.failures: state = .closed(failures: failures + 1)
        case .closed: open(limits.shortest, now, share)
        case .trying(_, let pause): open(min(limits.longest, pause * 2), now, share)
        // Somebody who had begun before.
        case .open: break
        }
    }

    private mutating func open(_ pause: Duration, _ now: Duration, _ share: Double) { state = .open(until: now + pause * share, pause: pause) }
}
