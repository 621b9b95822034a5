extension Duration {
    /// A duration longer than any process lives.
    package static let max = Duration.seconds(Int64.max / 1_000_000_000)

    /// The duration as a floating-point number of seconds.
    package var inSeconds: Double {
        let (seconds, attoseconds) = components
        return Double(seconds) + Double(attoseconds) * 1e-18
    }

    /// The duration in whole nanoseconds, saturating.
    package var inNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        if seconds > Int64.max / 1_000_000_000 - 1 { return Int64.max }
        if seconds < Int64.min / 1_000_000_000 + 1 { return Int64.min }
        return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    }
}

extension Duration {
    /// Text with three significant digits in the customary unit: `3.21 ms`, `12.5 s`, `481 s`, `25 min`, `3.5 h`.
    package var brief: String {
        let seconds = inSeconds, magnitude = abs(seconds), sign = seconds < 0 ? "-" : ""
        // From `end` seconds on, the next unit is clearer. A value that rounds up to a thousand belongs to the next
        // unit too.
        let units: [(end: Double, factor: Double, name: String)] = [
            (1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1, 1e3, "ms"), (600, 1, "s"), (7200, 1 / 60.0, "min"),
        ]
        for (end, factor, name) in units where magnitude < end {
            let digits = Self.threeDigits(magnitude * factor)
            if digits != "1000" { return "\(sign)\(digits) \(name)" }
        }
        return "\(sign)\(Self.threeDigits(magnitude / 3600)) h"
    }

    /// Returns text with three digits. Numbers of a thousand and more are whole; zeros at the end of a fraction are
    /// left out.
    private static func threeDigits(_ value: Double) -> String {
        guard value.isFinite, value < 1e15 else { return "\(value)" }
        let decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0, scale = decimals == 2 ? 100 : decimals == 1 ? 10 : 1
        let scaled = Int((value * Double(scale)).rounded()), fraction = scaled % scale
        guard fraction > 0 else { return "\(scaled / scale)" }
        var digits = "\(fraction)"
        while digits.count < decimals { digits = "0" + digits }
        while digits.hasSuffix("0") { digits.removeLast() }
        return "\(scaled / scale).\(digits)"
    }
}

extension Duration {
    /// Creates a duration from a whole number and a unit, as operators write them: `500ms`, `25s`, `2m`, `1h`. A
    /// bare number is seconds. The maximum is about 30 years. Returns `nil` for any other text.
    package init?(plimsoll text: some StringProtocol) {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        guard let number = Int64(digits), number <= 1_000_000_000_000 else { return nil }
        switch text.dropFirst(digits.count) {
        case "ms": self = .milliseconds(number)
        case "s", "": self = .seconds(number)
        case "m": self = .seconds(number * 60)
        case "h": self = .seconds(number * 3600)
        default: return nil
        }
        guard self <= .seconds(1_000_000_000) else { return nil }
    }
}

extension Duration {
    /// Creates a duration from a number that another process sent: at most 10^12 s, zero if the number is negative or
    /// no number. `Duration.seconds(_:)` traps on such numbers.
    init(untrustedSeconds seconds: Double) {
        self = .seconds(seconds.isFinite ? Swift.min(Swift.max(seconds, 0), 1e12) : 0)
    }
}
