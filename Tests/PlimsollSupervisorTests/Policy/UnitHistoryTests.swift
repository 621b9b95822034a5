import Plimsoll
import Testing

@testable import PlimsollSupervisor

/// Tests of the state kept about a unit between evaluations.
@Suite struct UnitHistoryTests {
    @Test func `a failed step is not tried again until the rest is over, and the earliest end of a rest is told`() {
        var history = UnitHistory()
        history.fail(.background, at: .seconds(1), rest: .seconds(30))
        history.fail(.throttle(true), at: .seconds(10), rest: .seconds(30))
        #expect(history.hasFailed(.background, at: .milliseconds(30_999)))
        #expect(!history.hasFailed(.background, at: .seconds(31)) && history.hasFailed(.throttle, at: .seconds(31)))
        #expect(!history.hasFailed(.suspend, at: .seconds(11)) && !history.hasFailed(.kill, at: .seconds(11)))
        #expect(history.forgetFailures(at: .milliseconds(30_999)) == .seconds(31))
        #expect(history.forgetFailures(at: .seconds(31)) == .seconds(40))
        #expect(history.forgetFailures(at: .seconds(40)) == nil)
        #expect(history == UnitHistory())
    }

    @Test func `a step that fails again rests anew, and other steps rest as before`() {
        var history = UnitHistory()
        history.fail(.background, at: .seconds(1), rest: .seconds(30))
        history.fail(.background, at: .seconds(5), rest: .seconds(30))
        #expect(history.forgetFailures(at: .seconds(6)) == .seconds(35))
        history.fail(.throttle(true), at: .seconds(20), rest: .seconds(30))
        #expect(history.forgetFailures(at: .seconds(21)) == .seconds(35))
        #expect(history.hasFailed(.background, at: .seconds(34)) && history.hasFailed(.throttle, at: .seconds(49)))
    }

    @Test func `only a failed freeze needs a rollback`() {
        for action in [UnitAction.suspend, .resume(.room), .background, .end(.kill)] {
            var history = UnitHistory()
            history.fail(action, at: .zero, rest: .seconds(30))
            #expect(history.needsRollback == (action == .suspend), "\(action)")
        }
    }

    @Test func `the progress of an end is forgotten with the end, and so is a given-up unit`() {
        var history = UnitHistory()
        history.noteEnd(unit("a", .background, .ending, since: 1), at: .seconds(2))
        #expect(history.end == UnitHistory.End(least: .mebibytes(100), since: .seconds(1)))
        history.isGivenUp = true
        history.noteEnd(unit("a", .background, .ending, since: 1), at: .seconds(3))
        #expect(history.end?.since == .seconds(1) && history.isGivenUp)
        history.noteEnd(unit("a", .background, .stopped, since: 4), at: .seconds(4))
        #expect(history == UnitHistory())
    }

    /// The notice was sent at 5 s.
    @Test(
        arguments: [
            (nil, 0, .running, true), (4, 0, .running, true), (5, 0, .running, false), (6, 0, .running, false),
            (nil, 5, .running, true), (nil, 6, .running, false), (4, 6, .running, true), (4, 6, .starting, false),
            (4, 5, .starting, true),
        ] as [(Double?, Double, UnitState, Bool)])
    func `a notice counts until a report has a later one, or a process started after the notice`(
        notifiedAt: Double?, since: Double, state: UnitState, counts: Bool
    ) {
        var history = UnitHistory()
        history.notice = .init(level: .warning, at: .seconds(5))
        var report = unit("a", .background, state, since: since) { $0.notified = .critical }
        report.notifiedAt = notifiedAt.map { .seconds($0) }
        let known = history.notified(report)
        let level: PressureLevel = counts ? .warning : .critical
        let time: Duration? = counts ? .seconds(5) : report.notifiedAt
        #expect(known.level == level && known.at == time)
    }

    @Test(
        arguments: [
            (.background, [.stopped, .leaving, .suspending, .suspended, .ending]), (.suspend, [.stopped, .suspended]),
            (.resume(.room), [.stopped, .starting, .running, .ending]), (.resume(.ending), [.stopped, .starting]),
            (.end(.kill), [.stopped, .starting]),
            (.start, [.starting, .running, .leaving, .suspending, .suspended, .ending]),
            (.reclaim(.zero), []), (.warn(.warning), []), (.release(.zero), []), (.throttle(true), []),
            (.throttle(false), UnitState.allCases),
        ] as [(UnitAction, [UnitState])])
    func `a later report shows an action done by the state of the unit`(action: UnitAction, states: [UnitState]) {
        let pending = UnitHistory.Pending(action: action, at: .seconds(5), until: .seconds(10))
        let shown = UnitState.allCases.filter { pending.isShown(by: unit("a", .background, $0, since: 6)) }
        #expect(shown == states)
    }

    @Test func `a process that started with the decision has not ended by then`() {
        for (since, isEnded) in [(4.0, false), (5, false), (5.1, true)] {
            let pending = UnitHistory.Pending(action: .end(.kill), at: .seconds(5), until: .seconds(10))
            #expect(pending.isShown(by: unit("a", .background, .starting, since: since)) == isEnded, "\(since)")
        }
        let throttled = unit("a") { $0.isThrottled = true }
        for on in [true, false] {
            let pending = UnitHistory.Pending(action: .throttle(on), at: .seconds(5), until: .seconds(10))
            #expect(pending.isShown(by: throttled) == on)
        }
    }
}

/// Tests of the times of units over their background allowance.
@Suite struct ThrottlePlanTests {
    private func snapshot(
        _ state: UnitState = .running, since: Double = 0, change: (inout UnitReport) -> Void
    ) -> UnitSnapshot {
        let report = unit("a", .background, state, since: since) {
            ($0.allowance, $0.backgroundSince) = (.seconds(60), .zero)
            change(&$0)
        }
        return UnitSnapshot(report, memory: UnitHistory(), policy: .standard)
    }

    @Test(
        arguments: [
            (0, nil, 99.9, false), (0, nil, 100, true), (1, 110, 100, false), (1, 110, 109.9, false),
            (1, 110, 110, true), (2, 110, 110, true),
        ] as [(Int, Double?, Double, Bool)])
    func `C36 T33 a throttled unit may be ended after the grace, and with tasks after their time as well`(
        tokens: Int, tokensEnd: Double?, now: Double, mayEnd: Bool
    ) {
        let over = snapshot(.leaving, since: 100) {
            ($0.isThrottled, $0.throttledSince, $0.tokens) = (true, .seconds(70), tokens)
            $0.tokensEnd = tokensEnd.map { .seconds($0) }
        }
        #expect(ThrottlePlan.mayEnd(over, at: .seconds(now), .standard) == mayEnd)
    }

    @Test(arguments: [(59.9, false), (60, true), (60.1, true)])
    func `C36 no time counts before the allowance is spent`(now: Double, isSpent: Bool) {
        let early = snapshot { ($0.isThrottled, $0.throttledSince) = (true, .seconds(20)) }
        #expect(ThrottlePlan.mayEnd(early, at: .seconds(now), .standard) == isSpent)
        let free = snapshot { _ in }
        #expect(ThrottlePlan.isDue(free, at: .seconds(now)) == isSpent)
        #expect(ThrottlePlan.isProtected(free, at: .seconds(now), .standard) == isSpent)
        #expect(!ThrottlePlan.mayEnd(free, at: .seconds(now), .standard))
    }

    @Test(arguments: [(59.9, false), (60, true), (89.9, true), (90, false), (90.1, false)])
    func `C36 a throttled unit is protected from the end of the allowance to the end of the grace`(
        now: Double, isProtected: Bool
    ) {
        let over = snapshot { ($0.isThrottled, $0.throttledSince) = (true, .seconds(60)) }
        #expect(ThrottlePlan.isProtected(over, at: .seconds(now), .standard) == isProtected)
    }

    @Test func `C36 a unit without an allowance, or in the foreground, is neither throttled nor protected`() {
        for isInFront in [true, false] {
            for isThrottled in [true, false] {
                let unbound = snapshot {
                    ($0.isThrottled, $0.throttledSince) = (isThrottled, .seconds(60))
                    if isInFront { ($0.role, $0.backgroundSince) = (.foreground, nil) } else { $0.allowance = nil }
                }
                #expect(ThrottlePlan.spent(unbound) == nil && !ThrottlePlan.isDue(unbound, at: .seconds(900)))
                #expect(!ThrottlePlan.mayEnd(unbound, at: .seconds(900), .standard))
                #expect(!ThrottlePlan.isProtected(unbound, at: .seconds(70), .standard))
            }
        }
    }
}
