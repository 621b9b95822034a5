/// How much a speaker may still say: so much at once, and so much more each second (a token bucket).
struct Allowance {
    private let rate: Double
    private let burst: Double
    private var left: Double
    private var filledAt: Duration

    /// - Parameters:
    ///   - rate: units a second.
    ///   - burst: units at once.
    init(rate: Double, burst: Double, at now: Duration) { (self.rate, self.burst, left, filledAt) = (rate, burst, burst, now) }

    /// Takes one unit; false if none is left.
    mutating func spend(at now: Duration) -> Bool {
        // A clock that went back gives nothing and takes nothing.
        let passed = max(.zero, now - filledAt)
        left = min(burst, left + min(3600, passed / .seconds(1)) * rate)
        filledAt = now
        guard left >= 1 else { return false }
        left -= 1
        return true
    }
}
