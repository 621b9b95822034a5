import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct AlarmReleaseTests {
    let clock = ManualClock()

    private func alarms() -> Alarms { Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)) }

    private final class Probe: Sendable {
        let isGone: Switch
        init(_ isGone: Switch) { self.isGone = isGone }
        deinit { isGone.turnOn() }
    }

    @Test func `T2 an alarm releases the captured objects at once, after a cancel and after going off`() {
        let alarms = alarms()
        for isCancelled in [true, false] {
            let isGone = Switch()
            let alarm: Alarms.Alarm
            do {
                let probe = Probe(isGone)
                alarm = alarms.set(.deadline, after: .seconds(3600)) { withExtendedLifetime(probe) {} }
            }
            #expect(!isGone.isOn)
            if isCancelled { alarm.cancel() } else { clock.advance(by: .seconds(3601)) }
            #expect(isGone.isOn)
            alarm.cancel()
        }
    }

    @Test(arguments: [Alarms.Scale.deadline, .timer]) func `cancelled alarms leave before their due time`(scale: Alarms.Scale) {
        let alarms = alarms(), calls = Counter()
        // This alarm is due before all others, so that no cancelled alarm comes to the front.
        alarms.set(scale, after: .seconds(60)) { calls.add(1) }
        for _ in 0..<10_000 {
            alarms.set(scale, after: .seconds(3600)) { calls.add(100) }.cancel()
            #expect(alarms.pending <= 2 * Alarms.fewCancelled + 2)
        }
        clock.advance(by: .seconds(60))
        #expect(calls.value == 1 && alarms.pending <= Alarms.fewCancelled + 1)
    }

    @Test func `a cancelled next alarm leaves at the next poll, and the rest fire in order`() {
        let alarms = alarms(), calls = Log<Int>()
        var random = SeededGenerator(seed: 20_261_123)
        let delays = (0..<2000).map { _ in Int.random(in: 1...500, using: &random) }
        let all = delays.map { delay in alarms.set(.deadline, after: .milliseconds(delay * 10)) { calls.add(delay) } }
        let kept = Set((0..<2000).shuffled(using: &random).prefix(300))
        for index in 0..<2000 where !kept.contains(index) { all[index].cancel() }
        clock.advance(by: .milliseconds(1))
        #expect(alarms.pending <= 300 + Alarms.fewCancelled)
        clock.advance(by: .seconds(6))
        #expect(calls.all == kept.map { delays[$0] }.sorted() && alarms.pending == 0)
    }

    @Test func `C17 a thread more than a second late has found a gap, and a thread less late was busy`() {
        for (late, isGap) in [(0.9, false), (1.1, true), (1.5, true), (2.5, true)] {
            let clock = ManualClock(), heartbeat = Heartbeat(time: clock.timekeeper)
            #expect(heartbeat.beat(.alarms, next: .seconds(1)) == nil)
            clock.freeze(for: .seconds(1 + late))
            #expect(heartbeat.isLate == isGap && heartbeat.running == (isGap ? .seconds(1) : .seconds(1 + late)), "\(late)")
            #expect(heartbeat.beat(.alarms, next: nil) == (isGap ? RunningGap(.frozen, .seconds(late)) : nil), "\(late)")
        }
    }

    @Test func `T30 the thread keeps polling during a far deadline, so that a gap is noticed early`() async {
        // The threads are real, and the time stands still.
        let polls = Counter()
        let time = Timekeeper(elapsed: {
            polls.add(1)
            return .zero
        })
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time))
        let alarm = alarms.set(.deadline, after: .seconds(3600)) {}
        let before = polls.value
        await until("the thread has polled several times") { polls.value > before + 40 }
        alarm.cancel()
    }
}
