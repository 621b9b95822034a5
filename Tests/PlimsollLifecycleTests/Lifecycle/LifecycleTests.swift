import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct LifecycleTests {
    let stage = Stage()
    var lifecycle: Lifecycle { stage.lifecycle }

    @Test func `C5 C6 steps go down in order and up in reverse, each complete before the next`() async throws {
        stage.observe("a")
        stage.observe("b")
        try await lifecycle.launch()
        #expect(stage.log.all == ["b active", "a active"] && lifecycle.state == .active)
        let down = try await lifecycle.enterBackground(cause: .operator)
        #expect(Set(stage.log.all[2..<4]) == ["a inactive", "b inactive"] && Set(stage.log.all[4..<6]) == ["a background", "b background"])
        #expect(lifecycle.state == .background && down.transitions.map(\.to) == [.inactive, .background])
        let up = try await lifecycle.enterForeground(cause: .operator)
        #expect(stage.log.all[6...] == ["b foreground", "a foreground", "b active", "a active"])
        #expect(up.transitions.map(\.to) == [.inactive, .active] && up.transitions.map(\.sequence) == [5, 6] && !up.isSuperseded)
    }

    @Test func `C2 C18 the new state is seen at once on the way down, and on the way up when all is ready`() async throws {
        let seen = stage.log, lifecycle = lifecycle
        lifecycle.observe(
            "reader", onInactive: { _ in seen.add("\(lifecycle.state)") }, onActive: { _ in seen.add("\(lifecycle.state)") },
            onBackground: { _ in seen.add("\(lifecycle.state)") }, onForeground: { _ in seen.add("\(lifecycle.state)") })
        #expect(lifecycle.state == .notRunning)
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .idle)
        try await lifecycle.enterForeground(cause: .idle)
        #expect(seen.all == ["inactive", "inactive", "background", "background", "inactive"])
    }

    @Test func `C3 C17 C35 the background is a state for work: one task at a time, within an allowance, while a task lives`() async throws {
        let limiter = ConcurrencyLimiter("render", limit: 8), manager = stage.manager, clock = stage.clock
        lifecycle.pausables.add(limiter)
        try await lifecycle.launch()
        #expect(limiter.statistics.limit == 8 && manager.backgroundTimeRemaining == nil)
        let task = manager.beginBackgroundTask("upload") { task, _ in task.end() }
        try await lifecycle.enterBackground(cause: .idle)
        #expect(limiter.statistics.limit == 1 && task.isActive && manager.backgroundTimeRemaining == .seconds(30))
        clock.advance(by: .seconds(10))
        #expect(manager.backgroundTimeRemaining == .seconds(20))
        // During a freeze of an hour the allowance stands still, and work paused for the way back continues.
        clock.freeze(for: .seconds(3600))
        await until { limiter.statistics.limit == 1 }
        #expect(task.isActive && manager.backgroundTimeRemaining ?? .zero > .seconds(19))
        try await lifecycle.enterForeground(cause: .operator)
        #expect(limiter.statistics.limit == 8 && task.isActive && manager.backgroundTimeRemaining == nil)
        task.end()
    }

    @Test func `C7 C10 a handler receives from, to, cause, sequence and the time left`() async throws {
        let contexts = Log<LifecycleContext>()
        lifecycle.observe("reader", onBackground: { contexts.add($0) })
        for cause in [LifecycleCause.operator, .idle, .pressure, .signal, .hostSleep, .simulated] {
            try await lifecycle.enterBackground(cause: cause)
            try await lifecycle.enterForeground(cause: cause)
        }
        #expect(contexts.all.map(\.cause) == [.operator, .idle, .pressure, .signal, .hostSleep, .simulated])
        #expect(contexts.all.allSatisfy { $0.from == .inactive && $0.to == .background && $0.timeRemaining == .seconds(5) })
        #expect(contexts.all.map(\.sequence) == [4, 8, 12, 16, 20, 24])
    }

    @Test func `C8 C10 an interruption goes no further than inactive, and differs from a return from the background`() async throws {
        stage.observe("a")
        try await lifecycle.launch()
        let causes = Log<String>()
        lifecycle.observe("cause", onActive: { causes.add("\($0.from) \($0.cause.rawValue)") })
        try await lifecycle.interrupt()
        #expect(lifecycle.state == .inactive)
        // Two interruptions at a time: only the end of both ends the interruption.
        try await lifecycle.interrupt()
        try await lifecycle.endInterruption()
        #expect(lifecycle.state == .inactive)
        try await lifecycle.endInterruption()
        #expect(lifecycle.state == .active && stage.log.all == ["a active", "a inactive", "a active"])
        #expect(causes.all == ["inactive interruption"])
    }

    @Test func `C8 the end of an interruption that never began changes nothing, and counts against no later one`() async throws {
        try await lifecycle.launch()
        for _ in 0..<2 {
            try await lifecycle.endInterruption()
            #expect(lifecycle.state == .active)
            try await lifecycle.interrupt()
            #expect(lifecycle.state == .inactive)
            try await lifecycle.endInterruption()
            #expect(lifecycle.state == .active)
        }
    }

    @Test func `C9 T38 one interruption that resigns and returns twice runs each inverse once a step`() async throws {
        stage.observe("a")
        try await lifecycle.launch()
        for _ in 0..<2 {
            try await lifecycle.interrupt()
            try await lifecycle.endInterruption()
        }
        #expect(stage.log.all == ["a active", "a inactive", "a active", "a inactive", "a active"])
    }

    @Test func `C9 opposite steps that have not begun are left out`() async throws {
        let release = Blockade(), entered = Counter()
        lifecycle.observe(
            "slow",
            onInactive: { _ in
                entered.add(1)
                release.wait()
            })
        stage.observe("a")
        try await lifecycle.launch()
        let lifecycle = lifecycle
        let first = Task { try await lifecycle.interrupt() }
        await until { entered.value != 0 }
        // While the first step runs: to the foreground, to the background, and to the foreground again.
        let back = Task { try await lifecycle.endInterruption() }
        await until { lifecycle.unit.engine.target == .active }
        let away = Task { try await lifecycle.enterBackground(cause: .operator) }
        await until { lifecycle.unit.engine.target == .background }
        let again = Task { try await lifecycle.enterForeground(cause: .operator) }
        await until { lifecycle.unit.engine.target == .active }
        release.open()
        _ = try await (first.value, back.value, away.value, again.value)
        #expect(lifecycle.state == .active && !stage.log.all.contains("a background"))
        #expect(entered.value == 1)
    }

    @Test func `C12 an interruption may go straight to termination`() async throws {
        stage.observe("a")
        try await lifecycle.launch()
        try await lifecycle.interrupt()
        let report = await lifecycle.terminate(cause: .signal)
        #expect(report.transitions.map(\.to) == [.notRunning] && !stage.log.all.contains("a background"))
        await #expect(throws: LifecycleError.self) { try await lifecycle.enterForeground(cause: .operator) }
    }

    @Test func `C22 a second termination waits for the one under way`() async throws {
        let log = stage.log, lifecycle = lifecycle, release = Blockade(), entered = Counter()
        lifecycle.onTerminate("files") { _ in
            entered.add(1)
            release.wait()
            log.add("cleaned up")
        }
        try await lifecycle.launch()
        let first = Task { await lifecycle.terminate(cause: .supervisor) }
        await until { entered.value != 0 }
        let second = Task {
            await lifecycle.terminate(cause: .signal)
            log.add("the process may end")
        }
        // A second termination that does not wait would be over.
        await until { lifecycle.unit.engine.waiting == 2 || log.all.contains("the process may end") }
        release.open()
        _ = await (first.value, second.value)
        #expect(log.all == ["cleaned up", "the process may end"] && lifecycle.state == .notRunning)
        await lifecycle.terminate(cause: .signal)
    }

    @Test func `C16 a launch into the background sets up nothing of the foreground until the first return`() async throws {
        stage.observe("a")
        let report = try await lifecycle.launch(into: .background)
        #expect(lifecycle.state == .background && stage.log.all.isEmpty && report.transitions.map(\.to) == [.background])
        try await lifecycle.enterForeground(cause: .operator)
        #expect(stage.log.all == ["a foreground", "a active"])
    }

    @Test func `C3 C16 a launch into the background admits only background work, within an allowance, and a later observer returns`() async throws {
        let some = ConcurrencyLimiter("render", limit: 8), none = ConcurrencyLimiter("import", limit: 8, inBackground: 0)
        let lifecycle = lifecycle, manager = stage.manager
        lifecycle.pausables.add(some)
        lifecycle.pausables.add(none)
        try await lifecycle.launch(into: .background)
        #expect(some.statistics.limit == 1 && none.statistics.limit == 0 && manager.backgroundTimeRemaining == .seconds(30))
        stage.observe("late")
        #expect(stage.log.all.isEmpty && !lifecycle.readiness.isReady)
        try await lifecycle.enterForeground(cause: .operator)
        #expect(some.statistics.limit == 8 && none.statistics.limit == 8 && manager.backgroundTimeRemaining == nil)
        #expect(stage.log.all == ["late foreground", "late active"])
    }

    @Test func `C16 a second launch is refused`() async throws {
        try await lifecycle.launch()
        await #expect(throws: LifecycleError.self) { try await lifecycle.launch(into: .background) }
    }

    @Test func `C19 C20 C21 launch calls hooks before and after restoring state, then is ready with loading still going on`() async throws {
        let log = stage.log, lifecycle = lifecycle
        lifecycle.observeLaunch("hooks") {
            log.add("will, \(lifecycle.readiness.stage)")
        } didRestore: { _ in
            log.add("did, \(lifecycle.state)")
        }
        stage.observe("a")
        let release = Blockade(), loading = Counter()
        lifecycle.warmUp("index") { progress in
            progress(0.5)
            loading.add(1)
            release.wait()
        }
        #expect(!lifecycle.readiness.isReady && lifecycle.readiness.stage == .starting)
        let report = try await lifecycle.launch()
        #expect(log.all == ["will, restoring", "did, notRunning", "a active"] && report.took == .zero)
        await until { loading.value != 0 }
        #expect(lifecycle.readiness.isReady && lifecycle.readiness.stage == .warming && lifecycle.readiness.warming == ["index": 0.5])
        release.open()
        await until { lifecycle.readiness.stage == .complete }
        try await lifecycle.interrupt()
        #expect(lifecycle.readiness.reason == "the process is inactive")
    }

    @Test func `C20 a process is not ready before its state is restored, and complete after the last load only`() async throws {
        let lifecycle = lifecycle, seen = Log<Readiness>(), first = Latch(), second = Latch(), loaded = Counter()
        lifecycle.warmUp("early") { _ in loaded.add(1) }
        await until("a load ends before the launch") { loaded.value == 1 && lifecycle.readiness.warming.isEmpty }
        #expect(!lifecycle.readiness.isComplete && lifecycle.readiness.reason == "not launched")
        lifecycle.observeLaunch(
            "hooks", willRestore: { seen.add(lifecycle.readiness) }, didRestore: { _ in seen.add(lifecycle.readiness) })
        lifecycle.observe("reader", onActive: { _ in seen.add(lifecycle.readiness) })
        lifecycle.warmUp("index") { _ in await first.wait() }
        lifecycle.warmUp("images") { _ in await second.wait() }
        try await lifecycle.launch()
        #expect(seen.all.count == 3 && seen.all.allSatisfy { !$0.isReady && $0.reason == "the state is being restored" })
        #expect(lifecycle.readiness.isReady && !lifecycle.readiness.isComplete)
        first.open()
        await until("the first load is done") { lifecycle.readiness.warming.count == 1 }
        #expect(lifecycle.readiness.warming == ["images": 0] && !lifecycle.readiness.isComplete)
        second.open()
        await until("the second load is done") { lifecycle.readiness.isComplete }
        #expect(lifecycle.readiness.isReady)
        lifecycle.refuseWork()
        #expect(!lifecycle.readiness.isReady && lifecycle.readiness.reason == "the process is shutting down" && lifecycle.state == .active)
    }

    @Test func `data that is loaded after the launch counts as missing until loaded`() async throws {
        let release = Blockade(), lifecycle = lifecycle
        try await lifecycle.launch()
        #expect(lifecycle.readiness.isComplete)
        lifecycle.warmUp("index") { _ in release.wait() }
        #expect(lifecycle.readiness.isReady && !lifecycle.readiness.isComplete)
        release.open()
        await until { lifecycle.readiness.isComplete }
        #expect(lifecycle.readiness.warming.isEmpty)
    }

    @Test func `C25 with a manual resume the end of an interruption waits for a call`() async throws {
        let stage = Stage(LifecyclePolicy(resumesManually: true))
        try await stage.lifecycle.launch()
        try await stage.lifecycle.interrupt()
        try await stage.lifecycle.endInterruption()
        #expect(stage.lifecycle.state == .inactive)
        try await stage.lifecycle.resume()
        #expect(stage.lifecycle.state == .active)
    }

    @Test func `C25 with a manual resume only a call after the last interruption counts, also past a stay in the background`() async throws {
        let stage = Stage(LifecyclePolicy(resumesManually: true)), lifecycle = stage.lifecycle
        try await lifecycle.launch()
        try await lifecycle.endInterruption()
        #expect(lifecycle.state == .active, "no interruption has ended")
        try await lifecycle.interrupt()
        try await lifecycle.interrupt()
        try await lifecycle.endInterruption()
        try await lifecycle.resume()
        #expect(lifecycle.state == .inactive, "an interruption lasts")
        try await lifecycle.endInterruption()
        #expect(lifecycle.state == .inactive, "the call came too early")
        try await lifecycle.enterBackground(cause: .operator)
        try await lifecycle.enterForeground(cause: .operator)
        #expect(lifecycle.state == .inactive, "a stay in the background is no call")
        try await lifecycle.resume()
        #expect(lifecycle.state == .active)
    }

    @Test func `complete transitions are reported to each listener`() async throws {
        var transitions = lifecycle.transitions.makeAsyncIterator()
        try await lifecycle.launch()
        try await lifecycle.interrupt()
        var seen: [LifecycleState] = []
        for _ in 0..<3 { if let next = await transitions.next() { seen.append(next.to) } }
        #expect(seen == [.inactive, .active, .inactive])
    }

    @Test func `a handler that asks for a state does not deadlock`() async throws {
        let lifecycle = lifecycle
        lifecycle.observe(
            "bouncer",
            onBackground: { _ in
                let report = try await lifecycle.enterForeground(cause: .operator)
                #expect(report.isSuperseded)
            })
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        await until { lifecycle.state == .active }
    }

    @Test func `an observer that a handler on the way up registers takes part in every later step`() async throws {
        let lifecycle = lifecycle, log = stage.log, children = Counter()
        lifecycle.observe(
            "parent",
            onForeground: { _ in
                guard children.value == 0 else { return }
                children.add(1)
                lifecycle.observe(
                    "child", onInactive: { _ in log.add("inactive") }, onActive: { _ in log.add("active") },
                    onBackground: { _ in log.add("background") }, onForeground: { _ in log.add("foreground") })
            })
        try await lifecycle.launch()
        for _ in 0..<2 {
            try await lifecycle.enterBackground(cause: .idle)
            try await lifecycle.enterForeground(cause: .idle)
        }
        #expect(log.all == ["active", "inactive", "background", "foreground", "active"])
    }

    @Test func `T1 a cancelled observer is never called again, and may cancel from the callback`() async throws {
        let registration = stage.observe("gone")
        let box = Mutex<Registration?>(nil)
        let own = lifecycle.observe(
            "self",
            onBackground: { [log = stage.log] _ in
                log.add("self")
                box.withLock { $0 }?.cancel()
            })
        box.withLock { $0 = own }
        try await lifecycle.launch()
        registration.cancel()
        for _ in 0..<2 {
            try await lifecycle.enterBackground(cause: .operator)
            try await lifecycle.enterForeground(cause: .operator)
        }
        #expect(stage.log.all == ["gone active", "self"])
    }
}
