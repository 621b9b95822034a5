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

extension Duration {
    /// From a whole number and its unit, as operators write it: `500ms`, `25s`, `2m`, `1h`; a bare number is seconds. At most about 30 years; `nil` for anything
    /// else.
    package init?(plimsoll text: some StringProtocol) {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        guard let number = Int64(digits), number <= 1_000_000_000 else { return nil }
        switch text.dropFirst(digits.count) {
        case "ms": self = .milliseconds(number)
        case "s", "": self = .seconds(number)
        case "m": self = .seconds(number * 60)
        case "h": self = .seconds(number * 3600)
        default: return nil
        }
    }
}
