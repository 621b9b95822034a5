import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The thread that makes the calls of alarms, the task that does so without a thread, and gaps on a manual clock.
@Suite(.serialized, .timeLimit(.minutes(5))) struct AlarmThreadTests {
    /// A starter of threads that refuses until opened.
    private final class Starter: Sendable {
        private let state = Mutex((isOpen: false, started: 0))
        var started: Int { state.withLock { $0.started } }

        func open() { state.withLock { $0.isOpen = true } }

        func start(_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
            let isOpen = state.withLock { state in
                if state.isOpen { state.started += 1 }
                return state.isOpen
            }
            return isOpen && Thread.start(name, body)
        }
    }

    @Test func `one thread is started for all alarms, and none with a manual clock`() {
        let clock = ManualClock()
        for (time, threads) in [(Timekeeper(elapsed: { .zero }), 1), (clock.timekeeper, 0)] {
            let asked = Counter()
            let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time)) { _, _ in
                asked.add(1)
                return true
            }
            for _ in 0..<3 {
                alarms.set(.deadline, after: .seconds(1)) {}
                alarms.set(.timer, after: .seconds(1)) {}
                alarms.set(.timer, after: .seconds(2)) {}
            }
            #expect(asked.value == threads && alarms.pending == 9 && alarms.total == 9)
        }
    }

    @Test func `a gap during the calls is noticed after them, and holds the timers`() {
        let now = Mutex(Duration.zero), watcher = Mutex<(@Sendable () -> Void)?>(nil)
        let gaps = Log<RunningGap>(), calls = Counter()
        let time = Timekeeper(
            elapsed: { now.withLock { $0 } }, asleep: { .zero }, onStep: { step in watcher.withLock { $0 = step } })
        let heartbeat = Heartbeat(time: time), alarms = Alarms(time: time, heartbeat: heartbeat)
        alarms.whenGapEnds { gaps.add($0) }
        #expect(heartbeat.beat(.loop, next: .seconds(2)) == nil)
        alarms.set(.timer, after: .seconds(1)) { now.withLock { $0 = .seconds(60) } }
        now.withLock { $0 = .seconds(1) }
        watcher.withLock { $0 }?()
        #expect(gaps.all == [RunningGap(.frozen, .seconds(58))])
        alarms.set(.timer, after: .seconds(1)) { calls.add(1) }
        now.withLock { $0 = .seconds(61) }
        watcher.withLock { $0 }?()
        #expect(gaps.all.count == 1 && calls.value == 0)
        alarms.release()
        #expect(calls.value == 1)
    }

    @Test func `a long step of a manual clock is a gap with no alarm set, and alarms set later come in time`() {
        let clock = ManualClock(), gaps = Log<RunningGap>(), calls = Log<String>()
        let alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper))
        alarms.whenGapEnds { gaps.add($0) }
        clock.advance(by: .seconds(5))
        #expect(gaps.all.isEmpty)
        clock.freeze(for: .seconds(60))
        #expect(gaps.all.map(\.kind) == [.frozen])
        alarms.release()
        alarms.set(.deadline, after: .seconds(5)) { calls.add("deadline") }
        alarms.set(.timer, after: .seconds(5)) { calls.add("timer") }
        clock.advance(by: .milliseconds(4900))
        #expect(calls.all.isEmpty)
        clock.advance(by: .milliseconds(100))
        #expect(Set(calls.all) == ["deadline", "timer"] && calls.all.count == 2 && gaps.all.count == 1)
    }

    @Test func `a waiter without a thread for the alarms looks again after ten milliseconds, another after its limit`() {
        let clock = ManualClock(), still = Timekeeper(elapsed: { .zero }), parker = Parker()
        let without = Alarms(time: still, heartbeat: Heartbeat(time: still))
        for (limit, waited) in [(nil, 10), (1, 1), (10, 10), (5000, 10)] as [(Int?, Int)] {
            let limit = limit.map { Duration.milliseconds($0) }
            #expect(without.wait(on: parker, atMost: limit) == .milliseconds(waited))
        }
        let with = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper))
        for limit in [1, 12] { #expect(with.wait(on: parker, atMost: .milliseconds(limit)) == .milliseconds(limit)) }
        for alarms in [without, with] {
            parker.unpark()
            #expect(alarms.wait(on: parker, atMost: .seconds(5)) == .zero)
        }
    }

    @Test func `a waiter looks again after ten milliseconds while a thread for the alarms is being started`() {
        let time = Timekeeper(elapsed: { .zero }), started = Mutex<Alarms?>(nil), waits = Log<Duration>()
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time)) { _, _ in
            // Another thread may wait at this moment, when the new thread may yet be refused.
            if let all = started.withLock({ $0 }) { waits.add(all.wait(on: Parker(), atMost: .milliseconds(12))) }
            return true
        }
        started.withLock { $0 = alarms }
        alarms.set(.timer, after: .seconds(1)) {}
        started.withLock { $0 = nil }
        #expect(waits.all == [.milliseconds(10)])
    }

    @Test func `a waiter waits for its whole limit beside a thread for the alarms, and not once that thread has left`() async {
        let time = Timekeeper(elapsed: { .zero }), started = Counter(), left = Counter(), calls = Counter()
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time)) { name, body in
            started.add(1)
            return Thread.start(name) {
                body()
                left.add(1)
            }
        }
        let far = alarms.set(.deadline, after: .seconds(3600)) {}
        alarms.set(.timer, after: .zero) { calls.add(1) }
        await until("the call") { calls.value == 1 }
        let beside = await TestSupport.onThread { alarms.wait(on: Parker(), atMost: .milliseconds(12)) }
        #expect(beside == .milliseconds(12) && started.value == 1 && left.value == 0)
        far.cancel()
        await until("the end of the thread") { left.value == 1 }
        let after = await TestSupport.onThread { alarms.wait(on: Parker(), atMost: .milliseconds(12)) }
        #expect(after == .milliseconds(10))
        alarms.set(.timer, after: .zero) { calls.add(1) }
        await until("the call by another thread") { calls.value == 2 }
        #expect(started.value == 2)
    }

    @Test func `an alarm set while a thread takes over is called, although the task takes the wake-up`() async {
        let now = Mutex(Duration.zero), check = Mutex<(@Sendable () -> Void)?>(nil), thread = Mutex(UInt(0))
        let isOpen = Counter(), isSet = Counter(), isOver = Counter(), calls = Counter()
        let time = Timekeeper(
            elapsed: { now.withLock { $0 } },
            asleep: {
                check.withLock { $0 }?()
                return .zero
            }, onStep: nil)
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time)) { name, body in
            guard isOpen.value != 0 else { return false }
            let isStarted = Thread.start(name) {
                thread.withLock { $0 = Thread.current }
                body()
            }
            // Holds the task, which then finds the wake-up before the thread does.
            blockUntil("the alarm is set") { isSet.value != 0 }
            return isStarted
        }
        let far = alarms.set(.timer, after: .seconds(3600)) {}
        // A check by the thread or by the task reads the time of the sleep twice.
        let mine = Counter(), others = Counter()
        let count: @Sendable () -> Void = {
            if Thread.current == thread.withLock({ $0 }) {
                mine.add(1)
                guard mine.value == 2 else { return }
                // The thread's check is over, and has found nothing to do for an hour.
                alarms.set(.deadline, after: Alarms.stride) { calls.add(1) }
                isSet.add(1)
                blockUntil("the task's last check") { others.value == 2 }
                isOver.add(1)
            } else if isSet.value != 0 {
                others.add(1)
            }
        }
        check.withLock { $0 = count }
        isOpen.add(1)
        await until("the task has taken the wake-up") { isOver.value == 1 }
        check.withLock { $0 = nil }
        #expect(calls.value == 0)
        now.withLock { $0 = Alarms.stride }
        await until("the call") { calls.value == 1 }
        far.cancel()
    }

    @Test func `without a startable thread each alarm is called, and a thread takes over as soon as one starts`() async {
        let starter = Starter(), time = Timekeeper.running, calls = Counter()
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time), startThread: starter.start)
        for round in 1...20 {
            alarms.set(round.isMultiple(of: 2) ? .deadline : .timer, after: .zero) { calls.add(1) }
            await until("call \(round)") { calls.value == round }
        }
        let far = alarms.set(.deadline, after: .seconds(3600)) {}
        starter.open()
        await until("a thread is started") { starter.started > 0 }
        for round in 21...24 {
            alarms.set(.deadline, after: .milliseconds(1)) { calls.add(1) }
            await until("call \(round)") { calls.value == round }
        }
        #expect(starter.started == 1)
        far.cancel()
    }

    @Test func `without a startable thread one task makes all calls`() async {
        let time = Timekeeper.running, blockade = Blockade(), calls = Counter()
        let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time), startThread: { _, _ in false })
        alarms.set(.timer, after: .zero) { blockade.wait() }
        // On a thread of its own, because the first call holds a thread of the pool.
        let early = await TestSupport.onThread {
            blockUntil("the first call") { blockade.count == 1 }
            for _ in 0..<4 { alarms.set(.timer, after: .zero) { calls.add(1) } }
            // A few looks suffice to see another task at work.
            var looks = 0
            blockUntil {
                looks += 1
                return calls.value > 0 || looks > 20
            }
            let early = calls.value
            blockade.open()
            return early
        }
        #expect(early == 0)
        await until("the other calls") { calls.value == 4 }
    }

    @Test func `payloads that stay in the queue leave in order, with the first one removed or not`() {
        for seed in seeds(0..<20) {
            var random = SeededGenerator(seed: seed), queue = AlarmQueue<Int>(), kept: [(due: Int, payload: Int)] = []
            for payload in 0..<100 {
                let due = Int.random(in: 0..<40, using: &random)
                queue.insert(payload, due: .seconds(due))
                if payload.isMultiple(of: 3) { kept.append((due, payload)) }
            }
            queue.removeAll(where: { !$0.isMultiple(of: 3) })
            #expect(queue.count == kept.count, "seed \(seed)")
            var left: [Int] = []
            while let payload = queue.popFirst(dueBy: .seconds(39)) { left.append(payload) }
            kept.sort { ($0.due, $0.payload) < ($1.due, $1.payload) }
            #expect(left == kept.map(\.payload) && queue.isEmpty, "seed \(seed)")
        }
    }
}
