import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Deadlines by the machine's own time, many rounds of each. On a manual clock these races do not occur.
@Suite(.serialized, .timeLimit(.minutes(5))) struct DeadlineRaceTests {
    let alarms = Alarms(time: .running, heartbeat: Heartbeat(time: .running))
    let threads = HandlerThreads()

    @Test func `C26 a call of handlers ends although the deadline passed before the beginning`() async {
        let alarms = alarms, threads = threads
        for round in 0..<200 {
            let blockade = Blockade(), outcomes = Log<FanOut.Outcome>()
            let handlers = [FanOut.Handler(name: "stuck") { blockade.wait() }]
            Task { outcomes.add(await FanOut.call(handlers, .reverse, until: .zero, alarms, threads)) }
            let ended = await until("the call of round \(round) ends") { !outcomes.all.isEmpty }
            blockade.open()
            guard ended else { return }
            #expect(outcomes.all[0].overran.map(\.name) + outcomes.all[0].unreached == ["stuck"])
        }
    }

    @Test func `C26 T6 handlers have a last moment after a passed deadline, and a blocking one gets no more`() async {
        let clock = ManualClock(), called = Counter(), blockade = Blockade(), outcomes = Log<FanOut.Outcome>(), threads = threads
        let alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper))
        let handlers = [FanOut.Handler(name: "stuck") { blockade.wait() }, FanOut.Handler(name: "quick") { called.add(1) }]
        for _ in 0..<25 { Task { outcomes.add(await FanOut.call(handlers, .forward, until: .zero, alarms, threads)) } }
        // The clock stands still, and the deadline has passed.
        await until("all quick handlers have returned, and the blocking ones are left") { called.value == 25 && threads.busy == 25 }
        #expect(outcomes.all.isEmpty)
        await until("all calls end") {
            clock.advance(by: FanOut.leastBudget)
            return outcomes.all.count == 25
        }
        blockade.open()
        #expect(outcomes.all.allSatisfy { $0.overran.map(\.name) == ["stuck"] && $0.unreached.isEmpty })
    }

    @Test func `C26 calls with a passed deadline end, and name each handler that did not`() async {
        let alarms = alarms, threads = threads, called = Counter(), blockade = Blockade(), outcomes = Log<FanOut.Outcome>()
        let handlers = [FanOut.Handler(name: "stuck") { blockade.wait() }, FanOut.Handler(name: "quick") { called.add(1) }]
        for _ in 0..<25 { Task { outcomes.add(await FanOut.call(handlers, .forward, until: .zero, alarms, threads)) } }
        await until("all calls end") { outcomes.all.count == 25 }
        blockade.open()
        // On a busy machine a quick handler may not run in the last moment.
        let named = outcomes.all.map { $0.overran.map(\.name) + $0.unreached }
        #expect(named.allSatisfy { $0.contains("stuck") && $0.count <= 2 })
        await until("the quick handlers that were begun have run") { threads.busy == 0 }
        #expect(called.value >= 25 - outcomes.all.count { $0.unreached.contains("quick") })
    }

    @Test func `C26 handlers running at the deadline are cancelled, with tasks made at any time`() async {
        let threads = threads
        for _ in 0..<5 {
            let cancelled = Counter(), begun = Counter(), outcomes = Log<FanOut.Outcome>()
            // The deadline does not pass before the first handlers have begun.
            let time = HeldClock { begun.value < 8 }.timekeeper
            let alarms = Alarms(time: time, heartbeat: Heartbeat(time: time))
            let handlers = (0..<40).map { index in
                FanOut.Handler(name: "\(index)") {
                    begun.add(1)
                    let pause = Pause()
                    _ = await pause.wait(.seconds(60), on: alarms)
                    if Task.isCancelled { cancelled.add(1) }
                }
            }
            // One stride later, more handlers begin beside those that wait.
            let deadline = alarms.heartbeat.running + Alarms.stride
            Task { outcomes.add(await FanOut.call(handlers, .forward, until: deadline, alarms, threads)) }
            await until("the call ends") { !outcomes.all.isEmpty }
            await until("all that were begun are cancelled") { threads.busy == 0 }
            #expect(cancelled.value == begun.value && begun.value >= 8)
        }
    }

    @Test func `C26 a handler that begins while the deadline passes is cancelled, too`() async {
        let clock = ManualClock(), begun = Counter(), cancelled = Counter(), outcomes = Log<FanOut.Outcome>()
        let alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper))
        let running = Counter(), isArmed = Mutex(false), isOver = Switch()
        // The first thread started for the ninth handler runs that handler. When the deadline comes, the handler's task
        // is not noted yet.
        let threads = HandlerThreads(startThread: { name, body in
            running.add(1)
            let isStarted = Thread.start(name) {
                body()
                running.add(-1)
            }
            let isFirst = isArmed.withLock { isArmed in
                defer { isArmed = false }
                return isArmed
            }
            if isFirst {
                blockUntil("the ninth has begun") { begun.value > 8 }
                clock.advance(by: .seconds(1))
            }
            return isStarted
        })
        let handlers = (0..<9).map { index in
            FanOut.Handler(name: "\(index)") {
                begun.add(1)
                // Keeps the thread, so that another thread is started for the next handler.
                blockUntil("the end") { Task.isCancelled || isOver.isOn }
                if Task.isCancelled { cancelled.add(1) }
            }
        }
        Task { outcomes.add(await FanOut.call(handlers, .forward, until: .seconds(1), alarms, threads)) }
        await until("eight are called, and no thread stands by") { begun.value == 8 && running.value == 8 }
        isArmed.withLock { $0 = true }
        // At the second check without progress another handler is called beside them.
        clock.advance(by: Alarms.stride * 3)
        await until("the call ends") { !outcomes.all.isEmpty }
        await until("eight are cancelled") { cancelled.value >= 8 }
        isOver.turnOn()
        await until("all have ended") { threads.busy == 0 }
        #expect(begun.value == 9 && cancelled.value == 9 && outcomes.all.first?.overran.count == 9)
    }

    @Test func `C23 C26 T6 after an overrun each further step has a deadline, and other observers are still called`() async throws {
        for round in 0..<10 {
            let policy = LifecyclePolicy(backgroundDeadline: .milliseconds(50), terminationDeadline: .milliseconds(50))
            let blockade = Blockade(), saved = Counter(), cleaned = Counter(), subject = Mutex<Lifecycle?>(nil)
            // No deadline of a step passes before the step has called each handler.
            let clock = HeldClock {
                switch subject.withLock({ $0?.state }) {
                case .inactive: blockade.count < 1
                case .background: blockade.count < 2 || saved.value < 1
                case .notRunning: blockade.count < 3 || cleaned.value < 1
                default: false
                }
            }
            let manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper)
            let lifecycle = Lifecycle(manager), reports = Log<LifecycleReport>()
            lifecycle.policy = policy
            lifecycle.observe("stuck", onInactive: { _ in blockade.wait() }, onBackground: { _ in blockade.wait() })
            lifecycle.observe("other", onBackground: { _ in saved.add(1) })
            lifecycle.onTerminate("stuck") { _ in blockade.wait() }
            lifecycle.onTerminate("files") { _ in cleaned.add(1) }
            try await lifecycle.launch()
            subject.withLock { $0 = lifecycle }
            // Breaks the cycle of references. The life cycle is released after the lock.
            defer { _ = subject.withLock { $0.take() } }
            Task { reports.add(try await lifecycle.enterBackground(cause: .supervisor)) }
            let isDown = await until("round \(round): the background") { reports.all.count == 1 }
            Task { reports.add(await lifecycle.terminate(cause: .signal)) }
            let isOver = isDown ? await until("round \(round): the end") { reports.all.count == 2 } : false
            blockade.open()
            guard isOver else { return }
            #expect(reports.all[0].overran.filter { $0.name == "stuck" }.count == 2, "\(reports.all[0])")
            #expect(reports.all[1].overran.contains { $0.name == "stuck" }, "\(reports.all[1])")
            #expect(saved.value == 1 && cleaned.value == 1 && lifecycle.state == .notRunning)
        }
    }

    @Test func `C23 C28 waiters for the end of tasks are answered, with any overlap of two graces`() async {
        let alarms = alarms, threads = threads
        let waiters = 4, grace = Duration.milliseconds(3)
        for round in 0..<250 {
            let registry = BackgroundTaskRegistry(time: .running, alarms: alarms, threads: threads)
            let tasks = (0..<400).map { registry.begin("stuck \($0)", #fileID, #line, handler: nil) }
            let answered = Log<Int>()
            for waiter in 0..<waiters {
                let start = Parker()
                let started = Thread.start("test") {
                    start.park()
                    answered.add(registry.expireAndWait(.shutdown, within: grace).count)
                }
                #expect(started)
                if waiter == 0 {
                    start.unpark()
                } else {
                    // About the time when the first grace ends.
                    let other = Alarms(time: .running, heartbeat: Heartbeat(time: .running))
                    other.set(.deadline, after: grace + .microseconds(waiter * 60)) { start.unpark() }
                }
            }
            guard await until("round \(round): all \(waiters) are answered", { answered.all.count == waiters }) else { return }
            #expect(answered.all.max() == tasks.count && tasks.allSatisfy { !$0.isActive } && !registry.isExpiring)
            registry.detach()
        }
    }

    @Test func `C23 C28 an expiration that joins while stragglers are given up leaves no task behind`() async {
        let alarms = alarms
        for round in 0..<400 {
            let registry = BackgroundTaskRegistry(time: .running, alarms: alarms, threads: threads)
            registry.enterBackground()
            registry.expire(
                .allowance, within: .seconds(600),
                if: { gate in
                    gate.sweep = TaskGate.Sweep(number: 1_000, reason: .allowance, deadline: .seconds(600), askers: 1)
                    return true
                })
            registry.enterForeground()
            // Begun in the middle of a sweep that does not cover these tasks: only an expiration that joins the sweep
            // asks them to end.
            let tasks = Mutex<[BackgroundTask]>([]), ready = Counter(), asked = Counter()
            let handler = BackgroundTaskRecord.Handler.blocking { _, _ in asked.add(1) }
            for _ in 0..<4 {
                #expect(
                    Thread.start("begin") {
                        let begun = (0..<50).map { registry.begin("late \($0)", #fileID, #line, handler: handler) }
                        tasks.withLock { $0 += begun }
                        ready.add(1)
                    })
            }
            await until("all are begun") { ready.value == 4 }
            let answered = Log<Int>(), done = Counter(), starts = [Parker(), Parker()]
            for (part, start) in starts.enumerated() {
                #expect(
                    Thread.start("race") {
                        start.park()
                        if part == 0 {
                            _ = registry.giveUpStragglers()
                        } else {
                            registry.expire(.shutdown, within: .seconds(600)) { answered.add($0.count) }
                        }
                        done.add(1)
                    })
            }
            for start in starts { start.unpark() }
            await until("round \(round): both are done") { done.value == 2 }
            // The expiration came too late for the sweep to cover its tasks.
            if answered.all.isEmpty { _ = registry.giveUpStragglers() }
            #expect(answered.all == [200] && !registry.isExpiring && tasks.withLock { $0.allSatisfy { !$0.isActive } }, "round \(round)")
            await until("round \(round): the handlers are called") { threads.busy == 0 }
            #expect(asked.value == 200, "round \(round): each once")
            registry.detach()
            guard answered.all == [200] else { return }
        }
    }

    @Test func `C23 a shutdown ends without a single alarm`() async {
        // A thread that is started and never runs.
        let alarms = Alarms(time: .running, heartbeat: Heartbeat(time: .running), startThread: { _, _ in true })
        let registry = BackgroundTaskRegistry(time: .running, alarms: alarms, threads: threads)
        let task = registry.begin("stuck", #fileID, #line, handler: nil)
        #expect(await onThread { registry.expireAndWait(.shutdown, within: .milliseconds(10), isExtended: true) } == ["stuck"])
        #expect(!task.isActive)
        registry.detach()
    }

    @Test func `C28 a sweep that began without tasks has a deadline for later ones`() async {
        let clock = ManualClock()
        let alarms = Alarms(time: clock.timekeeper, heartbeat: Heartbeat(time: clock.timekeeper))
        let registry = BackgroundTaskRegistry(time: clock.timekeeper, alarms: alarms, threads: threads)
        let given = Log<[String]>()
        let late = Mutex<BackgroundTask?>(nil)
        registry.enterBackground()
        // In the middle of a sweep for the allowance the unit returns to the foreground, where tasks may begin.
        registry.expire(
            .allowance, within: .seconds(5),
            if: { gate in
                gate.sweep = TaskGate.Sweep(number: 7, reason: .allowance, deadline: .seconds(5), askers: 1)
                return true
            })
        registry.enterForeground()
        late.withLock { $0 = registry.begin("late", #fileID, #line, handler: nil) }
        registry.expire(.shutdown, within: .seconds(60)) { given.add($0) }
        clock.advance(by: .seconds(6))
        #expect(given.all == [["late"]])
        registry.detach()
    }
}
