import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct LifecycleDeadlineTests {
    let stage = Stage()
    var lifecycle: Lifecycle { stage.lifecycle }

    @Test func `C26 C27 C30 T6 one deadline for all: a blocking observer is named with file and line, the others are served`() async throws {
        let release = Blockade(), lifecycle = lifecycle
        for index in 0..<20 { lifecycle.observe("blocker \(index)", onBackground: { _ in release.wait() }) }
        for index in 0..<50 { stage.observe("quick \(index)") }
        try await lifecycle.launch()
        let report = try await stage.whileTimePasses(beside: release) { try await lifecycle.enterBackground(cause: .operator) }
        let here = report.overran.filter { $0.origin.contains("LifecycleDeadlineTests.swift") }
        #expect(lifecycle.state == .background && here.map(\.name).sorted() == (0..<20).map { "blocker \($0)" }.sorted(), "\(report)")
        #expect(report.took >= .seconds(5) && report.unreached.isEmpty)
        #expect(stage.log.all.filter { $0.hasSuffix("background") }.count == 50)
        release.open()
    }

    @Test func `C26 inactive and background share the five seconds`() async throws {
        let left = Log<Duration>(), clock = stage.clock, lifecycle = lifecycle
        lifecycle.observe("slow", onInactive: { _ in clock.advance(by: .seconds(2)) }, onBackground: { left.add($0.timeRemaining) })
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        #expect(left.all == [.seconds(3)])
    }

    @Test func `C27 by policy an overrun ends the process with a line that names the culprit`() async throws {
        let stage = Stage(LifecyclePolicy(overrunStatus: 70))
        let release = Blockade(), lifecycle = stage.lifecycle
        lifecycle.observe("culprit", onBackground: { _ in release.wait() })
        try await lifecycle.launch()
        _ = try await stage.whileTimePasses(beside: release) { try await lifecycle.enterBackground(cause: .operator) }
        let exit = try #require(stage.exits.first)
        #expect(exit.status == 70 && exit.line.contains("culprit (PlimsollLifecycleTests/LifecycleDeadlineTests.swift"))
        release.open()
    }

    @Test func `C6 T38 a timed-out step is undone once done, never concurrently; a failed step is not`() async throws {
        let release = Blockade(), log = stage.log, lifecycle = lifecycle
        struct Failed: Error {}
        lifecycle.observe(
            "late",
            onBackground: { _ in
                log.add("late begins")
                release.wait()
                log.add("late ends")
            }, onForeground: { _ in log.add("late undone") })
        lifecycle.observe("failing", onBackground: { _ in throw Failed() }, onForeground: { _ in log.add("never") })
        try await lifecycle.launch()
        let down = try await stage.whileTimePasses(beside: release) { try await lifecycle.enterBackground(cause: .operator) }
        let late = down.overran.filter { $0.origin.contains("LifecycleDeadlineTests.swift") }
        #expect(late.map(\.name) == ["late"] && down.failures.contains { $0.hasPrefix("failing: Failed") }, "\(down)")
        try await lifecycle.enterForeground(cause: .operator)
        #expect(log.all == ["late begins"])
        release.open()
        await until { log.all.count >= 3 }
        #expect(log.all == ["late begins", "late ends", "late undone"])
        // The next round runs without a timeout.
        release.open()
        try await lifecycle.enterBackground(cause: .operator)
        try await lifecycle.enterForeground(cause: .operator)
        #expect(log.all == ["late begins", "late ends", "late undone", "late begins", "late ends", "late undone"])
    }

    @Test func `C6 an inverse that blocks holds up the others for a moment, and all are called`() async throws {
        let release = Blockade(), lifecycle = lifecycle
        stage.observe("first")
        lifecycle.observe("blocker", onBackground: { _ in }, onForeground: { _ in release.wait() })
        stage.observe("last")
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        let report = try await stage.whileTimePasses(beside: release) { try await lifecycle.enterForeground(cause: .operator) }
        #expect(report.overran.contains { $0.name == "blocker" } && lifecycle.state == .active, "\(report)")
        #expect(Set(stage.log.all.suffix(4)) == ["last foreground", "first foreground", "last active", "first active"], "\(stage.log.all)")
        release.open()
    }

    @Test func `T7 steps are taken although the cooperative pool is blocked`() async throws {
        stage.observe("a")
        let lifecycle = lifecycle, log = stage.log
        try await lifecycle.launch()
        let went = Counter()
        // The request comes from a separate thread, like the request of a signal handler.
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    let parker = Parker()
                    while went.value == 0 { parker.park(atMost: .milliseconds(1)) }
                }
            }
            lifecycle.threads.run {
                _ = try? await lifecycle.enterBackground(cause: .signal)
                went.add(1)
            }
        }
        #expect(lifecycle.state == .background && log.all.contains("a background"))
    }

    @Test func `T7 a supervisor's request runs on a thread of the manager`() async {
        let threads = stage.manager.parts.threads, inside = Blockade(), ran = Counter()
        lifecycle.runAside {
            inside.wait()
            ran.add(1)
        }
        #expect(threads.busy > 0)
        inside.open()
        await until("the request has ended") { threads.busy == 0 }
        #expect(ran.value == 1)
    }

    @Test func `T30 a freeze in the middle of a step does not count against the deadline`() async throws {
        let clock = stage.clock, left = Log<Duration>(), lifecycle = lifecycle
        lifecycle.observe(
            "frozen",
            onBackground: { context in
                clock.advance(by: .seconds(1))
                clock.freeze(for: .seconds(3600))
                left.add(context.timeRemaining)
            })
        try await lifecycle.launch()
        let report = try await lifecycle.enterBackground(cause: .operator)
        #expect(report.overran.isEmpty && left.all[0] > .seconds(3.5), "\(report) \(left.all)")
    }

    @Test func `C61 the slowest handlers are reported by name`() async throws {
        let clock = stage.clock, lifecycle = lifecycle
        lifecycle.observe("slow", onBackground: { _ in clock.advance(by: .seconds(1)) })
        stage.observe("quick")
        try await lifecycle.launch()
        let report = try await lifecycle.enterBackground(cause: .operator)
        #expect(report.slowest.first?.name == "slow" && report.slowest.first?.took == .seconds(1))
        #expect(lifecycle.reports.last == report && report.description.contains("inactive → background"))
    }

    @Test func `C22 C23 termination stops all work, then cleans up, within a budget of termination's own`() async throws {
        let log = stage.log, release = Blockade(), manager = stage.manager, lifecycle = lifecycle
        stage.observe("a")
        lifecycle.onTerminate("files") { context in log.add("clean, \(manager.backgroundTasks.count) tasks, \(context.timeRemaining)") }
        lifecycle.onTerminate("stuck") { _ in release.wait() }
        try await lifecycle.launch()
        let task = manager.beginBackgroundTask("flush") { task, reason in
            log.add("expired \(reason)")
            task.end()
        }
        // A long budget: if the manual clock stood still, real time would give up the tasks.
        let report = try await stage.whileTimePasses(beside: release) { await lifecycle.terminate(cause: .signal, within: .seconds(60)) }
        #expect(
            log.all.prefix(3) == ["a active", "a inactive", "expired shutdown"] && log.all.last?.hasPrefix("clean, 0 tasks") == true, "\(log.all)")
        #expect(report.overran.contains { $0.name == "stuck" } && lifecycle.state == .notRunning && !task.isActive, "\(report)")
        release.open()
    }

    @Test func `C23 termination has the policy's own time if no other is given`() async throws {
        let stage = Stage(LifecyclePolicy(backgroundDeadline: .seconds(3), terminationDeadline: .seconds(20)))
        let left = Log<Duration>(), lifecycle = stage.lifecycle
        lifecycle.observe("reader", onBackground: { left.add($0.timeRemaining) })
        lifecycle.onTerminate("files") { left.add($0.timeRemaining) }
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        await lifecycle.terminate(cause: .signal)
        #expect(left.all == [.seconds(3), .seconds(20)])
    }

    @Test func `C11 an announced sleep lasts until the host has woken, and the process then rises no further than requested`() async throws {
        let lifecycle = lifecycle, gaps = Log<String>(), threads = stage.manager.parts.threads
        lifecycle.onResume("gap") { gaps.add($0.gap?.kind.rawValue ?? "none") }
        try await lifecycle.launch()
        try await lifecycle.hostWillSleep()
        // A request for the foreground waits for the end of the sleep.
        try await lifecycle.enterForeground(cause: .operator)
        #expect(lifecycle.state == .background)
        // A freeze before the sleep is not the sleep.
        stage.clock.freeze(for: .seconds(60))
        await until("the freeze is handled") { gaps.all == ["frozen"] && lifecycle.arrival != nil && threads.busy == 0 }
        #expect(lifecycle.state == .background && lifecycle.desired.withLock { $0.isHostAsleep })
        // Meanwhile an operator wants the background.
        try await lifecycle.enterBackground(cause: .operator)
        stage.clock.sleepHost(for: .seconds(3600))
        await until("the sleep is handled") {
            gaps.all == ["frozen", "hostSleep"] && !lifecycle.desired.withLock { $0.isHostAsleep } && threads.busy == 0
        }
        #expect(lifecycle.state == .background)
        try await lifecycle.enterForeground(cause: .operator)
        #expect(lifecycle.state == .active)
    }

    @Test func `C11 for host sleep tasks expire and the process goes to the background; after waking the process returns`() async throws {
        let log = stage.log, lifecycle = lifecycle
        stage.observe("a")
        try await lifecycle.launch()
        let task = stage.manager.beginBackgroundTask("upload") { task, reason in
            log.add("expired \(reason)")
            task.end()
        }
        let report = try await lifecycle.hostWillSleep()
        #expect(lifecycle.state == .background && report.transitions.allSatisfy { $0.cause == .hostSleep } && !task.isActive)
        stage.clock.sleepHost(for: .seconds(3600))
        await until { lifecycle.state == .active }
        #expect(log.all.contains("expired hostSleep") && log.all.suffix(2) == ["a foreground", "a active"])
        // A sleep without an announcement is noticed afterwards.
        let gaps = Log<RunningGap?>()
        lifecycle.onResume("gap") { gaps.add($0.gap) }
        stage.clock.sleepHost(for: .seconds(60))
        await until { !gaps.all.isEmpty }
        #expect(gaps.all == [RunningGap(.hostSleep, .seconds(60))])
    }

    @Test func `C11 C94 for host sleep the background tasks of scenes expire as well`() async throws {
        let lifecycle = lifecycle, reasons = Log<ExpirationReason>()
        let scene = lifecycle.connectScene("tenant", reason: .userRequest)
        await scene.connected()
        let task = scene.beginBackgroundTask("upload") { task, reason in
            reasons.add(reason)
            task.end()
        }
        let report = try await lifecycle.hostWillSleep()
        #expect(reasons.all == [.hostSleep] && !task.isActive)
        #expect(lifecycle.state == .background && scene.state == .background && report.overran.isEmpty)
    }

    @Test func `C17 K35 a freeze in the background records suspended and back, then notifies the registered handlers`() async throws {
        let lifecycle = lifecycle, seen = Log<String>()
        lifecycle.onResume("pools") { context in seen.add("\(context.from) \(context.to) \(context.cause) \(context.gap?.kind.rawValue ?? "")") }
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        var transitions = lifecycle.transitions.makeAsyncIterator()
        stage.clock.freeze(for: .seconds(60))
        let (down, up) = (await transitions.next(), await transitions.next())
        #expect(down?.to == .suspended && up?.to == .background && up?.cause == .thaw)
        await until { !seen.all.isEmpty }
        #expect(seen.all == ["suspended background thaw frozen"] && lifecycle.state == .background)
        // In the foreground the process leaves no state, but the handlers are notified as well.
        try await lifecycle.enterForeground(cause: .operator)
        stage.clock.freeze(for: .seconds(60))
        await until { seen.all.count >= 2 }
        #expect(seen.all[1] == "active active thaw frozen" && lifecycle.state == .active)
    }

    @Test func `C17 the handlers of the way back share five seconds, however long the freeze was`() async throws {
        let left = Log<Duration>()
        lifecycle.onResume("pools") { left.add($0.timeRemaining) }
        try await lifecycle.launch()
        stage.clock.freeze(for: .seconds(3600))
        await until("the handler is called") { !left.all.isEmpty }
        #expect(left.all == [.seconds(5)])
    }

    @Test func `C43 each way into the background counts by itself: a failure counts on one way only`() async throws {
        struct Failed: Error {}
        let calls = Counter()
        lifecycle.observe(
            "failing once",
            onBackground: { _ in
                calls.add(1)
                if calls.value == 1 { throw Failed() }
            })
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        #expect(lifecycle.arrival == false)
        try await lifecycle.enterForeground(cause: .operator)
        try await lifecycle.enterBackground(cause: .operator)
        #expect(calls.value == 2 && lifecycle.arrival == true)
    }

    @Test func `C74 an activation brings the process to the foreground and is handled there once, by a later handler too`() async throws {
        let lifecycle = lifecycle, seen = Log<String>()
        try await lifecycle.launch(into: .background)
        try await lifecycle.activate("open", payload: [1])
        #expect(lifecycle.state == .active)
        lifecycle.onActivation("links") { name, payload in seen.add("\(name) \(payload) \(lifecycle.state)") }
        await until { !seen.all.isEmpty }
        try await lifecycle.activate("again")
        #expect(seen.all == ["open [1] active", "again [] active"])
    }

    @Test func `C74 an activation during an interruption is handled once the interruption has ended`() async throws {
        let lifecycle = lifecycle, seen = Log<String>()
        try await lifecycle.launch()
        lifecycle.onActivation("links") { name, payload in seen.add("\(name) \(payload) \(lifecycle.state)") }
        try await lifecycle.interrupt()
        try await lifecycle.activate("open", payload: [1])
        #expect(lifecycle.state == .inactive && seen.all.isEmpty)
        try await lifecycle.endInterruption()
        await until("the request is handled") { !seen.all.isEmpty }
        try await lifecycle.activate("again")
        #expect(seen.all == ["open [1] active", "again [] active"])
    }

    @Test func `C74 an activation returns when its request is handled, also beside another delivery`() async throws {
        let clock = ManualClock().timekeeper, box = Mutex<ActivationInbox?>(nil), taken = Counter(), seen = Log<String>()
        // The other delivery takes all that waits, at each reading of the clock.
        let time = Timekeeper(
            elapsed: {
                if let inbox = box.withLock({ $0 }) { taken.add(inbox.take().count) }
                return clock.elapsed()
            }, asleep: clock.asleep, onStep: clock.onStep)
        let lifecycle = ResourceManager(source: ScriptedPressureSource(), time: time).lifecycle
        lifecycle.onActivation("links") { name, _ in seen.add(name) }
        try await lifecycle.launch()
        box.withLock { $0 = lifecycle.activations }
        try await lifecycle.activate("open")
        #expect(seen.all == ["open"] && taken.value == 0)
    }

    @Test func `C74 activations that blocked handlers held up past the deadline are handled afterwards, each once`() async throws {
        let lifecycle = lifecycle, release = Blockade(), seen = Log<String>()
        try await lifecycle.launch()
        for number in 0..<100 { try await lifecycle.activate("\(number)") }
        lifecycle.onActivation("blocked") { name, _ in
            release.wait()
            seen.add(name)
        }
        _ = try await stage.whileTimePasses(beside: release) {
            await until("the deadline") { lifecycle.reports.contains { !$0.unreached.isEmpty } }
        }
        #expect(seen.all.isEmpty)
        release.open()
        await until("all requests are handled") { seen.all.count >= 100 }
        #expect(seen.all.count == 100 && Set(seen.all).count == 100)
    }

    @Test func `no delivery of activations starts while as many hang as one makes at once, until one of them ends`()
        async throws
    {
        let inbox = ActivationInbox(), width = FanOut.Order.forward.width
        let starts = Counter(), seen = Log<String>(), hanging = Log<CheckedContinuation<Void, Never>>()
        inbox.connect { starts.add(1) }
        _ = inbox.add("links") { name, _ in
            if name == "hangs" { await withCheckedContinuation { hanging.add($0) } }
            seen.add(name)
        }
        for name in Array(repeating: "hangs", count: width) + ["waits"] {
            #expect(inbox.post(ActivationRequest(name: name, payload: [])))
        }
        let calls = inbox.take()
        let delivery = calls.prefix(width).map { call in Task { try await call.body() } }
        await until("all calls hang") { hanging.all.count == width }
        inbox.putBack(calls.suffix(1))
        #expect(starts.value == 0)
        let held = hanging.all
        held.first?.resume()
        await until("a delivery starts") { starts.value > 0 }
        #expect(seen.all == ["hangs"])
        for call in inbox.take() { try await call.body() }
        for call in held.dropFirst() { call.resume() }
        for call in delivery { try await call.value }
        #expect(seen.all.count == width + 1 && seen.all[1] == "waits" && starts.value == 1)
    }

    @Test func `in seeded storms of requests each of a thousand observers is done exactly as often as undone`() async throws {
        let seed = UInt64.random(in: .min ... .max)
        print("seed \(seed)")
        var random = SeededGenerator(seed: seed)
        let balance = (0..<200).map { _ in Counter() }
        for (index, counter) in balance.enumerated() {
            lifecycle.observe(
                "o\(index)", onInactive: { _ in counter.add(1) }, onActive: { _ in counter.add(-1) }, onBackground: { _ in counter.add(10) },
                onForeground: { _ in counter.add(-10) })
        }
        try await lifecycle.launch()
        let lifecycle = lifecycle
        for _ in 0..<30 {
            let choices = (0..<4).map { _ in Int.random(in: 0..<4, using: &random) }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for choice in choices {
                    group.addTask {
                        switch choice {
                        case 0: try await lifecycle.enterBackground(cause: .simulated)
                        case 1: try await lifecycle.enterForeground(cause: .simulated)
                        case 2: try await lifecycle.interrupt()
                        default: try await lifecycle.endInterruption()
                        }
                    }
                }
                try await group.waitForAll()
            }
            for counter in balance { #expect([-1, 0, 10].contains(counter.value), "seed \(seed)") }
        }
        while lifecycle.desired.withLock({ $0.interruptions > 0 }) { try await lifecycle.endInterruption() }
        try await lifecycle.enterForeground(cause: .simulated)
        #expect(lifecycle.state == .active && balance.allSatisfy { $0.value == -1 }, "seed \(seed)")
    }
}
