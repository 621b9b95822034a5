import Synchronization
import Testing

@testable import Plimsoll

@Suite struct SlotChunksTests {
    private func withChunks(_ pairSize: Int, _ body: (inout SlotChunks) -> Void) {
        let columns = UnsafeMutablePointer<SlotColumns>.allocate(capacity: SlotChunks.most)
        defer { columns.deallocate() }
        var chunks = SlotChunks(pairSize: pairSize, columns: columns)
        body(&chunks)
        chunks.free()
    }

    @Test(arguments: [4, 8, 12, 16, 48, 1024]) func `each slot has a place of its own, in line, and keeps it`(pairSize: Int) {
        withChunks(pairSize) { chunks in
            let count = UInt32(pairSize > 100 ? 1200 : 20_000)
            var first: [UnsafeMutableRawPointer] = []
            for slot in 0..<count {
                chunks.reserve(slot)
                let place = chunks.place(slot)
                first.append(place.pair)
                place.pair.storeBytes(of: slot, as: UInt32.self)
                if pairSize >= 8 { place.pair.storeBytes(of: ~slot, toByteOffset: pairSize - 4, as: UInt32.self) }
                place.node.pointee.hash = slot &* 7
                place.node.pointee.queue = .main
                (place.node.pointee.older, place.node.pointee.newer) = (slot, count - slot)
                place.mark.pointee.store(UInt8(slot % 4), ordering: .relaxed)
            }
            for slot in 0..<count {
                let place = chunks.place(slot), node = place.node.pointee
                let isRight =
                    place.pair == first[Int(slot)] && place.pair.load(as: UInt32.self) == slot
                    && (pairSize < 8 || place.pair.load(fromByteOffset: pairSize - 4, as: UInt32.self) == ~slot)
                    && node.hash == slot &* 7 && node.queue == .main && node.older == slot && node.newer == count - slot
                    && place.mark.pointee.load(ordering: .relaxed) == slot % 4
                if !isRight { Issue.record("slot \(slot)") }
                if UInt(bitPattern: place.pair) % 16 != 0, pairSize % 16 == 0 { Issue.record("slot \(slot) is out of line") }
            }
        }
    }

    @Test func `the last slot is in the last chunk`() {
        #expect(SlotPlace.chunk(of: 0) == 0 && SlotPlace.chunk(of: 15) == 0 && SlotPlace.chunk(of: 16) == 1)
        #expect(SlotPlace.chunk(of: UInt32(SlotChunks.capacity - 1)) == SlotChunks.most - 1)
        #expect(SlotPlace.chunk(of: UInt32(SlotChunks.capacity)) == SlotChunks.most)
        #expect(SlotChunks.capacity <= Int(SlotNode.none), "a link must be able to name each")
    }

    @Test(arguments: [true, false]) func `what is given back leaves the rest as it was, and can be used again`(hasReaders: Bool) {
        withChunks(64) { chunks in
            for slot in 0..<UInt32(10_000) {
                chunks.reserve(slot)
                chunks.place(slot).pair.storeBytes(of: slot + 1, as: UInt32.self)
                chunks.place(slot).node.pointee.hash = slot + 1
            }
            let before = chunks.byteCount
            #expect(chunks.trim(to: 3000, hasReaders: hasReaders) > 6000 * 64)
            #expect(hasReaders ? chunks.byteCount == before : chunks.byteCount < before)
            for slot in 0..<UInt32(3000) {
                let place = chunks.place(slot)
                if place.pair.load(as: UInt32.self) != slot + 1 || place.node.pointee.hash != slot + 1 { Issue.record("slot \(slot)") }
            }
            for slot in 3000..<UInt32(10_000) {
                chunks.reserve(slot)
                chunks.place(slot).pair.storeBytes(of: slot, as: UInt32.self)
            }
            #expect((0..<UInt32(10_000)).allSatisfy { chunks.place($0).pair.load(as: UInt32.self) == ($0 < 3000 ? $0 + 1 : $0) })
        }
    }

    @Test func `a column says what is usual until it is set`() {
        var column = SlotColumn<Int>(usual: 7)
        defer { column.free() }
        column.set(3, 1)
        #expect(column[3] == 7 && !column.isUsed && column.byteCount == 0)
        column.use(100, filledWith: 5)
        #expect((0..<UInt32(100)).allSatisfy { column[$0] == 5 })
        for slot in 100..<UInt32(5000) {
            column.reserve(slot)
            column.set(slot, Int(slot))
        }
        column.use(10, filledWith: 0)
        #expect(column[5] == 5 && column[4999] == 4999, "once only")
        #expect(column.trim(to: 120) > 0 && column[99] == 5 && column[119] == 119)
        column.reserve(4000)
        column.set(4000, 1)
        #expect(column[4000] == 1)
    }
}
