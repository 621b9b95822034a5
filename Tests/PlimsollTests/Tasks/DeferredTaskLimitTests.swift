import PlimsollTesting
import TestSupport
import Testing

@testable import Plimsoll

/// The number of deferred tasks at once, the time that they wait, and the store of their requests.
@Suite(.serialized, .timeLimit(.minutes(5))) struct DeferredTaskLimitTests {
    let clock = ManualClock()
    let store = MemoryStateStore()
    let manager: ResourceManager
    let runs = Log<String>()

    init() { manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper) }

    private var deferred: DeferredTasks { manager.deferred }

    private func handle(_ id: String) { deferred.handle(id) { [runs] _ in runs.add(id) } }

    @Test func `no deferred task begins while the limit is zero, in the foreground or the background`() async {
        deferred.limit(foreground: 0, background: -1)
        handle("first")
        deferred.schedule("first")
        #expect(deferred.pending.map(\.isRunning) == [false])
        deferred.limit(foreground: 1, background: 0)
        await until { runs.all == ["first"] && deferred.pending.isEmpty }
        manager.parts.tasks.enterBackground()
        handle("second")
        deferred.schedule("second")
        #expect(deferred.pending.map(\.isRunning) == [false])
        deferred.limit(foreground: 0, background: 1)
        await until { runs.all == ["first", "second"] && deferred.pending.isEmpty }
    }

    @Test func `the sleep of the host counts as time waited`() {
        deferred.schedule("far", earliest: .seconds(3600))
        clock.sleepHost(for: .seconds(1800))
        #expect(deferred.pending.map(\.earliest) == [.seconds(1800)])
        clock.sleepHost(for: .seconds(3600))
        #expect(deferred.pending.map(\.earliest) == [.zero])
    }

    @Test func `a request of an earlier run that is due begins as soon as its store is known`() async {
        deferred.persist(in: store)
        deferred.schedule("near", earliest: .seconds(60))
        clock.freeze(for: .seconds(120))
        let next = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
        next.deferred.handle("near") { [runs] _ in runs.add("near") }
        #expect(next.deferred.persist(in: store) == nil)
        await until { runs.all == ["near"] && next.deferred.pending.isEmpty }
    }

    @Test func `a request whose work is done is removed from the store`() async {
        func stored() -> Int? {
            guard let bytes = try? store.read(StateName.deferred) else { return nil }
            return try? DeferredQueue.decode(bytes).count
        }
        deferred.persist(in: store)
        #expect(stored() == 0)
        deferred.schedule("vacuum")
        #expect(stored() == 1)
        handle("vacuum")
        await until { runs.all == ["vacuum"] && stored() == 0 }
    }

    @Test func `work that was given up but goes on does not keep others from beginning`() async {
        let begun = Counter(), goOn = Counter()
        deferred.limit(foreground: 1, background: 1)
        deferred.handle("stuck") { _ in
            begun.add(1)
            await until { goOn.value != 0 }
        }
        handle("next")
        deferred.schedule("stuck")
        await until { begun.value == 1 }
        deferred.schedule("next")
        #expect(deferred.pending.map(\.isRunning) == [true, false])
        manager.parts.tasks.expire(.pressure, within: .seconds(5))
        clock.advance(by: .seconds(5))
        await until { runs.all == ["next"] }
        goOn.add(1)
        await until { deferred.pending.isEmpty && !manager.parts.tasks.hasLiveTasks }
    }
}
