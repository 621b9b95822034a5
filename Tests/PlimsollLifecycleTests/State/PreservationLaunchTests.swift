import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// The knowledge of the previous run at a launch, and the consequences.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PreservationLaunchTests {
    let store = MemoryStateStore()

    /// Returns a stand-in for a process: one lifecycle with one state.
    private func process(limit: Int? = nil, restored: Log<[UInt8]> = Log()) -> Lifecycle {
        let lifecycle = ResourceManager(source: ScriptedPressureSource(), time: ManualClock().timekeeper).lifecycle
        if let limit { lifecycle.countLaunches(in: store, cleanStartAfter: limit) }
        lifecycle.preserve("cart", in: store, snapshot: { [1, 2, 3] }, restore: { restored.add($0) })
        return lifecycle
    }

    @Test func `C24 the next launch knows the end of the last run`() throws {
        var lifecycle = process()
        #expect(lifecycle.previousRun == nil)
        #expect(lifecycle.preservation.restore().previousRun == .none && lifecycle.previousRun == PreviousRun.none)
        #expect(lifecycle.preservation.launched() == nil && lifecycle.preservation.ended() == nil)
        lifecycle = process()
        #expect(lifecycle.preservation.restore().previousRun == .clean)
        _ = lifecycle.preservation.launched()
        // No end: killed, crashed, or a loss of power.
        lifecycle = process()
        #expect(lifecycle.preservation.restore().previousRun == .crashed)
        // No launch either.
        lifecycle = process()
        let outcome = lifecycle.preservation.restore()
        #expect(outcome.previousRun == .failedLaunch && outcome.cleanStartReason == nil && outcome.problems.isEmpty)
        try store.write(StateName.launches, [1, 2, 3])
        lifecycle = process()
        #expect(lifecycle.preservation.restore().previousRun == .unknown)
    }

    @Test(arguments: [nil, 1, 2, 5]) func `T36 failed launches are counted, and end in a clean start`(limit: Int?) throws {
        let restored = Log<[UInt8]>()
        var lifecycle = process(limit: limit, restored: restored)
        _ = lifecycle.preservation.restore()
        _ = lifecycle.preservation.launched()
        #expect(lifecycle.preservation.checkpoint(within: .seconds(60)).isEmpty)
        // The run crashes, which alone costs nothing. Then each launch crashes after restoring.
        for launch in 1...(limit ?? 2) + 1 {
            lifecycle = process(limit: limit, restored: restored)
            #expect(lifecycle.preservation.restore()["cart"] == .restored && restored.all.count == launch)
            if launch == (limit ?? 2) { break }
        }
        lifecycle = process(limit: limit, restored: restored)
        let outcome = lifecycle.preservation.restore()
        let reason = (limit ?? 2) == 1 ? "the last launch did not come up" : "the last \(limit ?? 2) launches did not come up"
        #expect(outcome.cleanStartReason == reason && outcome["cart"] == .cleanStart(reason: reason))
        #expect(restored.all.count == limit ?? 2 && store.aside.map(\.reason) == [reason])
        #expect(store.aside[0].bytes == PreservedState.wrap([1, 2, 3], version: 1))
        // The launch succeeds, and state saved from then on is restored again.
        _ = lifecycle.preservation.launched()
        #expect(lifecycle.preservation.checkpoint(within: .seconds(60)).isEmpty)
        lifecycle = process(limit: limit, restored: restored)
        #expect(lifecycle.preservation.restore()["cart"] == .restored)
    }

    @Test func `T36 a state registered after a clean start starts clean, too`() throws {
        var lifecycle = process(limit: 1)
        _ = lifecycle.preservation.restore()
        #expect(lifecycle.preservation.checkpoint(within: .seconds(60)).isEmpty)
        try store.write("scene", PreservedState.wrap([9], version: 1))
        lifecycle = process(limit: 1)
        let outcome = lifecycle.preservation.restore()
        let restored = Log<[UInt8]>()
        lifecycle.preserve("scene", in: store, snapshot: { [] }, restore: { restored.add($0) })
        #expect(restored.all.isEmpty && store.aside.map(\.name) == ["cart", "scene"])
        #expect(store.aside.allSatisfy { $0.reason == outcome.cleanStartReason })
    }

    @Test func `C24 after a kill by hand nothing is restored, until a launch has come up`() throws {
        let restored = Log<[UInt8]>()
        var lifecycle = process(restored: restored)
        _ = lifecycle.preservation.restore()
        _ = lifecycle.preservation.launched()
        #expect(lifecycle.preservation.checkpoint(within: .seconds(60)).isEmpty)
        try lifecycle.markKilledByOperator()
        lifecycle = process(restored: restored)
        var outcome = lifecycle.preservation.restore()
        #expect(outcome.previousRun == .killedByOperator && outcome.cleanStartReason == "an operator ended the previous run")
        #expect(outcome["cart"] == .cleanStart(reason: "an operator ended the previous run"))
        #expect(store.aside.map(\.name) == ["cart"] && restored.all.isEmpty)
        #expect(try !store.isMarkedKilledByOperator())
        // This launch is killed before its end, with some state still to be set aside. The next launch does not restore
        // that state either.
        try store.write("cart", PreservedState.wrap([1, 2, 3], version: 1))
        lifecycle = process(restored: restored)
        outcome = lifecycle.preservation.restore()
        #expect(outcome.previousRun == .failedLaunch && outcome.cleanStartReason?.contains("no launch has come up since") == true)
        _ = lifecycle.preservation.launched()
        lifecycle = process(restored: restored)
        #expect(lifecycle.preservation.restore()["cart"] == RestoreOutcome.Result.none && restored.all.isEmpty)
    }

    @Test func `a state registered while the launch is being counted is restored and saved`() throws {
        let lifecycle = process(), restored = Log<[UInt8]>(), store = store
        try store.write("scene", PreservedState.wrap([9], version: 1))
        let counting = CountingStore {
            lifecycle.preserve("scene", in: store, snapshot: { [7] }, restore: { restored.add($0) })
        }
        lifecycle.countLaunches(in: counting, cleanStartAfter: 2)
        #expect(lifecycle.preservation.restore()["scene"] == .restored && restored.all == [[9]])
        #expect(lifecycle.preservation.checkpoint(within: .seconds(60)).isEmpty)
        #expect(try store.read("scene") == PreservedState.wrap([7], version: 1))
    }

    /// A store that calls a closure once, when the count of launches is read.
    private final class CountingStore: StateStore {
        private let onRead: Mutex<(@Sendable () -> Void)?>

        init(onRead: @escaping @Sendable () -> Void) { self.onRead = Mutex(onRead) }

        func read(_ name: String) throws -> [UInt8]? {
            onRead.withLock { $0.take() }?()
            return nil
        }

        func write(_ name: String, _ bytes: [UInt8]) throws {}
        func remove(_ name: String) throws {}
    }

    /// An empty store that calls a closure when released.
    private final class LeavingStore: StateStore {
        private let onEnd: @Sendable () -> Void

        init(_ onEnd: @escaping @Sendable () -> Void) { self.onEnd = onEnd }
        deinit { onEnd() }
        func write(_ name: String, _ bytes: [UInt8]) throws {}
        func read(_ name: String) throws -> [UInt8]? { nil }
        func remove(_ name: String) throws {}
    }

    @Test func `a store that no longer counts launches is released outside the lock`() async {
        let lifecycle = process(), reads = Counter()
        lifecycle.countLaunches(
            in: LeavingStore {
                // Another thread, which cannot read while this one holds the lock.
                lifecycle.threads.run { () -> Void in
                    _ = lifecycle.previousRun
                    reads.add(1)
                }
                blockUntil("the other thread has read") { reads.value == 1 }
            })
        await onThread { lifecycle.countLaunches(in: MemoryStateStore()) }
        #expect(reads.value == 1)
    }

    @Test func `an uncounted launch goes on and reports the problem`() {
        struct Full: Error {}
        let lifecycle = process()
        store.fail(with: Full())
        let outcome = lifecycle.preservation.restore()
        #expect(outcome.previousRun == .unknown && outcome.problems.count == 3)
        #expect(outcome.problems.contains { $0.contains("cannot count this launch: Full()") })
        #expect(lifecycle.preservation.launched() == "Full()")
    }

    @Test func `a process whose good end cannot be recorded reports the problem`() async {
        struct Full: Error {}
        let lifecycle = process(), heartbeat = Heartbeat(time: ManualClock().timekeeper)
        _ = lifecycle.preservation.restore()
        let step = LifecycleTransition(from: .background, to: .notRunning, cause: .operator, sequence: 1, at: .zero)
        let context = LifecycleContext(step, deadline: .seconds(5), heartbeat: heartbeat)
        let recorded = await lifecycle.keeping.end(context)
        store.fail(with: Full())
        let failed = await lifecycle.keeping.end(context)
        #expect(recorded.failures.isEmpty && failed.failures == ["Full()"])
    }

    @Test func `the record of a launch reads back as written, and other bytes are refused`() {
        for phase in [LaunchRecord.Phase.launching, .running, .ended] {
            for failures in [UInt32(0), 1, 300, .max] {
                let record = LaunchRecord(phase: phase, failures: failures, isClean: failures == 1)
                #expect(LaunchRecord(record.bytes) == record)
                for length in 0..<8 { #expect(LaunchRecord(Array(record.bytes.prefix(length))) == nil) }
            }
        }
        #expect(LaunchRecord([2, 0, 0, 0, 0, 0, 0, 0]) == nil && LaunchRecord([1, 3, 0, 0, 0, 0, 0, 0]) == nil)
        let many = LaunchRecord.begin(after: LaunchRecord(phase: .launching, failures: .max), isMarked: false, limit: 2)
        #expect(many.record.failures == .max && many.cleanStartReason != nil)
    }
}
