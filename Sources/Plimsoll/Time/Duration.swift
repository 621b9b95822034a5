extension Duration {
    /// Longer than any process lives.
    static let max = Duration.seconds(Int64.max / 1_000_000_000)

    /// As a floating-point number of seconds.
    package var inSeconds: Double {
        let (seconds, attoseconds) = components
        return Double(seconds) + Double(attoseconds) * 1e-18
    }

    /// In whole nanoseconds, saturating.
    package var inNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        if seconds > Int64.max / 1_000_000_000 - 1 { return Int64.max }
        if seconds < Int64.min / 1_000_000_000 + 1 { return Int64.min }
        return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    }
}
