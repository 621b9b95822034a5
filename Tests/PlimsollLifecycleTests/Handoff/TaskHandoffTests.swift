import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Work that one replica has to stop and another continues, with a store in memory and manual clocks.
@Suite(.serialized, .timeLimit(.minutes(5))) struct TaskHandoffTests {
    struct Broken: Error {}

    let clock = ManualClock()

    private func manager() -> ResourceManager { ResourceManager(source: ScriptedPressureSource(), clock: clock) }

    /// Moves the clock until `condition` holds. A waiter may not have begun to wait when the clock moves.
    private func advance(by step: Duration, until condition: () -> Bool, sourceLocation: SourceLocation = #_sourceLocation) async {
        await until(sourceLocation: sourceLocation) {
            if condition() { return true }
            clock.advance(by: step)
            return false
        }
    }

    private func error(_ body: () async throws -> Void) async -> TaskHandoffError? {
        do {
            try await body()
            return nil
        } catch { return error as? TaskHandoffError }
    }

    @Test func `C73 finished work leaves nothing in the store, and throws the body's own error`() async throws {
        let store = MemoryTaskHandoff(clock: clock), manager = manager()
        let outcome = try await manager.withBackgroundTask("export", handoff: store, from: [3]) { _, checkpoint in
            checkpoint.save([4])
            return checkpoint.start
        }
        #expect(outcome == [3])
        await #expect(throws: Broken.self) {
            _ = try await manager.withBackgroundTask("export", handoff: store) { _, _ in throw Broken() }
        }
        #expect(try await store.census() == (0, 0, 0))
    }

    @Test func `C73 work that must stop is held until stopped, then free with the last saved checkpoint`() async throws {
        let store = MemoryTaskHandoff(clock: clock), manager = manager(), isBegun = Counter(), mayEnd = Counter(), id = Mutex("")
        let run = Task {
            try await manager.withBackgroundTask("export", handoff: store, as: "first") { _, checkpoint in
                id.withLock { $0 = checkpoint.id }
                checkpoint.save([1])
                isBegun.add(1)
                await until { Task.isCancelled }
                // Cancelled work takes some time to end.
                await until { mayEnd.value != 0 }
                checkpoint.save([2])
                try Task.checkCancellation()
            }
        }
        await until { isBegun.value != 0 }
        manager.parts.tasks.expire(.pressure, within: .seconds(30)) { _ in }
        try await until { try await store.census().held == 1 }
        #expect(store.checkpoints == ["export": [[1]]])
        #expect(try await store.take(["export"], by: "second", for: .seconds(10)) == nil, "the work may still run")
        mayEnd.add(1)
        #expect(try await run.value == nil, "handed off")
        let work = try #require(try await store.take(["export"], by: "second", for: .seconds(10)))
        #expect(work.id == id.withLock { $0 } && work.checkpoint == [2] && work.reason == .pressure && work.attempts == 1)
    }

    @Test func `C73 work that does not stop is free after the grace, and work that ends late is not done again`() async throws {
        let store = MemoryTaskHandoff(clock: clock), manager = manager(), isBegun = Counter(), mayEnd = Counter()
        func begin(_ name: String) -> Task<Int?, any Error> {
            Task {
                try await manager.withBackgroundTask(name, handoff: store) { _, _ in
                    isBegun.add(1)
                    await until { mayEnd.value != 0 }
                    return 7
                }
            }
        }
        let ends = begin("ends")
        await until { isBegun.value >= 1 }
        manager.parts.tasks.expire(.pressure, within: .seconds(30)) { _ in }
        try await until { try await store.census().held == 1 }
        mayEnd.add(1)
        #expect(try await ends.value == 7, "the work came to its end")
        #expect(try await store.census() == (0, 0, 0))

        let late = Counter()
        let stuck = Task {
            try await manager.withBackgroundTask("stuck", handoff: store) { _, _ in
                isBegun.add(1)
                await until { late.value != 0 }
                throw Broken()
            }
        }
        await until { isBegun.value >= 2 }
        manager.parts.tasks.expire(.shutdown, within: .seconds(30)) { _ in }
        try await until { try await store.census().held == 1 }
        clock.advance(by: .seconds(31))
        #expect(try await store.take(["stuck"], by: "second", for: .seconds(10)) == nil)
        clock.advance(by: .seconds(2))
        #expect(try await store.take(["stuck"], by: "second", for: .seconds(10)) != nil)
        late.add(1)
        _ = try? await stuck.value
    }

    @Test func `C73 when the store takes nothing, the work is kept and handed over without the store`() async throws {
        let store = MemoryTaskHandoff(clock: clock), manager = manager(), isBegun = Counter()
        store.fail(with: TaskHandoffError.unreachable("memory: made to fail"))
        let run = Task {
            try await manager.withBackgroundTask("export", handoff: store) { _, checkpoint in
                checkpoint.save([5])
                isBegun.add(1)
                await until { Task.isCancelled }
                try Task.checkCancellation()
            }
        }
        await until { isBegun.value != 0 }
        manager.parts.tasks.expire(.pressure, within: .seconds(30)) { _ in }
        let problem = await error { _ = try await run.value }
        #expect(problem?.isUnreachable == true && problem?.description.contains("made to fail; the work is kept") == true)
        #expect(manager.claimHandovers().map(\.bytes) == [[5]])
    }

    // MARK: Resuming

    private final class Replica: Sendable {
        let events = Log<String>()
        let manager: ResourceManager
        let task: Task<Void, Never>

        init(
            _ manager: ResourceManager, _ store: MemoryTaskHandoff, _ owner: String,
            _ body: @escaping @Sendable (BackgroundTask, HandoffCheckpoint) async throws -> Void
        ) {
            self.manager = manager
            let events = events
            task = Task {
                await manager.resumeHandedOff(from: store, names: ["export"], as: owner, onEvent: { event, _, _ in events.add(event) }, body)
            }
        }

        func end() async {
            task.cancel()
            await task.value
        }

        var kinds: [String] { events.all }
    }

    private func offer(_ store: MemoryTaskHandoff, _ checkpoint: [UInt8]) async throws {
        _ = try await store.offer(HandedOffTask(name: "export", checkpoint: checkpoint, reason: .pressure), heldBy: "x", for: .zero)
    }

    @Test func `C73 a replica goes on from the other's checkpoint, renews meanwhile, and reports completion`() async throws {
        let store = MemoryTaskHandoff(clock: clock), starts = Log<[UInt8]>(), mayEnd = Counter()
        try await offer(store, [1])
        let replica = Replica(manager(), store, "second") { _, checkpoint in
            checkpoint.save([9])
            starts.add(checkpoint.start ?? [])
            await until { mayEnd.value != 0 }
        }
        let alarms = replica.manager.parts.alarms
        await until("the first renewal is awaited") { starts.all.count == 1 && alarms.total == 1 }
        // A minute is two leases. Each lease is renewed, with the newest checkpoint.
        for _ in 0..<6 {
            let before = alarms.total
            clock.advance(by: .seconds(10))
            // A renewal sets two alarms: the end of the lease, and the next renewal. The clock stands still until then.
            await until("the next renewal is awaited") { alarms.total == before + 2 }
            #expect(try await store.census().held == 1)
        }
        #expect(store.checkpoints == ["export": [[9]]])
        mayEnd.add(1)
        await until { replica.kinds == ["taken", "completed"] }
        #expect(starts.all == [[1]] && store.checkpoints.isEmpty)
        await replica.end()
    }

    @Test func `C73 a replica without a store stops at the end of the lease, and another goes on`() async throws {
        let store = MemoryTaskHandoff(clock: clock), cancelled = Counter(), begun = Counter()
        try await offer(store, [1])
        let replica = Replica(manager(), store, "second") { _, checkpoint in
            begun.add(1)
            await until { Task.isCancelled }
            cancelled.add(1)
            try Task.checkCancellation()
        }
        // The work is free at once. The clock stands still, so that the lease does not end before the work has begun.
        await until { begun.value == 1 }
        store.fail(with: TaskHandoffError.unanswered("memory: made to fail"))
        await advance(by: .milliseconds(100)) { cancelled.value == 1 }
        store.fail(with: nil)
        await until { replica.kinds.contains("lost") }
        #expect(!replica.kinds.contains("completed") && !replica.kinds.contains("failed"))
        await replica.end()
        clock.advance(by: .seconds(30))
        #expect(try await store.take(["export"], by: "third", for: .seconds(10)) != nil)
    }

    @Test func `C73 a replica that must stop gives the work back, and failing work is tried again, then set aside`() async throws {
        // No lease ends while the clock moves and a busy machine delays the replica.
        var policy = TaskHandoffPolicy()
        policy.lease = .seconds(86_400)
        let store = MemoryTaskHandoff(policy: policy, clock: clock), begun = Counter(), manager = manager()
        try await offer(store, [1])
        let replica = Replica(manager, store, "second") { _, checkpoint in
            begun.add(1)
            checkpoint.save([2])
            await until { Task.isCancelled }
            try Task.checkCancellation()
        }
        await advance(by: .milliseconds(100)) { begun.value == 1 }
        manager.parts.tasks.expire(.shutdown, within: .seconds(30)) { _ in }
        await until { replica.kinds.contains("released") }
        await replica.end()
        #expect(store.checkpoints == ["export": [[2]]])

        let attempts = Log<Int>()
        let failing = Replica(self.manager(), store, "third") { _, checkpoint in
            attempts.add(checkpoint.attempt)
            throw Broken()
        }
        await advance(by: .milliseconds(500)) { failing.kinds.count { $0 == "failed" } == 5 }
        try await until { try await store.census().setAside == 1 }
        #expect(attempts.all == [1, 2, 3, 4, 5], "a stop on request is no attempt")
        #expect(try await store.setAside(most: 1).first?.problem == "Broken()")
        // As in the stores of databases.
        for most in [0, -1, .min] { #expect(try await store.setAside(most: most).isEmpty, "\(most)") }
        await failing.end()
    }

    @Test func `C73 no work is taken under pressure, and a store that fails is asked again`() async throws {
        let store = MemoryTaskHandoff(clock: clock), begun = Counter()
        store.fail(with: TaskHandoffError.unreachable("memory: made to fail"))
        try await RunningManager.run { running in
            let events = Log<String>()
            await running.available(.mebibytes(10))
            #expect(running.manager.level == .critical)
            let task = Task {
                await running.manager.resumeHandedOff(from: store, names: ["export"], onEvent: { event, _, _ in events.add(event) }) { _, _ in
                    begun.add(1)
                }
            }
            // The loop turns at each step: time between two of the loop's readings counts as a gap, not as calm.
            for _ in 0..<50 { await running.available(.mebibytes(10), after: .milliseconds(100)) }
            #expect(events.all.isEmpty, "the store was not even asked")
            while events.all.count < 3 { await running.available(.mebibytes(924), after: .milliseconds(100)) }
            store.fail(with: nil)
            try await self.offer(store, [1])
            while begun.value == 0 { await running.available(.mebibytes(924), after: .milliseconds(100)) }
            task.cancel()
            await task.value
        }
    }
}
