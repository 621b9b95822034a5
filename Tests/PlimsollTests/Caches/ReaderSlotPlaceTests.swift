import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// The reader slots and counter stripes that threads get.
@Suite(.timeLimit(.minutes(5)), .needsLinux) struct ReaderSlotPlaceTests {
    typealias Crew = CacheVisitTests.Crew

    @Test func `each reader slot has cache lines of its own`() {
        let crew = Crew(), gate = Mutex(()), places = Log<UInt>()
        // No thread leaves its reader slot before all threads have arrived.
        gate.withLock { _ in
            let all = crew.start(4) { _ in
                ReaderSlots.take()
                places.add(UInt(bitPattern: ReaderSlot.current?.base))
                crew.arrived()
                gate.withLock { _ in }
            }
            crew.waitForArrivals(all)
        }
        crew.waitForEnd()
        #expect(Set(places.all).count == places.all.count && places.all.allSatisfy { $0 % 128 == 0 }, "\(places.all)")
    }

    @Test func `the first threads have a stripe each, and later threads none`() async {
        await #expect(processExitsWith: .success) {
            let crew = CacheVisitTests.Crew(), gate = Mutex(()), stripes = Log<Int>(), threads = ReaderSlots.stripes + 8
            let all = gate.withLock { _ in
                let all = crew.start(threads) { _ in
                    ReaderSlots.take()
                    stripes.add(ReaderSlot.current?.stripe.pointee.load(ordering: .relaxed) ?? 0)
                    crew.arrived()
                    gate.withLock { _ in }
                }
                crew.waitForArrivals(all)
                return all
            }
            crew.waitForEnd()
            let own = stripes.all.filter { $0 > 0 }, end = CacheCounters.stripe(ReaderSlots.stripes)
            guard all == threads, Set(own).count == own.count, own.allSatisfy({ $0 < end }) else { exit(1) }
            // The threads of the test's own process may have some of the stripes.
            let hasMost = own.count >= ReaderSlots.stripes - 4, hasOthers = stripes.all.contains(where: { $0 < 0 })
            exit(hasMost && hasOthers ? 0 : 2)
        }
    }

    @Test(arguments: [0, 1, 4096] as [UInt])
    func `the end of a thread clears a borrow and the reference given for it, but no reference that came too late`(
        borrowedFrom: UInt
    ) {
        let memory = UnsafeMutableRawPointer.allocate(byteCount: 128, alignment: 128)
        memory.initializeMemory(as: UInt8.self, repeating: 0, count: 128)
        let reader = ReaderSlot(base: memory)
        reader.borrowedFrom.pointee.store(borrowedFrom, ordering: .relaxed)
        reader.given.pointee.store(64, ordering: .relaxed)
        reader.endBorrowing()
        let left = reader.borrowedFrom.pointee.load(ordering: .relaxed)
        let given = reader.given.pointee.load(ordering: .relaxed)
        #expect(left == 0 && given == (borrowedFrom == 0 ? 64 : 0))
        memory.deallocate()
    }
}
