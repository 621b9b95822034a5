import Plimsoll
import PlimsollSupervisor
import Testing

/// Tests of units whose return, wake or notice has not succeeded yet.
@Suite struct FailedReturnTests {
    private var engine = SupervisorEngine()

    @Test mutating func `a unit whose return failed still needs room for its former size`() {
        var job = unit("job", .background, .leaving) { $0.isWarnable = false }
        #expect(engine.words(fleet(5, .warning, [job]), failure: nil) == ["job: suspend"])
        (job.state, job.since, job.charge) = (.suspended, .seconds(5), .mebibytes(10))
        #expect(engine.words(fleet(6, .normal, room: 100, [job])) == [])
        #expect(engine.words(fleet(16, .normal, room: 100, [job]), failure: "refused") == ["job: resume room"])
        #expect(engine.words(fleet(46, .normal, room: 89, [job])) == [])
        #expect(engine.words(fleet(47, .normal, room: 90, [job])) == ["job: resume room"])
    }

    @Test mutating func `C33 a unit whose wake failed is not frozen when another party thaws the unit`() {
        var line = unit("voip", .background, .suspended) { ($0.keepAlive, $0.isWarnable) = (.seconds(60), false) }
        #expect(engine.words(fleet(600, .warning, [line]), failure: "refused") == ["voip: resume keep-alive"])
        (line.state, line.since) = (.running, .seconds(620))
        #expect(engine.words(fleet(620, .warning, [line])) == [])
    }

    @Test mutating func `C75 no second unit leaves before a report shows that the first leaves`() {
        let units = ["a", "b"].map { unit($0) { $0.isWarnable = false } }
        #expect(engine.words(fleet(100, .critical, short: 300, units)).count == 1)
        #expect(engine.words(fleet(100.5, .critical, short: 300, units)) == [])
    }
}
