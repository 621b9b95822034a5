import Testing

@testable import Plimsoll

/// The times at which a failed server is asked again.
@Suite struct CircuitBreakerTests {
    private func ms(_ count: Int) -> Duration { .milliseconds(count) }

    /// A breaker in a class: an expectation cannot change the values that it captures.
    private final class Tried {
        var breaker: CircuitBreaker
        init(failures: Int) { breaker = CircuitBreaker(.init(failures: failures, shortest: .milliseconds(100), longest: .milliseconds(400))) }
        func mayTry(at now: Duration) -> Bool { breaker.mayTry(at: now) }
    }

    @Test func `failures in a row open the breaker, and an answer between does not`() {
        let tried = Tried(failures: 3)
        for round in 0..<4 {
            tried.breaker.failed(at: ms(round))
            tried.breaker.failed(at: ms(round))
            #expect(tried.mayTry(at: ms(round)) && tried.breaker.isClosed)
            tried.breaker.succeeded()
        }
        for _ in 0..<3 { tried.breaker.failed(at: ms(10)) }
        #expect(!tried.breaker.isClosed && !tried.mayTry(at: ms(109)) && tried.breaker.retryIn(at: ms(50)) == ms(60))
    }

    @Test func `one caller probes after the pause, and the pause doubles up to the bound`() {
        let tried = Tried(failures: 1)
        var now = Duration.zero
        tried.breaker.failed(at: now)
        for pause in [100, 200, 400, 400, 400] {
            now += ms(pause)
            #expect(!tried.mayTry(at: now - ms(1)))
            #expect(tried.mayTry(at: now))
            #expect(!tried.mayTry(at: now), "one alone")
            tried.breaker.failed(at: now)
        }
        #expect(tried.mayTry(at: now + ms(400)))
        tried.breaker.succeeded()
        #expect(tried.breaker.isClosed && tried.mayTry(at: now) && tried.breaker.retryIn(at: now) == .zero)
        tried.breaker.failed(at: now, share: 0.5)
        #expect(tried.breaker.retryIn(at: now) == ms(50), "begins anew, with its share")
    }

    @Test func `a probe without a result does not keep the breaker open for ever`() {
        let tried = Tried(failures: 1)
        tried.breaker.failed(at: .zero)
        #expect(tried.mayTry(at: ms(100)))
        #expect(!tried.mayTry(at: ms(499)))
        #expect(tried.mayTry(at: ms(500)))
        // Failures of calls that began before the breaker opened change nothing.
        let other = Tried(failures: 1)
        other.breaker.failed(at: .zero)
        other.breaker.failed(at: ms(50))
        #expect(other.breaker.retryIn(at: ms(50)) == ms(50))
    }

    @Test func `each probe without a result has the longest pause for its answer`() {
        let tried = Tried(failures: 1)
        tried.breaker.failed(at: .zero)
        for begin in [100, 500, 900] {
            #expect(tried.mayTry(at: ms(begin)), "\(begin)")
            #expect(!tried.mayTry(at: ms(begin + 1)) && !tried.mayTry(at: ms(begin + 399)), "\(begin)")
            #expect(tried.breaker.retryIn(at: ms(begin + 1)) == ms(399), "\(begin)")
        }
    }
}
