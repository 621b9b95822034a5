import Testing

@testable import Plimsoll

/// When a server that failed is asked again.
@Suite struct CircuitBreakerTests {
    private func ms(_ count: Int) -> Duration { .milliseconds(count) }

    @Test func `failures in a row open it, and an answer between them does not`() {
        var breaker = CircuitBreaker(.init(failures: 3, shortest: ms(100), longest: ms(400)))
        for round in 0..<4 {
            breaker.failed(at: ms(round))
            breaker.failed(at: ms(round))
            #expect(breaker.mayTry(at: ms(round)) && breaker.isClosed)
            breaker.succeeded()
        }
        for _ in 0..<3 { breaker.failed(at: ms(10)) }
        #expect(!breaker.isClosed && !breaker.mayTry(at: ms(109)) && breaker.retryIn(at: ms(50)) == ms(60))
    }

    @Test func `after the pause one asks, and the pause doubles up to its bound`() {
        var breaker = CircuitBreaker(.init(failures: 1, shortest: ms(100), longest: ms(400)))
        var now = Duration.zero
        breaker.failed(at: now)
        for pause in [100, 200, 400, 400, 400] {
            now += ms(pause)
            #expect(!breaker.mayTry(at: now - ms(1)))
            #expect(breaker.mayTry(at: now) && !breaker.mayTry(at: now), "one alone")
            breaker.failed(at: now)
        }
        #expect(breaker.mayTry(at: now + ms(400)))
        breaker.succeeded()
        #expect(breaker.isClosed && breaker.mayTry(at: now) && breaker.retryIn(at: now) == .zero)
        breaker.failed(at: now, share: 0.5)
        #expect(breaker.retryIn(at: now) == ms(50), "begins anew, with its share")
    }

    @Test func `who never says how it went does not keep it shut for ever`() {
        var breaker = CircuitBreaker(.init(failures: 1, shortest: ms(100), longest: ms(400)))
        breaker.failed(at: .zero)
        #expect(breaker.mayTry(at: ms(100)) && !breaker.mayTry(at: ms(499)) && breaker.mayTry(at: ms(500)))
        // Failures of those who began before it opened change nothing.
        var other = CircuitBreaker(.init(failures: 1, shortest: ms(100), longest: ms(400)))
        other.failed(at: .zero)
        other.failed(at: ms(50))
        #expect(other.retryIn(at: ms(50)) == ms(50))
    }
}
