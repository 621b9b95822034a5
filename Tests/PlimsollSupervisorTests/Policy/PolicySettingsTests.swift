import PlimsollSupervisor
import Testing

/// Tests of the `policy:` section of a units file.
@Suite struct PolicySettingsTests {
    @Test func `a key sets the parameter of that name, and all others stay`() throws {
        var expected = SupervisorPolicy.standard
        (expected.roomHold, expected.thawSpacing) = (.seconds(86_400), .milliseconds(250))
        let file = try UnitsFile("version: 1\npolicy: {roomHold: 24h, thawSpacing: 250ms}\nunits: {}")
        #expect(try SupervisorPolicy(file) == expected)
    }

    @Test func `each unknown key and each wrong time of a policy is reported, in order`() throws {
        let text = "version: 1\npolicy: {pace: 1s, grace: 4s, coolDown: 25h}\nunits: {}"
        let file = try UnitsFile(text, name: "U")
        let error = #expect(throws: SupervisorError.self) { try SupervisorPolicy(file) }
        let lines = try #require(error).description.split(separator: "\n")
        #expect(lines.count == 2)
        #expect(lines.first?.hasPrefix("U:2:16: policy: key `pace` is not known; allowed are leaveTime, ") == true)
        let late = "U:2:41: policy: key `coolDown` is \"25h\"; allowed is a time of at most 24h"
        #expect(lines.last?.hasPrefix(late) == true)
    }
}
