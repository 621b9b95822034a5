import PlimsollTesting
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The identifiers of handed-over work from one run to the next.
@Suite(.timeLimit(.minutes(5))) struct HandoverStoreTests {
    private let store = MemoryStateStore()

    private func run(at wall: Int) -> HandoverStore { HandoverStore(wall: { .seconds(wall) }) }

    @Test func `identifiers rise, also from one run to a later one that does not know the earlier one's store`() {
        let first = run(at: 100), second = run(at: 101)
        for (store, bytes) in [(first, [1]), (first, [2]), (second, [3])] as [(HandoverStore, [UInt8])] {
            #expect(store.take("upload", bytes, for: nil) != nil, "in memory only")
        }
        let works = first.claim() + second.claim(), ids = works.map(\.id)
        #expect(works.map(\.bytes) == [[1], [2], [3]] && ids == ids.sorted() && Set(ids).count == 3)
    }

    @Test func `work that cannot be read stays in the store, and a later call adopts the work`() {
        let first = run(at: 100), second = run(at: 200)
        #expect(first.persist(in: store) == nil && first.take("upload", [1], for: nil) == nil)
        #expect(second.persist(in: UnreadableStore(kept: store))?.contains("cannot read") == true)
        #expect(second.take("upload", [2], for: nil) != nil, "in memory only")
        #expect(second.persist(in: store) == nil && second.claim().map(\.bytes) == [[1], [2]])
    }

    @Test func `work handed over after the time of day was set back has a later identifier, and is kept`() {
        let first = run(at: 100), second = run(at: 50), third = run(at: 50), fourth = run(at: 50)
        for (run, bytes) in [(first, [1]), (second, [2])] as [(HandoverStore, [UInt8])] {
            #expect(run.persist(in: store) == nil && run.take("upload", bytes, for: nil) == nil)
        }
        #expect(third.persist(in: store) == nil)
        let works = third.claim()
        #expect(works.map(\.bytes) == [[1], [2]] && works.map(\.id) == works.map(\.id).sorted())
        for work in works { work.accept() }
        #expect(fourth.persist(in: store) == nil && fourth.claim().isEmpty && store.aside.isEmpty)
    }

    @Test func `work that is accepted while its store is read a second time does not come back`() throws {
        let first = run(at: 100), second = run(at: 200)
        #expect(first.persist(in: store) == nil && first.take("upload", [1], for: nil) == nil)
        let work = try #require(first.claim().first)
        #expect(first.persist(in: HookedStore(kept: store, onRead: { work.accept() })) == nil)
        #expect(first.claim().isEmpty)
        // Lets go of the hook, which refers to the work.
        #expect(first.persist(in: store) == nil && first.claim().isEmpty)
        #expect(second.persist(in: store) == nil && second.claim().isEmpty)
    }

    @Test(.needsLinux) func `an acceptance that is being written while its store is set a second time is the last word`() async throws {
        let gate = Blockade(), isArmed = Atomic(false), ended = Log<String>(), threads = Log<Int32>()
        let first = run(at: 100), second = run(at: 200)
        let slow = HookedStore(kept: store, onWrite: { if isArmed.exchange(false, ordering: .relaxed) { gate.wait() } })
        #expect(first.persist(in: slow) == nil)
        #expect(first.take("upload", [1], for: nil) == nil && first.take("upload", [2], for: nil) == nil)
        let works = first.claim()
        try #require(works.count == 2)
        isArmed.store(true, ordering: .relaxed)
        #expect(
            Thread.start("accept") {
                works[0].accept()
                ended.add("accept")
            })
        await until("the write") { gate.count == 1 }
        #expect(
            Thread.start("persist") {
                threads.add(threadNumber)
                _ = first.persist(in: slow)
                works[1].accept()
                ended.add("persist")
            })
        await until("the wait for the write") {
            !ended.all.isEmpty || threads.all.first.map { isBlocked($0) } ?? false
        }
        gate.open()
        await until("both ends") { ended.all.count == 2 }
        #expect(first.claim().isEmpty)
        #expect(second.persist(in: store) == nil && second.claim().isEmpty)
    }

    @Test func `work whose acceptance could not be written does not come back when the store is set again`() throws {
        struct Full: Error {}
        let first = run(at: 100), second = run(at: 200)
        #expect(first.persist(in: store) == nil && first.take("upload", [1], for: nil) == nil)
        let work = try #require(first.claim().first)
        store.fail(with: Full())
        work.accept()
        store.fail(with: nil)
        #expect(first.persist(in: store) == nil && first.claim().isEmpty)
        #expect(second.persist(in: store) == nil && second.claim().isEmpty)
    }

    @Test func `work goes to a store whose content was set aside, too`() throws {
        let first = run(at: 100), second = run(at: 200)
        #expect(first.take("upload", [1], for: nil) != nil, "in memory only")
        try store.write(StateName.handovers, [1, 2])
        #expect(first.persist(in: store)?.contains("set aside") == true)
        #expect(second.persist(in: store) == nil && second.claim().map(\.bytes) == [[1]])
    }

    @Test func `a sink that is replaced is released after the lock, so that captured objects may use the store`() {
        final class Captured: Sendable {
            let handovers: HandoverStore, ends: Counter
            init(_ handovers: HandoverStore, _ ends: Counter) { (self.handovers, self.ends) = (handovers, ends) }
            deinit { ends.add(1 + handovers.claim().count) }
        }
        let handovers = run(at: 100), ends = Counter()
        func setCapturingSink() {
            let captured = Captured(handovers, ends)
            handovers.setSink { _ in withExtendedLifetime(captured) {} }
        }
        setCapturingSink()
        #expect(ends.value == 0)
        handovers.setSink { _ in }
        #expect(ends.value == 1)
    }

    @Test func `work goes to the store that was set last`() {
        let first = run(at: 100), second = run(at: 200), other = MemoryStateStore()
        #expect(first.persist(in: store) == nil && first.take("upload", [1], for: nil) == nil)
        #expect(first.persist(in: other) == nil && first.take("upload", [2], for: nil) == nil)
        #expect(second.persist(in: other) == nil && second.claim().map(\.bytes) == [[1], [2]])
    }
}

/// A store that calls back before each write and after each read.
struct HookedStore: StateStore {
    let kept: MemoryStateStore
    var onRead: @Sendable () -> Void = {}
    var onWrite: @Sendable () -> Void = {}

    func write(_ name: String, _ bytes: [UInt8]) throws {
        onWrite()
        try kept.write(name, bytes)
    }
    func read(_ name: String) throws -> [UInt8]? {
        let bytes = try kept.read(name)
        onRead()
        return bytes
    }
    func remove(_ name: String) throws { try kept.remove(name) }
}
