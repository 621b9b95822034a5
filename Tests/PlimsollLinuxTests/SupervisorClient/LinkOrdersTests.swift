import Glibc
import Plimsoll
import PlimsollLifecycle
import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import PlimsollLinux

/// A link's view of its service, and the messages that follow.
@Suite struct LinkOrdersTests {
    private func saveAgain(_ orders: LinkOrders) async {
        let isDone = Mutex(false)
        orders.saveAgain { isDone.withLock { $0 = true } }
        await until("the state is saved again") { isDone.withLock { $0 } }
    }

    /// Expects another save, no report of saved state before its end, and the changed state in the store.
    private func expectAnotherSave(_ orders: LinkOrders, _ store: MemoryStateStore) async throws {
        let snapshot = orders.read()
        #expect(snapshot.needsSave && snapshot.messages.contains(.saved(false)) && snapshot.messages.contains(.state(.background)), "\(snapshot)")
        await saveAgain(orders)
        let last = orders.read()
        #expect(!last.needsSave && last.messages.contains(.saved(true)) && last.messages.contains(.state(.suspendedReady)), "\(last)")
        #expect(try store.read("state")?.last == 7)
    }

    @Test(arguments: [false, true])
    func `C43 T33 a background task that ends between two polls causes a save before the report, until the service comes back`(isOfScene: Bool)
        async throws
    {
        // The clock stands still: on a busy machine late threads would pass for a freeze.
        let manager = ResourceManager(source: ScriptedPressureSource(), clock: ManualClock())
        let lifecycle = manager.lifecycle, store = MemoryStateStore()
        let work = Mutex<UInt8>(0)
        lifecycle.preserve("state", in: store, snapshot: { work.withLock { [$0] } }, restore: { _ in })
        try await lifecycle.launch()
        let scene = lifecycle.connectScene("tenant", reason: .userRequest) { _ in }
        await scene.connected()
        let orders = LinkOrders(manager, onEnding: nil)
        #expect(orders.read().messages.contains(.state(.foreground)))
        // No poll happens from here to the task's end.
        let task =
            isOfScene
            ? scene.beginBackgroundTask("flush", onExpiration: { _, _ in }) : manager.beginBackgroundTask("flush", onExpiration: { _, _ in })
        try await lifecycle.enterBackground(cause: .operator)
        #expect(try store.read("state")?.last == 0)
        work.withLock { $0 = 7 }
        task.end()
        try await expectAnotherSave(orders, store)
        // Found by the simulation, seed 313: a task that began and ended between two polls changed saved state.
        let atBegin = Mutex<[ChildMessage]>([])
        let begins = manager.onWork { atBegin.withLock { $0 = orders.read().messages } }
        let next =
            isOfScene
            ? scene.beginBackgroundTask("next", onExpiration: { _, _ in }) : manager.beginBackgroundTask("next", onExpiration: { _, _ in })
        let told = atBegin.withLock { exchange(&$0, []) }
        #expect(told.contains(.saved(false)) && told.contains { if case .tasks(1, _) = $0 { true } else { false } }, "\(told)")
        next.end()
        #expect(orders.read().needsSave)
        await saveAgain(orders)
        #expect(orders.read().messages.contains(.saved(true)))
        // Found by the simulation, seed 34: a unit that came back was killed on the strength of that message.
        let onTheWay = Mutex<[ChildMessage]>([])
        let hook = lifecycle.onComingBack("link") { onTheWay.withLock { $0 = orders.read().messages } }
        try await lifecycle.enterForeground(cause: .operator)
        hook.cancel()
        let back = onTheWay.withLock { $0 }
        #expect(back.contains(.saved(false)) && back.contains(.state(.background)), "\(back)")
        #expect(orders.read().messages.contains(.saved(false)))
        // In the foreground no state counts as saved, so no task needs a message.
        manager.beginBackgroundTask("usual", onExpiration: { _, _ in }).end()
        #expect(atBegin.withLock { $0.isEmpty })
        begins.cancel()
    }

    @Test func `C43 T33 a background task that ends after the save and before the arrival causes another save`() async throws {
        let manager = ResourceManager(source: ScriptedPressureSource(), clock: ManualClock())
        let lifecycle = manager.lifecycle, store = MemoryStateStore()
        let orders = LinkOrders(manager, onEnding: nil), work = Mutex<UInt8>(0), late = Mutex<BackgroundTask?>(nil)
        let onTheWay = Mutex<[ChildMessage]>([])
        lifecycle.preserve(
            "state", in: store,
            snapshot: {
                let saved = work.withLock { $0 }
                if let task = late.withLock({ exchange(&$0, nil) }) {
                    work.withLock { $0 = 7 }
                    task.end()
                    // A poll of the link before the arrival.
                    onTheWay.withLock { $0 = orders.read().messages }
                }
                return [saved]
            }, restore: { _ in })
        try await lifecycle.launch()
        #expect(orders.read().messages.contains(.state(.foreground)))
        late.withLock { $0 = manager.beginBackgroundTask("flush", onExpiration: { _, _ in }) }
        try await lifecycle.enterBackground(cause: .operator)
        let told = onTheWay.withLock { $0 }
        #expect(told.contains(.saved(false)) && told.contains(.state(.background)), "\(told)")
        #expect(try store.read("state")?.last == 0)
        try await expectAnotherSave(orders, store)
    }

    @Test(arguments: [false, true])
    func `of two orders that wait for the launch the later one wins`(endsInBackground: Bool) async throws {
        // The runtime resumes the later order first, on another thread. Most rounds would end in the wrong state.
        for _ in 0..<20 {
            let manager = ResourceManager(source: ScriptedPressureSource(), clock: ManualClock())
            let lifecycle = manager.lifecycle, orders = LinkOrders(manager, onEnding: nil)
            let launch = Blockade(), done = Counter()
            lifecycle.observeLaunch("index", willRestore: { launch.wait() })
            let both: [SupervisorMessage] = [.background(deadline: .seconds(5)), .resume]
            for order in endsInBackground ? both.reversed() : both {
                orders.obey(order) { done.add(1) }
                // Only the launch keeps a thread: the order waits.
                await until("the order waits") { launch.count == 1 && manager.parts.threads.busy == 1 }
            }
            launch.open()
            await until("both orders are carried out") { done.value == 2 }
            #expect(lifecycle.state == (endsInBackground ? .background : .active))
        }
    }

    @Test func `the end that a supervisor orders leaves time for the last save before the kill`() async throws {
        // The clock stands still, so the handler sees the whole time that it has.
        let manager = ResourceManager(source: ScriptedPressureSource(), clock: ManualClock())
        let lifecycle = manager.lifecycle, orders = LinkOrders(manager, onEnding: nil)
        let left = Log<Duration>(), done = Counter()
        lifecycle.observe("listener", onInactive: { context in left.add(context.timeRemaining) })
        try await lifecycle.launch()
        orders.obey(.ending(grace: .seconds(10))) { done.add(1) }
        await until("the end") { done.value == 1 }
        let times = left.all
        #expect(lifecycle.state == .notRunning && times.count == 1 && times.allSatisfy { $0 > .seconds(8) && $0 <= .milliseconds(9001) }, "\(times)")
    }

    @Test func `the tasks' time is told again once another end holds, and not while the time runs`() {
        var diff = LinkStateDiff()
        diff.wasSent(.tasks(1, until: .seconds(5)), at: .seconds(100))
        func isChange(_ count: Int, _ until: Duration?, at now: Duration) -> Bool { diff.isChange(.tasks(count, until: until), at: now) }
        #expect(!isChange(1, .seconds(2), at: .seconds(103)))
        // A wake gives the tasks their whole time again.
        #expect(isChange(1, .seconds(30), at: .seconds(103)))
        // The task of another scene has less time.
        #expect(isChange(1, .zero, at: .seconds(103)))
        // Time that is over stays over.
        for later in [105, 200] { #expect(!isChange(1, .zero, at: .seconds(later))) }
        #expect(isChange(1, nil, at: .seconds(103)) && isChange(2, .seconds(2), at: .seconds(103)))
        // Without tasks the time does not matter.
        diff.wasSent(.tasks(0, until: .seconds(30)), at: .seconds(300))
        #expect(!isChange(0, .seconds(30), at: .seconds(310)) && isChange(0, nil, at: .seconds(310)))
    }

    @Test func `a link that could make no eventfd makes one at the next wait, and sleeps for the whole time`() {
        let kernel = ScriptedKernel([:]), manager = ResourceManager(source: ScriptedPressureSource())
        kernel.edit { ($0.failingCall, $0.failure) = (1, EMFILE) }
        let loop = LinkLoop(manager, "/run/supervisor", kernel, LinkPause(first: .milliseconds(100)), LinkOrders(manager, onEnding: nil))
        #expect(loop.wakeup.file < 0)
        let isReady = loop.wait(for: -1, writing: false, atMost: .seconds(1))
        #expect(!isReady && loop.wakeup.file >= 0 && kernel.ask(\.slept) == 1_000_000_000)
    }

    @Test(arguments: [EAGAIN, ECONNREFUSED])
    func `a link to a full supervisor reconnects soon, and a link without a supervisor after growing pauses`(number: Int32) {
        let kernel = ScriptedKernel([:]), path = "/run/supervisor", manager = ResourceManager(source: ScriptedPressureSource())
        kernel.edit { ($0.kinds[path], $0.refusals[path]) = (.socket, number) }
        let running = Mutex<LinkLoop?>(nil)
        // Only the kernel's waits advance the time, and the link ends after ten seconds of that time.
        let time = Timekeeper(elapsed: {
            let now = Duration.nanoseconds(kernel.ask(\.slept))
            if now >= .seconds(10) { running.withLock { $0 }?.stop() }
            return now
        })
        let loop = LinkLoop(manager, path, kernel, LinkPause(first: .milliseconds(100)), LinkOrders(manager, onEnding: nil), time: time)
        running.withLock { $0 = loop }
        loop.run()
        running.withLock { $0 = nil }
        let times = kernel.ask(\.connects), pauses = zip(times.dropFirst(), times).map { $0 - $1 }
        #expect(pauses.first.map { (100_000_000..<150_000_000).contains($0) } == true, "\(pauses)")
        for (pause, next) in zip(pauses, pauses.dropFirst()) { #expect(next == (number == EAGAIN ? pause : 2 * pause)) }
        #expect(number == EAGAIN ? pauses.count > 60 : pauses.count == 6, "\(pauses)")
        #expect(loop.status == .init(problem: "the link was closed"))
    }
}
