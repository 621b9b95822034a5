import Testing

@testable import Plimsoll

@Suite struct DurationTextTests {
    @Test(arguments: [
        (0, "0 ns"), (3.2134523e-3, "3.21 ms"), (0.9996, "1 s"), (0.04, "40 ms"), (4.2, "4.2 s"), (9.996, "10 s"), (12.34, "12.3 s"),
        (480.8, "481 s"),
        (1500, "25 min"), (12600, "3.5 h"), (2e-5, "20 µs"), (-0.5, "-500 ms"), (9e8, "250000 h"),
        (5.4e18, "1500000000000000.0 h"),
    ])
    func `a duration has three significant digits and the usual unit`(seconds: Double, text: String) {
        #expect(Duration.seconds(seconds).brief == text)
    }

    @Test(arguments: [
        (5e-7, "500 ns"), (1.5e-6, "1.5 µs"), (1.5e-3, "1.5 ms"), (1.5, "1.5 s"), (4.01, "4.01 s"), (150.4, "150 s"),
        (599, "599 s"), (600, "10 min"), (7199, "120 min"), (7200, "2 h"), (3.6e18, "1000000000000000.0 h"),
    ])
    func `each unit begins at its bound, and a fraction keeps its zeros in front`(seconds: Double, text: String) {
        #expect(Duration.seconds(seconds).brief == text)
    }

    @Test func `a whole number with a unit is a duration up to a billion seconds, and any other text is none`() {
        let most = Duration.seconds(1_000_000_000)
        let rows: [(text: String, duration: Duration?)] = [
            ("500ms", .milliseconds(500)), ("25s", .seconds(25)), ("2m", .seconds(120)), ("1h", .seconds(3600)),
            ("7", .seconds(7)), ("0", .zero), ("1000000000000ms", most), ("1000000000", most), ("1000000000s", most),
            ("277777h", .seconds(999_997_200)), ("1000000000001ms", nil), ("1000000001", nil), ("277778h", nil),
            ("9223372036854775807h", nil), ("", nil), ("s", nil), ("-1", nil), ("1.5s", nil), ("5 s", nil), ("5d", nil),
        ]
        for row in rows { #expect(Duration(plimsoll: row.text) == row.duration, "\(row.text)") }
    }

    @Test func `seconds of another process are bounded, and no number is zero`() {
        let most = Duration.seconds(1e12)
        let rows: [(seconds: Double, duration: Duration)] = [
            (0.5, .seconds(0.5)), (0, .zero), (-1, .zero), (.nan, .zero), (.infinity, .zero), (1e12, most), (1e300, most),
        ]
        for row in rows { #expect(Duration(untrustedSeconds: row.seconds) == row.duration, "\(row.seconds)") }
    }

    @Test func `a duration in nanoseconds is exact, and saturates`() {
        let exact = Duration.seconds(2) + .nanoseconds(3)
        #expect(exact.inNanoseconds == 2_000_000_003 && (Duration.zero - exact).inNanoseconds == -2_000_000_003)
        #expect(Duration.seconds(10_000_000_000).inNanoseconds == .max)
        #expect(Duration.seconds(-10_000_000_000).inNanoseconds == .min)
        #expect(abs(exact.inSeconds - 2.000_000_003) < 1e-12)
    }
}
