import PlimsollTesting
import Testing

@testable import Plimsoll

/// The bounds from which a pause is a gap.
@Suite struct HeartbeatTests {
    let clock = ManualClock()

    @Test func `each sleep of the host counts by itself, from more than the tolerance on`() {
        clock.sleepHost(for: .seconds(3600))
        let heartbeat = Heartbeat(time: clock.timekeeper), tolerance = Heartbeat.tolerance
        let rows: [(slept: Duration, isGap: Bool)] = [
            (.zero, false), (.milliseconds(600), false), (.milliseconds(600), false), (tolerance, false),
            (tolerance + .nanoseconds(1), true), (.seconds(60), true), (.zero, false),
        ]
        for row in rows {
            clock.sleepHost(for: row.slept)
            let gap = heartbeat.beat(.loop, next: nil)
            #expect(gap == (row.isGap ? RunningGap(.hostSleep, row.slept) : nil), "\(row.slept)")
            #expect(gap?.isHostSleep != false)
        }
        #expect(heartbeat.gaps == 2 && heartbeat.running == .zero && !RunningGap(.frozen, .seconds(2)).isHostSleep)
    }

    @Test func `a sleep of the host counts as one, also if the machine took seconds to fall asleep and to wake`() {
        let heartbeat = Heartbeat(time: clock.timekeeper)
        #expect(heartbeat.beat(.loop, next: .seconds(1)) == nil)
        clock.freeze(for: .seconds(4))
        clock.sleepHost(for: .seconds(3600))
        #expect(heartbeat.beat(.loop, next: nil) == RunningGap(.hostSleep, .seconds(3603)))
        #expect(heartbeat.gaps == 1 && heartbeat.running == .seconds(1) && heartbeat.beat(.loop, next: nil) == nil)
    }

    @Test func `running time goes on up to the tolerance after a promise, and stands still from then on`() {
        let heartbeat = Heartbeat(time: clock.timekeeper), tolerance = Heartbeat.tolerance
        #expect(heartbeat.beat(.loop, next: .seconds(5)) == nil && heartbeat.beat(.alarms, next: .seconds(3)) == nil)
        clock.freeze(for: .seconds(3) + tolerance)
        #expect(!heartbeat.isLate && heartbeat.running == .seconds(3) + tolerance)
        clock.freeze(for: .nanoseconds(1))
        #expect(heartbeat.isLate && heartbeat.running == .seconds(3) && heartbeat.gaps == 0)
        let gap = heartbeat.beat(.loop, next: .seconds(5))
        #expect(gap == RunningGap(.frozen, tolerance + .nanoseconds(1)))
        #expect(!heartbeat.isLate && heartbeat.running == .seconds(3) && heartbeat.gaps == 1)
        clock.freeze(for: .seconds(5))
        #expect(!heartbeat.isLate && heartbeat.running == .seconds(8))
    }
}
