import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll
@testable import PlimsollLifecycle

/// Leases and recorded changes while a call about them is under way.
@Suite(.serialized, .timeLimit(.minutes(5))) struct HeldStateTests {
    let stage = Stage()
    var lifecycle: Lifecycle { stage.lifecycle }

    @Test func `C48 T29 a renewed lease counts from before the renewing call`() async throws {
        let clock = stage.clock
        let lease = ExclusiveResource("leader", lease: .seconds(15), release: {}, reacquire: { _ in })
        try lifecycle.exclusive.add(lease)
        clock.advance(by: .seconds(10))
        // The grantor counts from the answer at the earliest. The answer took four seconds.
        try await lease.renew { clock.advance(by: .seconds(4)) }
        clock.advance(by: .seconds(10))
        #expect(lease.isHeld && lease.isCurrent(lease.epoch))
        clock.advance(by: .milliseconds(1100))
        #expect(!lease.isHeld && !lease.isCurrent(lease.epoch), "15 s after the request, not after the answer")
    }

    @Test func `C48 T29 an acquired lease counts from before the acquiring call`() async throws {
        let clock = stage.clock
        let lease = ExclusiveResource(
            "leader", lease: .seconds(15), isHeld: false, release: {}, reacquire: { _ in clock.advance(by: .seconds(4)) })
        try lifecycle.exclusive.add(lease)
        try await lease.acquire()
        clock.advance(by: .seconds(10))
        #expect(lease.isHeld && lease.isCurrent(lease.epoch))
        clock.advance(by: .milliseconds(1100))
        #expect(!lease.isHeld && !lease.isCurrent(lease.epoch), "15 s after the request, not after the answer")
    }

    @Test(arguments: [false, true])
    func `T29 a lease that has run out before the renewal has a new epoch, as others may have held it meanwhile`(isDuringCall: Bool)
        async throws
    {
        let clock = stage.clock
        let lease = ExclusiveResource("leader", lease: .seconds(15), release: {}, reacquire: { _ in })
        try lifecycle.exclusive.add(lease)
        clock.advance(by: .seconds(10))
        try await lease.renew {}
        #expect(lease.isCurrent(1), "renewed in time")
        clock.advance(by: .seconds(14))
        if !isDuringCall { clock.advance(by: .seconds(1)) }
        #expect(lease.isHeld == isDuringCall)
        try await lease.renew { if isDuringCall { clock.advance(by: .seconds(1)) } }
        #expect(lease.isHeld && lease.epoch == 2 && !lease.isCurrent(1) && lease.isCurrent(2))
        #expect(throws: ExclusiveResourceError(resource: "leader", reason: .stale(epoch: 1, current: 2))) { try lease.check(1) }
    }

    @Test func `T29 a renewal during an acquisition leaves the epoch that the acquisition has`() async throws {
        let leases = Log<ExclusiveResource>()
        let lease = ExclusiveResource(
            "leader", lease: .seconds(15), isHeld: false, release: {},
            reacquire: { _ in for lease in leases.all { try await lease.renew {} } })
        leases.add(lease)
        try lifecycle.exclusive.add(lease)
        stage.clock.advance(by: .seconds(20))
        try await lease.acquire()
        #expect(lease.epoch == 2 && lease.isCurrent(2))
    }

    @Test func `C41 changes recorded during a failing save come after the changes put back`() async throws {
        struct Full: Error {}
        let value = Mutex<[UInt8]>([]), store = SlowStore(), lifecycle = lifecycle
        let handle = lifecycle.preserve(
            "cart", in: store, snapshot: { value.withLock { $0 } }, restore: { bytes in value.withLock { $0 = bytes } },
            apply: { change in value.withLock { $0 += change } })
        func add(_ item: UInt8) {
            value.withLock { $0.append(item) }
            handle.record([item])
        }
        try await lifecycle.launch()
        #expect(await lifecycle.checkpoint(within: .seconds(60)).isEmpty)
        let writes = store.memory.writes
        add(1)
        store.hold(failing: Full())
        let failing = Task { await lifecycle.checkpoint(within: .seconds(60)) }
        await until("the save is under way") { store.held == 1 }
        add(2)
        store.goOn()
        #expect(await failing.value.count == 1)
        add(3)
        #expect(await lifecycle.checkpoint(within: .seconds(60)).isEmpty)
        #expect(store.memory.appends == 1 && store.memory.writes == writes)
        let next = Stage(), restored = Mutex<[UInt8]>([])
        next.lifecycle.preserve(
            "cart", in: store.memory, snapshot: { [] }, restore: { bytes in restored.withLock { $0 = bytes } },
            apply: { change in restored.withLock { $0 += change } })
        try await next.lifecycle.launch()
        #expect(restored.withLock { $0 } == [1, 2, 3])
    }

    /// A store in memory whose next append waits, and then fails.
    private final class SlowStore: StateStore {
        let memory = MemoryStateStore()
        private let failure = Mutex<(any Error)?>(nil)
        private let parker = Parker(), count = Counter()

        var held: Int { count.value }
        func hold(failing error: any Error) { failure.withLock { $0 = error } }
        func goOn() { parker.unpark() }

        func append(_ delta: [UInt8], to name: String) throws -> Bool {
            let error = failure.withLock { failure in
                defer { failure = nil }
                return failure
            }
            if let error {
                count.add(1)
                parker.park()
                throw error
            }
            return try memory.append(delta, to: name)
        }

        func write(_ name: String, _ bytes: [UInt8]) throws { try memory.write(name, bytes) }
        func read(_ name: String) throws -> [UInt8]? { try memory.read(name) }
        func remove(_ name: String) throws { try memory.remove(name) }
        func load(_ name: String) throws -> StoredState { try memory.load(name) }
        func setAside(_ name: String, reason: String) throws { try memory.setAside(name, reason: reason) }
    }
}
