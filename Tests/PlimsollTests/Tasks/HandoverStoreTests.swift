import PlimsollTesting
import Testing

@testable import Plimsoll

/// The identifiers of handed-over work from one run to the next.
@Suite struct HandoverStoreTests {
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
}
