import Testing

@testable import Plimsoll

/// The requests that an operator makes by environment variables.
@Suite struct ManagerRequestsTests {
    @Test(
        arguments: [
            ("warning:500ms", .warning, .milliseconds(500)), ("critical:5s", .critical, .seconds(5)),
            ("critical:2m", .critical, .seconds(120)), ("normal:1h", .normal, .seconds(3600)),
        ] as [(String, PressureLevel, Duration)])
    func `a request for a simulation is a level, a colon and a time with its unit`(
        text: String, level: PressureLevel, duration: Duration
    ) throws {
        let request = try SimulationRequest(text)
        #expect(request.level == level && request.duration == duration)
    }

    @Test(arguments: [
        "", ":", "critical", "critical:", ":5s", "5s:critical", "severe:5s", "Critical:5s", "critical:5", "critical:s",
        "critical:0s", "critical:-5s", "critical: 5s", "critical:5s ", "critical:5s:5s", "critical:5d",
        "critical:99999999999s",
    ])
    func `any other text is refused with the text and the allowed form`(text: String) {
        let error = #expect(throws: ResourceManagerError.self) { try SimulationRequest(text) }
        let start = "PLIMSOLL_SIMULATE is \"\(text)\"; allowed is LEVEL:DURATION"
        #expect(error?.description.hasPrefix(start) == true, "\(error as Any)")
    }
}
