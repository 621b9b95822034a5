import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Work in `withBackgroundTask`, the context of handlers, and shutdown.
@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundTaskScopeTests {
    enum Trace { @TaskLocal static var id = "none" }

    let clock = ManualClock()
    let manager: ResourceManager

    init() { manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper) }

    @Test func `C28 C32 the handler of a scope sees the context of the begin`() async {
        let seen = Log<String>()
        let work = Task {
            try await Trace.$id.withValue("request-7") {
                try await manager.withBackgroundTask("export") { _ in
                    seen.add("body " + Trace.id)
                    try await untilCancelled()
                } onExpiration: { _, _ in
                    seen.add("handler " + Trace.id)
                }
            }
        }
        await until { !seen.all.isEmpty }
        await manager.expired(.operator)
        await #expect(throws: CancellationError.self) { try await work.value }
        #expect(seen.all == ["body request-7", "handler request-7"])
    }

    @Test func `a token's context is captured at begin and restored around the handler, if capture was set`() async {
        let seen = Log<String>(), captured = Counter()
        func begin() -> BackgroundTask {
            manager.beginBackgroundTask("flush") { task, _ in
                seen.add(Trace.id)
                task.end()
            }
        }
        let before = begin()
        await manager.expired(.operator)
        let capture: @Sendable () -> @Sendable (() -> Void) -> Void = {
            captured.add(1)
            let id = Trace.id
            return { body in Trace.$id.withValue(id) { body() } }
        }
        #expect(manager.carryContext(capture) && !manager.carryContext(capture))
        let after = Trace.$id.withValue("request-8") { begin() }
        await manager.expired(.operator)
        #expect(seen.all == ["none", "request-8"] && captured.value == 1)
        withExtendedLifetime((before, after)) {}
    }

    @Test func `T8 a hanging handler of a scope is bounded: cancelled, given up, and not waited for`() async throws {
        let hung = Counter(), ended = Counter()
        let work = Task {
            defer { ended.add(1) }
            return try await manager.withBackgroundTask("export") { _ in
                try? await untilCancelled()
                return 7
            } onExpiration: { _, _ in
                hung.add(1)
                await until { Task.isCancelled }
                hung.add(1)
            }
        }
        await until { !manager.backgroundTasks.isEmpty }
        manager.parts.tasks.expire(.pressure, within: .seconds(5))
        await until { hung.value != 0 }
        clock.advance(by: .milliseconds(4900))
        #expect(hung.value == 1 && ended.value == 0 && manager.backgroundTasks.count == 1)
        clock.advance(by: .milliseconds(100))
        #expect(try await work.value == 7)
        await until { hung.value >= 2 }
        #expect(manager.backgroundTasks.isEmpty)
    }

    @Test func `a scope whose work fails waits for the handler too`() async {
        struct Failure: Error {}
        let goOn = Counter(), order = Log<String>()
        let work = Task {
            defer { order.add("scope over") }
            try await manager.withBackgroundTask("export") { _ in
                try? await untilCancelled()
                order.add("work over")
                throw Failure()
            } onExpiration: { _, _ in
                order.add("handler begun")
                await until { goOn.value != 0 }
                order.add("handler over")
            }
        }
        await until { !manager.backgroundTasks.isEmpty }
        manager.parts.tasks.expire(.pressure, within: .seconds(5))
        await until { Set(order.all).isSuperset(of: ["handler begun", "work over"]) }
        goOn.add(1)
        await #expect(throws: Failure.self) { try await work.value }
        #expect(order.all.suffix(2) == ["handler over", "scope over"] && manager.backgroundTasks.isEmpty)
    }

    @Test func `C28 C32 tasks that are given up before the sweep reaches them are asked to stop, once`() async {
        let reasons = Log<ExpirationReason>(), tasks = manager.parts.tasks
        let task = manager.beginBackgroundTask("blocking") { _, reason in reasons.add(reason) }
        let work = Task {
            try await manager.withBackgroundTask("scope") { _ in
                try await untilCancelled()
            } onExpiration: { _, reason in
                reasons.add(reason)
            }
        }
        await until("both have begun") { tasks.count == 2 }
        // A sweep has selected both tasks and asked neither.
        tasks.gate.withLock { gate in
            _ = gate.sweep(.operator, until: .zero, done: nil)
            tasks.applyGate(gate, expiring: true)
        }
        #expect(tasks.giveUpStragglers().sorted() == ["blocking", "scope"] && !task.isActive)
        await #expect(throws: CancellationError.self) { try await work.value }
        await until("both are asked") { reasons.all.count >= 2 && manager.parts.threads.busy == 0 }
        #expect(reasons.all == [.operator, .operator] && tasks.mayBegin)
    }

    @Test func `a scope lives until the handler is done, so that no freeze comes in the middle`() async throws {
        let goOn = Counter(), reached = Counter()
        let work = Task {
            try await manager.withBackgroundTask("export") { _ in
                try? await untilCancelled()
                reached.add(1)
            } onExpiration: { _, _ in
                await until { goOn.value != 0 }
            }
        }
        await until { !manager.backgroundTasks.isEmpty }
        manager.parts.tasks.expire(.pressure, within: .seconds(5))
        await until { reached.value != 0 }
        #expect(manager.backgroundTasks.count == 1 && manager.parts.tasks.hasLiveTasks)
        goOn.add(1)
        try await work.value
        #expect(manager.backgroundTasks.isEmpty)
    }

    @Test func `T7 work that fills the pool and polls for cancellation is cancelled`() async throws {
        let started = Counter(), done = Counter()
        let work = (0..<8).map { _ in
            Task {
                defer { done.add(1) }
                try await manager.withBackgroundTask("busy") { _ in
                    started.add(1)
                    // The task never suspends, so that no other task gets its thread before the cancellation.
                    let parker = Parker()
                    while !Task.isCancelled { parker.park(atMost: .milliseconds(1)) }
                }
            }
        }
        // The expirations run on a thread of their own, because the pool is full. Tasks that get a thread of the pool
        // only later are asked later.
        _ = Thread.start("test") { [manager] in
            let parker = Parker()
            while done.value < 8 {
                parker.park(atMost: .milliseconds(1))
                if started.value > 0 { manager.parts.tasks.expire(.pressure, within: .seconds(60)) }
            }
        }
        for task in work { _ = try? await task.value }
        #expect(done.value == 8 && manager.backgroundTasks.isEmpty)
    }

    @Test func `a scope that expires before the work runs is cancelled from the start`() async {
        let scope = BackgroundScope()
        scope.expire(.operator)
        let wasCancelled = try? await scope.run { Task.isCancelled }
        await scope.leave()
        #expect(wasCancelled == true)
    }

    @Test func `a scope whose handler was given up ends without waiting, and the handler was called once`() async {
        let scope = BackgroundScope(), reasons = Log<ExpirationReason>(), threads = manager.parts.threads
        scope.whenExpired(on: threads) { reasons.add($0) }
        // The handler waits for a reason.
        await until { threads.busy == 0 }
        scope.expire(.operator)
        scope.giveUp()
        await scope.leave()
        await until { threads.busy == 0 && reasons.all == [.operator] }
    }

    @Test func `a handler that is set after its scope was given up is called, and cancelled`() async {
        let scope = BackgroundScope(), seen = Log<String>(), threads = manager.parts.threads
        scope.expire(.operator)
        scope.giveUp()
        scope.whenExpired(on: threads) { reason in
            seen.add("\(reason)")
            try? await untilCancelled()
            seen.add(Task.isCancelled ? "cancelled" : "not cancelled")
        }
        await scope.leave()
        await until("the end of the handler") { seen.all.count == 2 }
        #expect(seen.all == ["\(ExpirationReason.operator)", "cancelled"])
    }

    @Test func `a scope that ends by itself lets go of its handler`() async throws {
        final class Kept: Sendable {
            let deaths: Counter
            init(_ deaths: Counter) { self.deaths = deaths }
            deinit { deaths.add(1) }
        }
        let deaths = Counter()
        func export() async throws {
            let kept = Kept(deaths)
            try await manager.withBackgroundTask("export") { _ in
            } onExpiration: { _, _ in
                withExtendedLifetime(kept) {}
            }
        }
        try await export()
        await until { deaths.value == 1 }
    }

    @Test func `a scope whose caller is cancelled ends like any child`() async {
        let work = Task {
            try await manager.withBackgroundTask("export") { _ in
                try await untilCancelled()
            } onExpiration: { _, _ in
            }
        }
        await until { !manager.backgroundTasks.isEmpty }
        work.cancel()
        await #expect(throws: CancellationError.self) { try await work.value }
        #expect(manager.backgroundTasks.isEmpty)
    }

    @Test func `more time is requested while a task lives in a shutdown, at the beginning and at each half`() async throws {
        let source = ScriptedPressureSource()
        let manager = ResourceManager(source: source, policy: PressurePolicy(shutdownBudget: .seconds(60)), time: clock.timekeeper)
        let asked = Log<Duration>(), notified = Counter()
        manager.onStopTimeoutExtension { asked.add($0) }
        let task = manager.beginBackgroundTask("flush") { _, _ in notified.add(1) }
        let running = Task { try await manager.run() }
        await source.waitUntilIdle()
        #expect(asked.all.isEmpty)
        running.cancel()
        await until { notified.value != 0 }
        #expect(asked.all == [.seconds(60)])
        clock.advance(by: .seconds(29))
        #expect(asked.all.count == 1)
        clock.advance(by: .seconds(1))
        await until { asked.all.count >= 2 }
        #expect(asked.all[1] <= .seconds(30) && asked.all[1] > .seconds(29))
        task.end()
        try await running.value
        clock.advance(by: .seconds(60))
        #expect(asked.all.count == 2)
    }

    @Test func `a shutdown asks tasks after a share of the budget, while the manager goes on`() async throws {
        let asked = Log<ExpirationReason>()
        let early = manager.beginBackgroundTask("early") { task, reason in asked.add(reason) }
        let late = manager.beginBackgroundTask("late") { task, reason in asked.add(reason) }
        #expect(manager.beginShutdown(within: .seconds(60), taskShare: 0.5) && !manager.beginShutdown(within: .seconds(1), taskShare: 0))
        #expect(manager.beginBackgroundTask("refused") { _, _ in }.refusal != nil)
        clock.advance(by: .seconds(10))
        early.end()
        clock.advance(by: .seconds(19))
        #expect(asked.all.isEmpty && late.isActive)
        clock.advance(by: .seconds(1))
        await until { asked.all == [.shutdown] }
        #expect(late.isActive && late.timeRemaining == .seconds(28))
        clock.advance(by: .seconds(28))
        #expect(!late.isActive && manager.overdueTasks.givenUp == ["late"] && manager.overdueTasks.count == 1)
    }

    @Test func `a wait in which tasks may end on their own names those that never end`() async throws {
        let tasks = manager.parts.tasks, hung = manager.beginBackgroundTask("hung") { _, _ in }
        manager.beginShutdown(within: .seconds(60), taskShare: 0.5)
        let names: Task<[String], any Error> = onThread {
            tasks.expireAndWait(.shutdown, within: .seconds(58), allowsOwnEnd: true)
        }
        await until { tasks.gate.withLock { $0.ownEnd?.waiting.count } == 1 }
        clock.advance(by: .seconds(30))
        // The wait has joined the sweep.
        await until { tasks.gate.withLock { $0.sweep?.waiting.isEmpty } == false }
        #expect(hung.isActive)
        clock.advance(by: .seconds(28))
        #expect(try await names.value == ["hung"] && !hung.isActive)
    }

    @Test func `a share of zero asks tasks at the start of a shutdown`() async {
        let asked = Counter()
        let task = manager.beginBackgroundTask("flush") { task, _ in
            asked.add(1)
            task.end()
        }
        manager.beginShutdown(within: .seconds(60), taskShare: 0)
        await until { asked.value == 1 && !task.isActive }
    }

    @Test func `no time is requested without a live task, nor outside a shutdown`() async throws {
        let source = ScriptedPressureSource()
        let manager = ResourceManager(source: source, time: clock.timekeeper)
        let asked = Counter()
        manager.onStopTimeoutExtension { _ in asked.add(1) }
        let task = manager.beginBackgroundTask("flush") { task, _ in task.end() }
        await manager.expired(.operator)
        #expect(!task.isActive)
        let running = Task { try await manager.run() }
        await source.waitUntilIdle()
        running.cancel()
        try await running.value
        #expect(asked.value == 0)
    }

    @Test func `a shutdown that hurries a running sweep keeps the shutdown's deadline`() async {
        let notified = Counter()
        let task = manager.beginBackgroundTask("hung") { _, _ in notified.add(1) }
        let names = Log<[String]>()
        manager.parts.tasks.expire(.allowance, within: .seconds(30)) { names.add($0) }
        manager.parts.tasks.expire(.shutdown, within: .seconds(5)) { names.add($0) }
        #expect(task.timeRemaining == .seconds(5))
        clock.advance(by: .seconds(5))
        #expect(names.all == [["hung"], ["hung"]] && !task.isActive)
    }
}

extension ResourceManager {
    /// Asks every running task to stop. Waits for the end without blocking a thread of the pool, which scopes need.
    ///
    /// - Returns: the names of the tasks that were given up.
    @discardableResult
    func expired(_ reason: ExpirationReason) async -> [String] {
        await withCheckedContinuation { done in parts.tasks.expire(reason, within: .seconds(3600)) { done.resume(returning: $0) } }
    }
}
