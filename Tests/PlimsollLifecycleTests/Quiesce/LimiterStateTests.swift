import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The times at which a limiter's waiters give up.
@Suite struct LimiterStateTests {
    private typealias State = LimiterState<Int>

    private func state(mostWaiting: Int = 10, pausePatience: Duration? = nil) -> State {
        State(.init(limit: 1, inBackground: 1, mostWaiting: mostWaiting, pausePatience: pausePatience))
    }

    private func sweep(_ arrival: State.Arrival) -> State.Sweep? {
        guard case .waits(_, let sweep) = arrival else { return nil }
        return sweep
    }

    private func reason(_ arrival: State.Arrival) -> AdmissionRefusal.Reason? {
        guard case .refused(let reason) = arrival else { return nil }
        return reason
    }

    @Test func `a sweep is requested for each earlier time, and only the last one counts`() {
        var state = state(), sweeps: [State.Sweep?] = []
        let enters = state.enter(.open), entersAgain = state.enter(.open)
        #expect(enters && !entersAgain)
        for (waiter, patience) in [5, 5, 3, 4].enumerated() {
            sweeps.append(sweep(state.arrive(waiter, .open, patience: .seconds(patience), at: .seconds(1))))
        }
        #expect(sweeps == [State.Sweep(number: 1, due: .seconds(6)), nil, State.Sweep(number: 2, due: .seconds(4)), nil])
        let stale = state.sweep(1, at: .seconds(6))
        #expect(stale.refused.isEmpty && stale.sweep == nil && state.waiting == 4)
        for (number, now, gone) in [(2, 4, 2), (3, 5, 3)] {
            let swept = state.sweep(UInt64(number), at: .seconds(now))
            #expect(swept.refused.map { $0.waiter } == [gone] && swept.refused[0].reason == .waitedTooLong(.seconds(now - 1)))
            #expect(swept.sweep == State.Sweep(number: UInt64(number + 1), due: .seconds(now + 1)))
        }
        #expect(state.expired == 2 && state.waiting == 2 && state.refused == 0 && state.admitted == 1)
    }

    @Test func `two sweeps are ten milliseconds apart at least`() {
        var state = state()
        _ = state.enter(.open)
        for (waiter, patience) in [5000, 5005, 5100].enumerated() {
            _ = state.arrive(waiter, .open, patience: .milliseconds(patience), at: .zero)
        }
        let first = state.sweep(1, at: .seconds(5)), second = state.sweep(2, at: .milliseconds(5010))
        #expect(first.refused.map { $0.waiter } == [0] && first.sweep == State.Sweep(number: 2, due: .milliseconds(5010)))
        #expect(second.refused.map { $0.waiter } == [1] && second.sweep == State.Sweep(number: 3, due: .milliseconds(5100)))
    }

    @Test func `waiters keep the rest of their time on another clock`() {
        var state = state()
        _ = state.enter(.open)
        let none = state.moveClock(by: .seconds(50))
        _ = state.arrive(0, .open, patience: .seconds(5), at: .zero)
        _ = state.arrive(1, .open, patience: nil, at: .zero)
        let moved = state.moveClock(by: .seconds(100))
        #expect(none == nil && moved == State.Sweep(number: 2, due: .seconds(105)))
        let early = state.sweep(2, at: .seconds(104)), late = state.sweep(3, at: .seconds(105))
        #expect(early.refused.isEmpty && early.sweep == State.Sweep(number: 3, due: .seconds(105)))
        #expect(late.refused.map { $0.waiter } == [0] && late.sweep == nil && state.waiting == 1)
    }

    @Test func `each pause has its time limit, and a brief pause has none`() {
        var state = state(pausePatience: .seconds(10)), idle = state
        let held = QuiesceExtent(profile: .paused, isHeld: true)
        let unneeded = idle.poll(.paused, at: .seconds(7))
        #expect(unneeded.sweep == nil, "nobody waits")
        _ = state.enter(.open)
        let arrival = sweep(state.arrive(0, .open, patience: nil, at: .zero))
        let brief = state.poll(held, at: .seconds(5)), pause = state.poll(.paused, at: .seconds(7))
        let again = state.poll(.paused, at: .seconds(8))
        #expect(arrival == nil && brief.sweep == nil && again.sweep == nil)
        #expect(pause.sweep == State.Sweep(number: 1, due: .seconds(17)) && pause.refused.isEmpty)
        let end = state.poll(.open, at: .seconds(9)), over = state.sweep(1, at: .seconds(17))
        #expect(end.admitted.isEmpty && over.refused.isEmpty && over.sweep == nil)
        let next = state.poll(.paused, at: .seconds(20))
        let late = sweep(state.arrive(1, .paused, patience: nil, at: .seconds(25)))
        let swept = state.sweep(2, at: .seconds(30))
        #expect(next.sweep == State.Sweep(number: 2, due: .seconds(30)) && late == nil)
        #expect(swept.refused.map { $0.waiter } == [0] && swept.refused[0].reason == .pausedTooLong(.seconds(10)))
        #expect(swept.sweep == State.Sweep(number: 3, due: .seconds(35)))
    }

    @Test func `without patience for a pause waiters are refused at its begin, and arrivals during the pause`() {
        var state = state(pausePatience: .zero)
        _ = state.enter(.open)
        let waits = state.arrive(0, .open, patience: nil, at: .zero), pause = state.poll(.paused, at: .seconds(1))
        let during = state.arrive(1, .paused, patience: nil, at: .seconds(2))
        #expect(reason(waits) == nil && pause.refused.map { $0.waiter } == [0] && pause.refused[0].reason == .paused)
        #expect(reason(during) == .paused && state.refused == 2 && state.waiting == 0)
        _ = state.poll(.open, at: .seconds(3))
        let after = state.arrive(2, .open, patience: nil, at: .seconds(3))
        #expect(reason(after) == nil && state.waiting == 1)
    }

    @Test func `a full queue refuses, and work that never began is not counted as admitted`() {
        var state = state(mostWaiting: 2)
        _ = state.enter(.open)
        var reasons: [AdmissionRefusal.Reason?] = []
        for waiter in 0..<3 { reasons.append(reason(state.arrive(waiter, .open, patience: nil, at: .zero))) }
        reasons.append(reason(state.arrive(3, .open, patience: .zero, at: .zero)))
        #expect(reasons == [nil, nil, .queueIsFull(mostWaiting: 2), .queueIsFull(mostWaiting: 2)] && state.refused == 2)
        let hasWaiters = state.leave(unused: true)
        #expect(hasWaiters && state.running == 0 && state.admitted == 0)
        let enters = state.enter(.open), polled = state.poll(.open, at: .zero)
        #expect(!enters && polled.admitted == [0] && state.running == 1 && state.admitted == 1)
        let waits = state.arrive(4, .open, patience: .nanoseconds(1), at: .zero)
        let leaves = state.arrive(5, .open, patience: .zero, at: .zero)
        #expect(reason(waits) == nil && reason(leaves) == .queueIsFull(mostWaiting: 2))
        var empty = self.state()
        _ = empty.enter(.open)
        let refused = empty.arrive(0, .open, patience: .zero, at: .zero), isAwaited = empty.leave(unused: false)
        #expect(reason(refused) == .waitedTooLong(.zero) && !isAwaited && empty.admitted == 1)
    }

    @Test func `a queue of waiters knows who is due first, and why`() {
        var queue = WaitQueue<String>()
        let tickets = [
            queue.append("patient"), queue.append("short", deadline: .seconds(10), patience: .seconds(10)),
            queue.append("paused", deadline: .seconds(30), pauseDeadline: .seconds(20)),
            queue.append("both", deadline: .seconds(40), patience: .seconds(40), pauseDeadline: .seconds(40)),
        ]
        #expect(Set(tickets).count == 4 && queue.count == 4 && queue.nextDue == .seconds(10))
        queue.moveDeadlines(by: .seconds(100))
        #expect(queue.nextDue == .seconds(110))
        for (early, due, name, isByPause) in [(109, 110, "short", false), (119, 120, "paused", true), (139, 140, "both", false)] {
            let none = queue.removeDue(by: .seconds(early)), one = queue.removeDue(by: .seconds(due))
            #expect(none.isEmpty && one.map { $0.waiter } == [name] && one.first?.isByPause == isByPause)
        }
        #expect(queue.nextDue == nil && queue.count == 1)
        _ = queue.append("late", pauseDeadline: .seconds(7))
        queue.beginPause(until: .seconds(9))
        #expect(queue.nextDue == .seconds(7))
        let late = queue.removeDue(by: .seconds(8))
        #expect(late.map { $0.waiter } == ["late"] && queue.nextDue == .seconds(9))
        queue.endPause()
        let gone = queue.remove(tickets[1]), unknown = queue.remove(1000), kept = queue.remove(tickets[0])
        #expect(queue.nextDue == nil && gone == nil && unknown == nil && kept == "patient" && queue.count == 0)
    }
}
