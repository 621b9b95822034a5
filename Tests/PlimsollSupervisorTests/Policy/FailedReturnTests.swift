import Plimsoll
import PlimsollSupervisor
import Testing

/// Tests of units whose return or wake failed, and of returns that must not coincide.
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

    @Test mutating func `T29 units with similar names come back at different times`() {
        var waits: [Duration] = []
        for name in (0..<5).map({ "worker-\($0)" }) {
            engine = SupervisorEngine()
            let first = unit("first", .background, .suspended, importance: 900)
            let second = unit(name, .background, .suspended)
            #expect(engine.words(fleet(0, .normal, [first, second])) == [])
            #expect(engine.words(fleet(10, .normal, [first, second]), failure: nil) == ["first: resume room"])
            let next = fleet(10.5, .normal, [unit("first", since: 10), second])
            #expect(engine.words(next) == [])
            if let wait = engine.nextEvaluation(after: next) { waits.append(wait) }
        }
        #expect(waits.count == 5 && waits.max()! - waits.min()! > .milliseconds(50), "\(waits)")
    }
}
