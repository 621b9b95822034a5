/// A token bucket: bounds the burst and the rate of a sender's messages.
struct Allowance {
    private let rate: Double
    private let burst: Double
    private var left: Double
    private var filledAt: Duration

    /// - Parameters:
    ///   - rate: units per second.
    ///   - burst: greatest number of units at once.
    init(rate: Double, burst: Double, at now: Duration) {
        (self.rate, self.burst, left, filledAt) = (rate, burst, burst, now)
    }

    /// Takes one unit. Returns false if none is left.
    mutating func spend(at now: Duration) -> Bool {
        // If the clock has gone back, no units are added or removed.
        let passed = max(.zero, now - filledAt)
        left = min(burst, left + min(3600, passed / .seconds(1)) * rate)
        filledAt = now
        guard left >= 1 else { return false }
        left -= 1
        return true
    }
}
