import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The decisions about single ticks.
@Suite struct TickScheduleTests {
    /// A schedule with points at 13 s, 23 s, and so on. The first ordinal makes up for a missed tick without a delay.
    private func schedule(makesUp: Bool = false, ordinal: UInt64 = 0) -> TickSchedule {
        TickSchedule(period: .seconds(10), makesUp: makesUp, origin: .seconds(3), ordinal: ordinal)
    }

    @Test func `the next tick is at the next point, or at the first common instant from there on`() {
        let schedule = schedule()
        for (now, point) in [(3000, 13), (12_999, 13), (13_000, 23), (22_999, 23)] {
            #expect(schedule.next(after: .milliseconds(now), .full) == .seconds(point), "\(now)")
            #expect(schedule.resume(at: .milliseconds(now), .full) == .seconds(point), "\(now)")
        }
        for (stride, instant) in [(60, 60), (13, 13), (12, 24), (1, 13)] {
            #expect(schedule.next(after: .seconds(3), .coalesced(.seconds(stride))) == .seconds(instant), "\(stride)")
        }
        #expect(schedule.next(after: .seconds(3), .stopped) == nil && schedule.resume(at: .seconds(3), .stopped) == nil)
    }

    @Test func `a tick counts the points missed since the last one, and one later than the tolerance is skipped`() {
        var schedule = schedule()
        let tolerance = TickSchedule.tolerance
        let decisions = [
            schedule.fire(due: .seconds(13), at: .seconds(13), .full), schedule.fire(due: .seconds(43), at: .seconds(43), .full),
            schedule.fire(due: .seconds(53), at: .seconds(53) + tolerance, .full),
            schedule.fire(due: .seconds(63), at: .seconds(63) + tolerance + .nanoseconds(1), .full),
            schedule.fire(due: .seconds(73), at: .seconds(73), .stopped),
            schedule.fire(due: .seconds(83), at: .seconds(83), .coalesced(.seconds(60))),
            schedule.fire(due: .seconds(120), at: .seconds(120), .coalesced(.seconds(60))),
            schedule.fire(due: .seconds(123), at: .seconds(123), .full),
        ]
        let expected: [TickSchedule.Decision] = [
            .run(missed: 0), .run(missed: 2), .run(missed: 0), .skip, .skip, .postpone(to: .seconds(120)), .run(missed: 5),
            .run(missed: 0),
        ]
        #expect(decisions == expected)
    }

    @Test func `a missed tick is made up for once, soon, and not after the next point`() {
        var first = schedule(makesUp: true), other = schedule(makesUp: true, ordinal: 1)
        let late = Duration.seconds(15), atOnce = first.fire(due: .seconds(13), at: late, .full)
        #expect(atOnce == .run(missed: 0))
        guard case .postpone(let instant) = other.fire(due: .seconds(13), at: late, .full) else {
            Issue.record("the tick is made up for later")
            return
        }
        #expect(instant > late && instant < late + .seconds(1) && other.resume(at: late, .full) == instant)
        #expect(other.resume(at: .milliseconds(22_999), .full) == .seconds(23))
        #expect(other.resume(at: late, .coalesced(.seconds(60))) == .seconds(60))
        let run = other.fire(due: instant, at: instant, .full)
        #expect(run == .run(missed: 0) && other.resume(at: instant, .full) == .seconds(23), "only once")
        #expect(schedule(ordinal: 1).resume(at: late, .full) == .seconds(23), "not made up for")
    }

    @Test func `ticks of long periods are made up for within ten seconds`() {
        let now = Duration.seconds(100_000)
        let delays = (UInt64(0)..<1000).compactMap { ordinal in
            TickSchedule(period: .seconds(1000), makesUp: true, origin: .zero, ordinal: ordinal).resume(at: now, .full).map { $0 - now }
        }
        #expect(delays.count == 1000 && delays.allSatisfy { $0 >= .zero && $0 < .seconds(10) })
        #expect(delays.max() ?? .zero > .milliseconds(9950))
    }
}
