import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// Calls with a budget, and pauses of tasks.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BoundedCallsTests {
    struct Broken: Error {}

    let clock = ManualClock()
    let alarms: Alarms
    let threads = HandlerThreads()

    init() { alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper)) }

    @Test func `calls that end have their outcomes in order, and leave no alarm`() async {
        let alarms = alarms, threads = threads
        let bodies: [BoundedCalls.Body] = [{}, { throw Broken() }, {}]
        let outcomes = await TestSupport.onThread {
            BoundedCalls.run(bodies, within: .seconds(5), alarms: alarms, threads: threads)
        }
        #expect(outcomes == [.done, .failed("Broken()"), .done])
        clock.advance(by: .milliseconds(1))
        #expect(alarms.pending == 0)
    }

    @Test func `a call that blocks is late at the end of the budget, and not before`() async {
        let alarms = alarms, threads = threads, blockade = Blockade(), ended = Counter()
        let task = Task {
            await TestSupport.onThread {
                let bodies: [@Sendable () -> Void] = [{}, { blockade.wait() }]
                let outcomes = BoundedCalls.run(blocking: bodies, within: .seconds(5), alarms: alarms, threads: threads)
                ended.add(1)
                return outcomes
            }
        }
        await until { blockade.count == 1 && threads.busy == 1 && alarms.pending == 1 }
        clock.advance(by: .milliseconds(4900))
        #expect(ended.value == 0)
        clock.advance(by: .milliseconds(100))
        let outcomes = await task.value
        blockade.open()
        #expect(outcomes == [.done, .late])
    }

    @Test func `calls without a budget are not waited for`() async {
        let alarms = alarms, threads = threads, blockade = Blockade()
        let outcomes = await TestSupport.onThread {
            BoundedCalls.run(blocking: [{ blockade.wait() }], within: .zero, alarms: alarms, threads: threads)
        }
        #expect(outcomes == [.late] && alarms.total == 0)
        blockade.open()
    }

    @Test func `the first end of a pause counts, before the wait and during the wait`() async {
        let early = Pause(), late = Pause()
        early.end(false)
        early.end(true)
        let first = await early.wait()
        let wait = Task { await late.wait() }
        late.end(true)
        late.end(false)
        let second = await wait.value
        #expect(!first && second)
    }

    @Test func `a pause ends with its delay, with an end, or with the task, and leaves no alarm`() async {
        let alarms = alarms
        for (end, expected) in [("delay", true), ("end", false), ("cancellation", false)] {
            let pause = Pause(), wait = Task { await pause.wait(.seconds(5), on: alarms) }
            await until("\(end): an alarm") { alarms.pending == 1 }
            switch end {
            case "delay": clock.advance(by: .seconds(5))
            case "end": pause.end(false)
            default: wait.cancel()
            }
            let outcome = await wait.value
            #expect(outcome == expected, "\(end)")
            clock.advance(by: .milliseconds(1))
            #expect(alarms.pending == 0, "\(end)")
        }
    }

    @Test func `a pause that ignores cancellation lasts for its delay`() async {
        let alarms = alarms, pause = Pause()
        let wait = Task { await pause.wait(.seconds(5), on: alarms, endsOnCancellation: false) }
        await until("an alarm") { alarms.pending == 1 }
        wait.cancel()
        clock.advance(by: .seconds(5))
        let isOver = await wait.value
        #expect(isOver)
    }
}
