import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The doubts of all exclusive resources, their errors, and their reports.
@Suite(.serialized, .timeLimit(.minutes(5))) struct ExclusiveContextTests {
    let clock = ManualClock()
    let manager: ResourceManager

    init() { manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper) }

    @Test func `resources are doubtful from a sleep or a freeze beyond the tolerance until they are verified`() {
        clock.sleepHost(for: .seconds(3600))
        clock.freeze(for: .seconds(10))
        let heartbeat = Heartbeat(time: clock.timekeeper), tolerance = Heartbeat.tolerance
        let context = ExclusiveContext(time: clock.timekeeper, heartbeat: heartbeat)
        #expect(!context.isDoubtful && context.boottime == .seconds(3610))
        clock.sleepHost(for: tolerance)
        #expect(!context.isDoubtful)
        clock.sleepHost(for: .nanoseconds(1))
        #expect(context.isDoubtful)
        context.verify {}
        #expect(!context.isDoubtful && heartbeat.beat(.loop, next: .zero) != nil && context.isDoubtful, "a gap is counted")
        context.verify {}
        #expect(!context.isDoubtful)
        clock.freeze(for: tolerance)
        #expect(!context.isDoubtful)
        clock.freeze(for: .nanoseconds(1))
        #expect(context.isDoubtful, "nobody has noticed the freeze")
        #expect(heartbeat.beat(.loop, next: nil) != nil && context.isDoubtful, "nobody has verified")
        context.verify {}
        #expect(!context.isDoubtful)
    }

    @Test func `each error says if it is for the background, for a doubt, or for a loss`() {
        let rows: [(reason: ExclusiveResourceError.Reason, background: Bool, doubt: Bool, loss: Bool)] = [
            (.duplicateName, false, false, false), (.cycle(["a", "a"]), false, false, false), (.inBackground, true, false, false),
            (.notHeld, false, false, true), (.leaseExpired, false, false, true), (.unverified, false, true, false),
            (.stale(epoch: 1, current: 2), false, false, true), (.cannotBeTaken, false, false, false),
            (.notReleased, false, false, false),
        ]
        for row in rows {
            let error = ExclusiveResourceError(resource: "lock", reason: row.reason)
            #expect(error.isInBackground == row.background && error.isUnverified == row.doubt && error.isLost == row.loss, "\(error)")
        }
    }

    @Test func `the last 64 reports are kept, each with its own time`() async {
        let exclusive = manager.lifecycle.exclusive
        clock.advance(by: .seconds(10))
        await onThread {
            for _ in 0..<35 {
                exclusive.release(within: .seconds(1))
                exclusive.reacquire(within: .seconds(1))
            }
        }
        #expect(exclusive.history.count == 64 && exclusive.history.last?.step == .reacquire)
        #expect(exclusive.history.allSatisfy { $0.took == .zero && $0.done.isEmpty })
    }
}
