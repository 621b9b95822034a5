import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct AlarmTests {
    let clock = ManualClock()
    let gaps = Log<RunningGap>()
    let calls = Log<String>()

    private func alarms() -> Alarms {
        let alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper))
        alarms.whenGapEnds { [gaps] in gaps.add($0) }
        return alarms
    }

    @Test func `alarms go off in the order of their time, once`() {
        let alarms = alarms()
        for (delay, name) in [(3, "c"), (1, "a"), (2, "b"), (3, "d")] { alarms.set(.timer, after: .seconds(delay)) { [calls] in calls.add(name) } }
        clock.advance(by: .seconds(2))
        #expect(calls.all == ["a", "b"])
        clock.advance(by: .seconds(10))
        #expect(calls.all == ["a", "b", "c", "d"] && gaps.all.isEmpty)
    }

    @Test func `an alarm that was looked at many times is called as directly as another`() {
        let alarms = alarms(), depths = Log<UInt>()
        let old = alarms.set(.timer, after: .seconds(1)) { depths.add(stackAddress()) }
        for _ in 0..<1000 { #expect(!old.isOver) }
        alarms.set(.timer, after: .seconds(1)) { depths.add(stackAddress()) }
        clock.advance(by: .seconds(1))
        #expect(depths.all.count == 2 && Set(depths.all).count == 1, "\(depths.all)")
    }

    @Test func `a cancelled alarm does not go off`() {
        let alarms = alarms()
        let alarm = alarms.set(.deadline, after: .seconds(1)) { [calls] in calls.add("never") }
        alarm.cancel()
        clock.advance(by: .seconds(2))
        #expect(calls.all.isEmpty)
    }

    @Test func `T30 K35 a freeze moves deadlines, not timers, and timers wait for the end of the gap`() {
        let alarms = alarms()
        alarms.set(.deadline, after: .seconds(5)) { [calls] in calls.add("deadline") }
        alarms.set(.timer, after: .seconds(5)) { [calls] in calls.add("timer") }
        clock.advance(by: .seconds(1))
        clock.freeze(for: .seconds(60))
        #expect(gaps.all.count == 1 && gaps.all[0].kind == .frozen && gaps.all[0].length > .seconds(59))
        #expect(calls.all.isEmpty)
        alarms.release()
        #expect(calls.all == ["timer"])
        clock.advance(by: .seconds(3.5))
        #expect(calls.all == ["timer"])
        clock.advance(by: .seconds(0.5))
        #expect(calls.all == ["timer", "deadline"])
    }

    @Test func `timers wait for the way back from every gap`() {
        let alarms = alarms()
        alarms.set(.timer, after: .seconds(5)) { [calls] in calls.add("timer") }
        for _ in 0..<2 { clock.freeze(for: .seconds(60)) }
        #expect(gaps.all.count == 2)
        alarms.release()
        #expect(calls.all.isEmpty)
        alarms.release()
        #expect(calls.all == ["timer"])
    }

    @Test func `C11 a host that slept is distinguished from a process that was frozen`() {
        let alarms = alarms()
        alarms.set(.deadline, after: .seconds(5)) { [calls] in calls.add("deadline") }
        clock.sleepHost(for: .seconds(3600))
        #expect(gaps.all == [RunningGap(.hostSleep, .seconds(3600))] && calls.all.isEmpty)
    }

    @Test func `T30 with the machine's own time, a thread is started and fires alarms in time`() async {
        let time = Timekeeper.running, alarms = Alarms(time: time, heartbeat: Heartbeat(time: time))
        alarms.set(.timer, after: .milliseconds(20)) { [calls] in calls.add("timer") }
        alarms.set(.deadline, after: .milliseconds(10)) { [calls] in calls.add("deadline") }
        await until("both alarms") { calls.all.count == 2 }
        #expect(Set(calls.all) == ["timer", "deadline"] && time.elapsed() >= .milliseconds(20))
    }

    @Test func `payloads leave the queue by due time, equal ones in the order of insertion`() {
        for seed in seeds(0..<20) {
            var random = SeededGenerator(seed: seed), queue = AlarmQueue<Int>(), model: [(due: Int, payload: Int)] = []
            for payload in 0..<500 {
                if Int.random(in: 0..<3, using: &random) < 2 {
                    let due = Int.random(in: 0..<100, using: &random)
                    queue.insert(payload, due: .seconds(due))
                    model.insert((due, payload), at: model.firstIndex { $0.due > due } ?? model.count)
                } else {
                    let now = Int.random(in: 0..<100, using: &random)
                    let expected = model.first.map { $0.due <= now } == true ? model.removeFirst().payload : nil
                    #expect(queue.popFirst(dueBy: .seconds(now)) == expected, "seed \(seed)")
                }
                #expect(queue.count == model.count && queue.first == model.first?.payload, "seed \(seed)")
                #expect(queue.next == model.first.map { .seconds($0.due) }, "seed \(seed)")
            }
        }
    }

    @Test func `the first thread to poll notices a gap, once, and running time does not advance until then`() {
        let heartbeat = Heartbeat(time: clock.timekeeper)
        #expect(heartbeat.beat(.loop, next: .seconds(10)) == nil)
        #expect(heartbeat.beat(.alarms, next: .seconds(1)) == nil)
        clock.freeze(for: .seconds(60))
        #expect(heartbeat.isLate && heartbeat.running == .seconds(1))
        #expect(heartbeat.beat(.loop, next: .seconds(10)) == RunningGap(.frozen, .seconds(59)))
        #expect(heartbeat.beat(.alarms, next: .seconds(1)) == nil)
        #expect(!heartbeat.isLate && heartbeat.running == .seconds(1) && heartbeat.gaps == 1)
    }

    @Test func `a beat that is late by the tolerance is no gap, and a nanosecond more is a gap`() {
        let heartbeat = Heartbeat(time: clock.timekeeper)
        #expect(heartbeat.beat(.loop, next: .zero) == nil)
        clock.freeze(for: Heartbeat.tolerance)
        #expect(heartbeat.beat(.loop, next: .zero) == nil)
        clock.freeze(for: Heartbeat.tolerance + .nanoseconds(1))
        #expect(heartbeat.beat(.loop, next: nil) == RunningGap(.frozen, Heartbeat.tolerance + .nanoseconds(1)))
    }

    @Test func `with a far deadline the thread sleeps between its polls`() async {
        let reads = Counter(), readsBefore = Log<Int>(), real = Timekeeper.running
        let time = Timekeeper {
            reads.add(1)
            return real.elapsed()
        }
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time)), far = alarms.set(.deadline, after: .seconds(3600)) {}
        let near = alarms.set(.timer, after: .milliseconds(300)) { readsBefore.add(reads.value) }
        await until("the near alarm") { !readsBefore.all.isEmpty }
        // Noted at the call: the thread goes on polling until this task gets a thread of the pool. A poll reads the time a
        // few times. A thread that never slept would poll thousands of times.
        #expect(readsBefore.all.first ?? .max < 200, "two polls are due, and as many for each stride by which a busy machine is late")
        for alarm in [far, near] { alarm.cancel() }
    }
}
