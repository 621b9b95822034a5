import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

@Suite(.serialized, .timeLimit(.minutes(5))) struct SecretScrubTests {
    let clock = ManualClock()
    let calls = Log<String>()
    let manager: ResourceManager
    var lifecycle: Lifecycle { manager.lifecycle }

    init() { manager = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper) }

    @Test func `C44 C45 every hook has run and every secret is gone when a scrub returns`() async throws {
        let (key, kept) = (lifecycle.keep(try SecretTests.secret()), lifecycle.keep(try SecretTests.secret(keepsInBackground: true)))
        // The type of a hook has no `async`: work that is only scheduled cannot pass as done.
        let onScrub: (String, @escaping @Sendable () -> Void) -> Registration = lifecycle.onScrub
        for name in ["a", "b", "c"] { _ = onScrub(name) { [calls] in calls.add("\(name) \(key.isWiped)") } }
        let report = await onThread { [lifecycle] in lifecycle.scrub.run(.background) }
        // Hooks run first: a hook may need one secret to store another.
        #expect(calls.all.sorted() == ["a false", "b false", "c false"])
        #expect(report.ran == ["a", "b", "c"] && report.wiped.count == 1 && report.isClean && lifecycle.lastScrub == report)
        #expect(key.isWiped && SecretTests.isZero(key) && !kept.isWiped)
        let snapshot = await onThread { [lifecycle] in lifecycle.prepareForSnapshot() }
        #expect(snapshot.wiped.count == 1 && kept.isWiped && SecretTests.isZero(kept))
    }

    @Test func `C44 secrets that came back since the last scrub are erased by the next`() async throws {
        let key = lifecycle.keep(try SecretTests.secret())
        lifecycle.onScrub("counter") { [calls] in calls.add("scrub") }
        let lifecycle = lifecycle
        _ = await onThread { lifecycle.scrub.run(.background) }
        for wake in 1...3 {
            try key.refill { SecretTests.fill(&$0, wake) }
            let report = await onThread { lifecycle.scrub.run(.wake) }
            #expect(report.wiped.count == 1 && report.reason == .wake && key.isWiped && SecretTests.isZero(key))
        }
        #expect(calls.all.count == 4)
    }

    @Test func `C44 termination also erases the secrets that the background keeps, after the clean-up that uses them`() async throws {
        let kept = lifecycle.keep(try SecretTests.secret(keepsInBackground: true)), calls = calls
        lifecycle.onTerminate("sign off") { _ in calls.add("signed off: \(SecretTests.isIntact(kept))") }
        try await lifecycle.launch()
        try await lifecycle.enterBackground(cause: .operator)
        #expect(SecretTests.isIntact(kept) && lifecycle.lastScrub?.reason == .background)
        let report = await lifecycle.terminate()
        #expect(report.isClean && calls.all == ["signed off: true"] && kept.isWiped && SecretTests.isZero(kept))
        #expect(lifecycle.lastScrub?.reason == .termination)
    }

    /// A store that needs a secret to write.
    private struct SealingStore: StateStore {
        struct NoKey: Error {}

        let base = MemoryStateStore(), key: Secret

        func write(_ name: String, _ bytes: [UInt8]) throws {
            if key.isWiped { throw NoKey() }
            try base.write(name, bytes)
        }

        func read(_ name: String) throws -> [UInt8]? { try base.read(name) }
        func remove(_ name: String) throws { try base.remove(name) }
    }

    @Test func `C24 C44 a store that needs a secret to write records the end in good order`() async throws {
        let store = SealingStore(key: lifecycle.keep(try SecretTests.secret(keepsInBackground: true)))
        lifecycle.countLaunches(in: store)
        try await lifecycle.launch()
        #expect(await lifecycle.terminate().isClean && store.key.isWiped)
        let next = ResourceManager(source: ScriptedPressureSource(), time: clock.timekeeper).lifecycle
        next.countLaunches(in: store.base)
        #expect(next.preservation.restore().previousRun == .clean)
    }

    @Test func `C45 a hanging hook is named at the end of the budget, and keeps no secret`() async throws {
        let key = lifecycle.keep(try SecretTests.secret())
        let stuck = Parker()
        lifecycle.onScrub("stuck") { _ = stuck.park() }
        lifecycle.onScrub("quick") { [calls] in calls.add("quick") }
        let lifecycle = lifecycle
        let report = Log<ScrubReport>()
        async let run: Void = onThread { report.add(lifecycle.scrub.run(.background)) }
        await until { !calls.all.isEmpty }
        #expect(!key.isWiped)
        await until {
            clock.advance(by: ScrubSet.budget)
            return !report.all.isEmpty
        }
        await run
        #expect(report.all[0].overran.contains("stuck") && !report.all[0].isClean)
        #expect(key.isWiped && SecretTests.isZero(key))
        stuck.unpark()
    }

    @Test(arguments: [true, false]) func `C44 a scrub waits for a reader inside a secret, and names that secret if late`(leavesInTime: Bool)
        async throws
    {
        let key = lifecycle.keep(try SecretTests.secret())
        let lifecycle = lifecycle, report = Log<ScrubReport>()
        let leave = Parker(), isInside = Log<Bool>()
        async let reader: Void = onThread {
            _ = key.withBytes { _ in
                isInside.add(true)
                leave.park()
            }
        }
        await until { !isInside.all.isEmpty }
        async let scrub: Void = onThread { report.add(lifecycle.prepareForSnapshot()) }
        await until { key.isInUse }
        if leavesInTime { leave.unpark() }
        await until {
            if !leavesInTime { clock.advance(by: .seconds(1)) }
            return !report.all.isEmpty
        }
        await scrub
        #expect(report.all[0].inUse == (leavesInTime ? [] : ["key"]) && report.all[0].isClean == leavesInTime)
        #expect(SecretTests.isZero(key) == leavesInTime)
        leave.unpark()
        await reader
        #expect(SecretTests.isZero(key))
    }

    @Test func `a secret that is read or written anew is named by each scrub until the bytes are erased`() throws {
        let key = lifecycle.keep(try SecretTests.secret()), data = lifecycle.protectedData
        let lifecycle = lifecycle
        data.keep(key)
        let inside: Void? = key.withBytes { _ in
            for round in 0..<2 {
                // Without a budget a scrub does not wait for this reader.
                let report = lifecycle.prepareForSnapshot(within: .zero)
                #expect(report.inUse == ["key"] && report.wiped.isEmpty && !report.isClean, "\(round)")
                #expect(data.seal() == ["key"], "\(round)")
            }
        }
        #expect(inside != nil && SecretTests.isZero(key))
        #expect(lifecycle.prepareForSnapshot(within: .zero).isClean && data.seal().isEmpty)
        #expect(throws: LifecycleError.self) {
            try key.refill { bytes in
                SecretTests.fill(&bytes, 2)
                #expect(lifecycle.prepareForSnapshot(within: .zero).inUse == ["key"])
            }
        }
        #expect(key.isWiped && SecretTests.isZero(key))
    }

    @Test func `T1 a cancelled hook is not called, and released secrets are forgotten`() async throws {
        let hook = lifecycle.onScrub("gone") { [calls] in calls.add("gone") }
        hook.cancel()
        for seed in 0..<1000 { lifecycle.keep(try SecretTests.secret(64, seed)) }
        let report = await onThread { [lifecycle] in lifecycle.scrub.run(.freeze) }
        #expect(calls.all.isEmpty && report.ran.isEmpty && report.wiped.isEmpty && lifecycle.scrub.secrets.all.isEmpty)
    }

    @Test func `C69 sealing wipes protected secrets, notifies observers in order, and blocks access until unsealed`() async throws {
        let data = lifecycle.protectedData
        let key = data.keep(try SecretTests.secret())
        let registration = data.observe { [calls] in calls.add("\($0)") }
        #expect(try await data.withProtectedData { 1 } == 1)
        #expect(data.seal().isEmpty && data.seal().isEmpty && !data.isAvailable)
        #expect(key.isWiped && SecretTests.isZero(key))
        #expect(data.keep(try SecretTests.secret()).isWiped)
        await #expect(throws: LifecycleError.self) { try await data.withProtectedData { 2 } }

        async let waiting = data.withProtectedData(waiting: .seconds(1_000_000)) { 3 }
        let isOver = Log<Bool>()
        async let impatient: Void = {
            await #expect(throws: LifecycleError.self) { try await data.withProtectedData(waiting: .seconds(2)) { 4 } }
            isOver.add(true)
        }()
        await until {
            clock.advance(by: .milliseconds(50))
            return !isOver.all.isEmpty
        }
        await impatient
        data.unseal()
        #expect(try await waiting == 3)
        registration.cancel()
        data.seal()
        #expect(calls.all == ["false", "true"])
    }

    @Test func `C69 a wait for protected data can be cancelled`() async throws {
        let data = lifecycle.protectedData
        data.seal()
        let task = Task { try await data.withProtectedData(waiting: .seconds(1000)) { 1 } }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test func `C69 a change made by an observer is reported to that observer afterwards`() {
        let data = lifecycle.protectedData
        data.observe { [calls] isAvailable in
            calls.add("begin \(isAvailable)")
            if !isAvailable { data.unseal() }
            calls.add("end \(isAvailable)")
        }
        data.seal()
        #expect(calls.all == ["begin false", "end false", "begin true", "end true"] && data.isAvailable)
    }
}
