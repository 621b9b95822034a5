import Plimsoll
import PlimsollSupervisor
import Testing

/// Tests of the bounds of leaving: times, reasons, and freezes that fail.
@Suite struct LeavingBoundsTests {
    private var engine = SupervisorEngine()

    private func leaving(since: Double = 1, change: (inout UnitReport) -> Void = { _ in }) -> UnitReport {
        unit("job", .background, .leaving, since: since) {
            $0.isWarnable = false
            change(&$0)
        }
    }

    @Test(arguments: [(5.9, false), (6, true), (6.1, true)])
    mutating func `a unit whose tasks still run after 5 s is reported as spared`(seconds: Double, isSpared: Bool) {
        let job = leaving { $0.tokens = 1 }
        #expect(engine.words(fleet(seconds, .warning, [job])) == [])
        #expect(engine.spared.map(\.reason) == (isSpared ? ["1 background tasks still run"] : []))
    }

    @Test mutating func `T33 a single background task without an end is honoured up to the bound`() {
        let job = leaving { $0.tokens = 1 }
        #expect(engine.words(fleet(30.9, .critical, short: 50, [job])) == [])
        #expect(engine.words(fleet(31, .critical, short: 50, [job])) == ["job: kill"])
    }

    @Test mutating func `the reason of a freeze tells a ready unit, memory that runs out, and time that has passed`() {
        let ready = engine.decide(fleet(2, .normal, [leaving { $0.isReady = true }]))
        #expect(ready.map(\.reason) == ["the unit is ready to be suspended"])
        engine = SupervisorEngine()
        let late = engine.decide(fleet(6, .normal, [leaving()]))
        #expect(late.map(\.words) == ["job: suspend"])
        #expect(late.first?.reason.hasSuffix("to leave have passed") == true)
        engine = SupervisorEngine()
        var now = fleet(3, .critical, short: 10, [leaving()])
        now.timeLeft = .milliseconds(2500)
        #expect(engine.decide(now).map(\.reason) == ["memory lasts for 2500 ms only"])
    }

    @Test mutating func `a unit that could not be called back is frozen`() {
        let job = unit("job") { $0.isWarnable = false }
        #expect(engine.words(fleet(1, .critical, short: 50, [job]), failure: nil) == ["job: background"])
        #expect(engine.words(fleet(6, .normal, [leaving()]), failure: "refused") == ["job: resume room"])
        #expect(engine.words(fleet(7, .normal, [leaving()])) == ["job: suspend"])
    }

    @Test mutating func `C91 a unit that has run again is frozen the next time, and not called back`() {
        var job = unit("job") { $0.isWarnable = false }
        #expect(engine.words(fleet(1, .critical, short: 50, [job]), failure: nil) == ["job: background"])
        job.since = .seconds(2)
        #expect(engine.words(fleet(2, .normal, [job])) == [])
        #expect(engine.words(fleet(8, .normal, [leaving(since: 3)])) == ["job: suspend"])
    }

    @Test mutating func `an evaluation is due when a refused request to be frozen expires`() {
        let now = fleet(1, .warning, [unit("front", .foreground) { $0.suspensionRequestedAt = .seconds(1) }])
        #expect(engine.words(now) == [] && engine.nextEvaluation(after: now) == .seconds(30))
    }

    @Test(arguments: [true, false])
    mutating func `a request to be frozen is refused after a failed notice, and after a failed freeze`(isNotice: Bool) {
        let asks = unit("job") { $0.suspensionRequestedAt = .seconds(6) }
        let first = engine.words(fleet(6, .normal, [isNotice ? asks : leaving()]), failure: "refused")
        #expect(first == [isNotice ? "job: background" : "job: suspend"])
        #expect(engine.words(fleet(7, .normal, [asks])) == [])
        #expect(engine.spared.map(\.reason) == ["the unit requests suspension, but that failed a moment ago"])
    }

    @Test(arguments: [(UnitState.suspending, true), (.suspended, true), (.running, false), (.stopped, false)])
    mutating func `K36 T32 a failed freeze is taken back from a frozen unit only, and once`(
        state: UnitState, isTakenBack: Bool
    ) {
        var job = leaving()
        #expect(engine.words(fleet(6, .warning, [job]), failure: "not confirmed") == ["job: suspend"])
        (job.state, job.since) = (state, .seconds(6))
        #expect(engine.words(fleet(7, .warning, [job]), failure: nil) == (isTakenBack ? ["job: resume room"] : []))
        // A later freeze, by another party, stays.
        (job.state, job.since) = (.suspended, .seconds(8))
        #expect(engine.words(fleet(9, .warning, [job])) == [])
    }

    /// Returns a unit whose freeze failed at 6 s, and whose thaw failed at 7 s.
    private mutating func halfFrozen() -> UnitReport {
        var job = leaving()
        #expect(engine.words(fleet(6, .warning, [job]), failure: "not confirmed") == ["job: suspend"])
        (job.state, job.since) = (.suspending, .seconds(6))
        #expect(engine.words(fleet(7, .warning, [job]), failure: "refused") == ["job: resume room"])
        return job
    }

    @Test mutating func `K36 T32 a half-frozen unit is thawed every 30 s until that succeeds`() {
        var job = halfFrozen()
        let resting = fleet(36.5, .warning, [job])
        #expect(engine.words(resting) == [] && engine.nextEvaluation(after: resting) == .milliseconds(500))
        #expect(engine.words(fleet(37, .warning, [job]), failure: "refused") == ["job: resume room"])
        // Without an answer, the thaw counts as failed as well, after 5 s.
        #expect(engine.words(fleet(67, .warning, [job])) == ["job: resume room"])
        #expect(engine.words(fleet(72, .warning, [job])) == [])
        #expect(engine.words(fleet(102, .warning, [job]), failure: nil) == ["job: resume room"])
        (job.state, job.since) = (.suspended, .seconds(103))
        #expect(engine.words(fleet(104, .warning, [job])) == [], "a later freeze, by another party, stays")
    }

    @Test mutating func `C91 a unit frozen after all, whose thaw failed, comes back with room only`() {
        var job = halfFrozen()
        (job.state, job.since) = (.suspended, .seconds(8))
        for seconds in [8, 37, 80] { #expect(engine.words(fleet(Double(seconds), .warning, [job])) == [], "\(seconds)") }
    }

    @Test mutating func `T32 a return that failed before does not delay the rollback of a freeze`() {
        #expect(engine.words(fleet(1, .critical, short: 50, [unit("job") { $0.isWarnable = false }]), failure: nil) == ["job: background"])
        #expect(engine.words(fleet(6, .normal, [leaving()]), failure: "refused") == ["job: resume room"])
        #expect(engine.words(fleet(7, .normal, [leaving()]), failure: "not confirmed") == ["job: suspend"])
        let half = unit("job", .background, .suspending, since: 7) { $0.isWarnable = false }
        #expect(engine.words(fleet(8, .normal, [half])) == ["job: resume room"])
    }

    @Test mutating func `a report of the moment of a decision does not show the result`() {
        #expect(engine.words(fleet(6, .warning, short: 50, [leaving()])) == ["job: suspend"])
        let frozen = unit("job", .background, .suspended, since: 6) { ($0.isWarnable, $0.isSaved) = (false, true) }
        #expect(engine.words(fleet(6, .warning, short: 50, [frozen])) == [])
        #expect(engine.words(fleet(6.1, .warning, short: 50, [frozen])) == ["job: kill suspended"])
    }

    @Test mutating func `an evaluation stays due at the end of the time for an answer`() {
        #expect(engine.words(fleet(6, .warning, [leaving()])) == ["job: suspend"])
        let later = fleet(7, .warning, [unit("job", .background, .suspending, since: 6) { $0.isWarnable = false }])
        #expect(engine.words(later) == [] && engine.nextEvaluation(after: later) == .seconds(4))
    }

    @Test mutating func `C36 an evaluation is due when an allowance or grace ends, and at normal none is throttled`() {
        var over = unit("job") {
            ($0.allowance, $0.backgroundSince, $0.isWarnable, $0.suspension) = (.seconds(60), .zero, false, .never)
        }
        let before = fleet(59, .warning, [over])
        #expect(engine.words(before) == [] && engine.nextEvaluation(after: before) == .seconds(1))
        #expect(engine.words(fleet(60, .normal, [over])) == [])
        (over.isThrottled, over.throttledSince) = (true, .seconds(60))
        let after = fleet(70, .warning, [over])
        #expect(engine.words(after) == [] && engine.nextEvaluation(after: after) == .seconds(20))
    }
}
