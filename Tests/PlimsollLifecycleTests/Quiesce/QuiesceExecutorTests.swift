import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct QuiesceExecutorTests {
    let set = QuiesceSet(time: ManualClock().timekeeper)

    @Test func `C38 C39 a paused executor keeps every step and loses none, under flapping states`() async {
        let executor = PausableExecutor("scene")
        set.add(executor)
        let steps = Tally()
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<100 {
                group.addTask(executorPreference: executor) {
                    for _ in 0..<50 {
                        steps.add(1)
                        await giveWay()
                    }
                }
            }
            for _ in 0..<500 {
                set.setState(.inactive)
                await giveWay()
                set.setState(.active)
            }
            await group.waitForAll()
        }
        #expect(steps.count == 5000 && executor.waiting == 0)
    }

    @Test func `C38 a task on a paused executor stops at the next suspension and goes on there`() async {
        let executor = PausableExecutor("scene"), began = Latch(), goOn = Latch(), log = Log<Int>()
        set.add(executor)
        let task = Task(executorPreference: executor) { @concurrent in
            log.add(1)
            began.open()
            await goOn.wait()
            log.add(2)
        }
        await began.wait()
        set.setState(.inactive)
        goOn.open()
        await until { executor.waiting != 0 }
        #expect(log.all == [1])
        set.setState(.background)
        await task.value
        #expect(log.all == [1, 2], "begun work continues in the background")
    }

    @Test func `C35 an executor with pausesInBackground is paused in the background`() async {
        let executor = PausableExecutor("scene", pausesInBackground: true)
        let registration = set.add(executor)
        set.setState(.background)
        let task = Task(executorPreference: executor) { @concurrent in 1 }
        #expect(executor.waiting == 1)
        registration.cancel()
        #expect(await task.value == 1, "the executor has left the set")
        executor.quiesce(to: .paused)
        let next = Task(executorPreference: executor) { @concurrent in 2 }
        #expect(executor.waiting == 1)
        executor.quiesce(to: .open)
        #expect(await next.value == 2)
    }
}
