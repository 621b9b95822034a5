import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

@Suite(.serialized, .timeLimit(.minutes(5))) struct BackgroundTaskTests {
    let manager = ResourceManager(source: ScriptedPressureSource())

    @Test func `C31 T4 a task ends once, with any number and place of calls`() async {
        let expired = Counter()
        let task = manager.beginBackgroundTask("once") { task, _ in
            expired.add(1)
            task.end()
            task.end()
        }
        await manager.expired(.operator)
        task.end()
        #expect(expired.value == 1 && !task.isActive && manager.backgroundTasks.isEmpty)
        await manager.expired(.operator)
        #expect(expired.value == 1)
    }

    @Test func `T4 exactly one of ended and expired wins`() async {
        for _ in 0..<300 {
            let expired = Counter()
            let task = manager.beginBackgroundTask("race") { task, _ in
                expired.add(1)
                task.end()
            }
            await withTaskGroup(of: Void.self) { group in
                group.addTask { task.end() }
                group.addTask { _ = manager.parts.tasks.expire(.pressure, within: .seconds(60)) }
            }
            // If the end won, no handler runs. If the expiration won, the handler ends the task.
            await until { !task.isActive }
            #expect(expired.value <= 1)
        }
    }

    @Test func `C32 a scoped task is cancelled when asked to stop`() async throws {
        let reasons = Mutex<[ExpirationReason]>([])
        let (started, start) = AsyncStream.makeStream(of: Void.self)
        let work = Task {
            try await manager.withBackgroundTask("export") { task in
                task.progress(completed: 3, total: 10)
                start.yield()
                try await untilCancelled()
            } onExpiration: { task, reason in
                #expect(task.timeRemaining != nil)
                reasons.withLock { $0.append(reason) }
            }
        }
        for await _ in started { break }
        let status = try #require(manager.backgroundTasks.first)
        #expect(status.name == "export" && status.progress?.completed == 3 && status.progress?.total == 10 && !status.isExpiring)
        #expect(status.origin.contains("BackgroundTaskTests.swift"))
        let stragglers = await manager.expired(.shutdown)
        await #expect(throws: CancellationError.self) { try await work.value }
        #expect(stragglers.isEmpty && reasons.withLock { $0 } == [.shutdown] && manager.backgroundTasks.isEmpty)
    }

    @Test func `a scoped task returns the body's result, or throws the body's error`() async throws {
        struct Broken: Error {}
        #expect(try await manager.withBackgroundTask("value") { _ in 42 } == 42)
        #expect(try await manager.withBackgroundTask("nothing") { _ in nil as Int? } == nil)
        await #expect(throws: Broken.self) { try await manager.withBackgroundTask("broken") { _ in throw Broken() } }
        #expect(manager.backgroundTasks.isEmpty)
    }

    @Test func `T6 handlers run concurrently, and a blocking one is named at the deadline`() async {
        let release = Parker(), others = Counter()
        let blocked = manager.beginBackgroundTask("blocked") { _, _ in release.park() }
        let tasks = (0..<20).map { index in
            manager.beginBackgroundTask("quick-\(index)") { task, _ in
                others.add(1)
                task.end()
            }
        }
        _ = manager.parts.tasks.expire(.pressure, within: .seconds(600))
        await until { !tasks.contains(where: \.isActive) }
        #expect(others.value == 20 && manager.parts.tasks.isExpiring)
        #expect(manager.parts.tasks.giveUpStragglers() == ["blocked"])
        #expect(!blocked.isActive && manager.backgroundTasks.isEmpty)
        release.unpark()
    }

    @Test func `T7 handlers run although the cooperative pool is blocked`() async {
        let ran = Counter()
        let task = manager.beginBackgroundTask("sync") { task, _ in
            ran.add(1)
            task.end()
        }
        let scoped = Task {
            try await manager.withBackgroundTask("async") { _ in
                try await untilCancelled()
            } onExpiration: { _, _ in
                ran.add(1)
            }
        }
        await until { manager.backgroundTasks.count >= 2 }
        // More blockers than the pool has threads, each until both handlers ran.
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    let parker = Parker()
                    while ran.value < 2 { parker.park(atMost: .milliseconds(1)) }
                }
            }
            _ = manager.parts.tasks.expire(.pressure, within: .seconds(60))
        }
        #expect(ran.value == 2 && !task.isActive)
        _ = try? await scoped.value
    }

    @Test func `T5 a task begun too late is refused with a reason, never silently dormant`() async throws {
        let release = Parker()
        let slow = manager.beginBackgroundTask("slow") { task, _ in
            release.park()
            task.end()
        }
        _ = manager.parts.tasks.expire(.pressure, within: .seconds(60))
        let late = manager.beginBackgroundTask("late") { _, _ in }
        #expect(!late.isActive && late.refusal?.contains("being expired") == true)
        await #expect(throws: BackgroundTaskRefusal.self) { try await manager.withBackgroundTask("late too") { _ in } }
        release.unpark()
        await until { !slow.isActive }
        _ = manager.parts.tasks.giveUpStragglers()
        #expect(manager.beginBackgroundTask("after") { _, _ in }.refusal == nil)
    }

    @Test func `a dropped task is ended and reported with the origin`() {
        do { _ = manager.beginBackgroundTask("forgotten") { _, _ in } }
        #expect(manager.backgroundTasks.isEmpty)
        let leaks = manager.leakedBackgroundTasks
        #expect(leaks.count == 1 && leaks[0].name == "forgotten" && leaks[0].origin.contains("BackgroundTaskTests.swift"))
    }

    @Test func `shutdown expires running tasks and refuses new ones`() async throws {
        let reasons = Mutex<[ExpirationReason]>([])
        let source = ScriptedPressureSource()
        let manager = ResourceManager(source: source, policy: PressurePolicy(shutdownBudget: .seconds(600)))
        let running = Task { try await manager.run() }
        await source.waitUntilIdle()
        let task = manager.beginBackgroundTask("flush") { task, reason in
            reasons.withLock { $0.append(reason) }
            task.end()
        }
        running.cancel()
        try await running.value
        #expect(!task.isActive && reasons.withLock { $0 } == [.shutdown])
        #expect(manager.beginBackgroundTask("after") { _, _ in }.refusal?.contains("shut down") == true)
    }

    @Test func `a task that is given up under pressure is named in a report`() async throws {
        try await RunningManager.run { running in
            let asked = Counter(), task = running.manager.beginBackgroundTask("hung") { _, _ in asked.add(1) }
            await running.available(.mebibytes(20))
            await running.available(.mebibytes(20), after: .seconds(2))
            await running.until { asked.value == 1 }
            await running.available(.mebibytes(20), after: .seconds(5))
            let expirations = running.manager.reports.filter { $0.action == .expireBackgroundTasks(grace: .seconds(5)) }
            #expect(!task.isActive && expirations.map(\.outcome) == [.done, .overran(["hung"])])
            #expect(expirations.allSatisfy { $0.level == .critical && $0.evidence.contains(.headroom) })
        }
    }

    @Test func `memory that stays critical expires tasks after two seconds, calm ones never`() async throws {
        try await RunningManager.run { running in
            let reasons = Mutex<[ExpirationReason]>([])
            let task = running.manager.beginBackgroundTask("flush") { task, reason in
                reasons.withLock { $0.append(reason) }
                task.end()
            }
            await running.available(.mebibytes(20))
            await running.available(.mebibytes(20), after: .seconds(1))
            #expect(task.isActive)
            await running.available(.mebibytes(20), after: .seconds(1))
            await running.until { !task.isActive }
            #expect(reasons.withLock { $0 } == [.pressure])
        }
    }
}
