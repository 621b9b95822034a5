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
}
