import Synchronization
import Testing

@testable import Plimsoll

/// Runs `body` with an empty block, and frees the block.
func withBlock(_ pairSize: Int, _ body: (inout SlotBlock) -> Void) {
    let columns = UnsafeMutablePointer<SlotColumns>.allocate(capacity: 1)
    defer { columns.deallocate() }
    var block = SlotBlock(pairSize: pairSize, columns: columns)
    body(&block)
    block.free()
}

@Suite struct SlotBlockTests {
    private func grow(_ block: inout SlotBlock, to count: UInt32, used: UInt32, move: PairMove? = nil) {
        guard count > block.room else { return }
        block.grow(to: Int(count), leastMapped: CacheAllocation.leastMapped, used: Int(used), move: move)?.free()
    }

    @Test(arguments: [4, 8, 12, 16, 48, 1024])
    func `each slot has a separate, aligned place, and the contents come along when the block grows`(pairSize: Int) {
        withBlock(pairSize) { block in
            let count = UInt32(pairSize > 100 ? 1200 : 20_000)
            for slot in 0..<count {
                grow(&block, to: slot + 1, used: slot)
                let place = block.place(slot)
                place.pair.storeBytes(of: slot, as: UInt32.self)
                if pairSize >= 8 { place.pair.storeBytes(of: ~slot, toByteOffset: pairSize - 4, as: UInt32.self) }
                place.node.pointee.hash = slot &* 7
                place.node.pointee.link(in: .main, older: slot, newer: count - slot)
                place.mark.pointee.store(UInt8(slot % 4), ordering: .relaxed)
            }
            for slot in 0..<count {
                let place = block.place(slot), node = place.node.pointee
                let isRight =
                    place.pair == block.place(0).pair + Int(slot) * pairSize && place.pair.load(as: UInt32.self) == slot
                    && (pairSize < 8 || place.pair.load(fromByteOffset: pairSize - 4, as: UInt32.self) == ~slot)
                    && node.hash == slot &* 7 && node.queue == .main && node.older == slot && node.newer == count - slot
                    && place.mark.pointee.load(ordering: .relaxed) == slot % 4
                if !isRight { Issue.record("slot \(slot)") }
                if UInt(bitPattern: place.pair) % 16 != 0, pairSize % 16 == 0 { Issue.record("slot \(slot) is out of line") }
            }
        }
    }

    @Test func `non-trivial contents are moved one by one, and only the present ones`() {
        withBlock(8) { block in
            grow(&block, to: 16, used: 0)
            for slot in 0..<UInt32(16) {
                block.place(slot).pair.storeBytes(of: UInt64(slot), as: UInt64.self)
                block.place(slot).node.pointee.queue = slot % 3 == 0 ? .free : .small
            }
            let moved = Mutex<[UInt64]>([])
            grow(&block, to: 17, used: 16) { from, to in
                let number = from.load(as: UInt64.self)
                moved.withLock { $0.append(number) }
                to.storeBytes(of: number + 100, as: UInt64.self)
            }
            let isOver = moved.withLock { $0 } == (0..<16).filter { $0 % 3 != 0 }
            #expect(isOver && block.room == 32)
            #expect((0..<UInt32(16)).allSatisfy { block.place($0).pair.load(as: UInt64.self) == ($0 % 3 == 0 ? 0 : UInt64($0) + 100) })
        }
    }

    @Test func `a link can name each slot`() { #expect(SlotBlock.most <= Int(SlotNode.none)) }

    @Test func `trimmed memory leaves the rest unchanged, and can be used again`() {
        withBlock(64) { block in
            for slot in 0..<UInt32(10_000) {
                grow(&block, to: slot + 1, used: slot)
                block.place(slot).pair.storeBytes(of: slot + 1, as: UInt32.self)
                block.place(slot).node.pointee.hash = slot + 1
            }
            #expect(block.trim(to: 3000) > 6000 * 64)
            for slot in 0..<UInt32(3000) {
                let place = block.place(slot)
                if place.pair.load(as: UInt32.self) != slot + 1 || place.node.pointee.hash != slot + 1 { Issue.record("slot \(slot)") }
            }
            for slot in 3000..<UInt32(10_000) { block.place(slot).pair.storeBytes(of: slot, as: UInt32.self) }
            #expect((0..<UInt32(10_000)).allSatisfy { block.place($0).pair.load(as: UInt32.self) == ($0 < 3000 ? $0 + 1 : $0) })
        }
    }

    @Test func `a detached block is ended once, slot by slot`() {
        withBlock(8) { block in
            grow(&block, to: 16, used: 0)
            for slot in 0..<UInt32(5) {
                block.place(slot).pair.storeBytes(of: UInt64(slot), as: UInt64.self)
                block.place(slot).node.pointee.queue = slot == 2 ? .free : .small
            }
            var ended: [UInt64] = []
            block.detach()?.end { ended.append($0.load(as: UInt64.self)) }
            #expect(ended == [0, 1, 3, 4] && block.room == 0)
            #expect(block.detach() == nil && block.trim(to: 0) == 0)
            grow(&block, to: 1, used: 0)
            #expect(block.place(0).node.pointee.queue == .free, "new memory")
        }
    }

    @Test func `a shard splits before the index and the block double`() {
        let cache = PurgeableCache<Int, Int>("splitting", limit: .bytes(20_000), shardCount: 64) { _, _ in 1 }
        for key in 0..<10_000 { cache.insert(key, forKey: key) }
        var shards = 0
        cache.directory.forEach { shard in
            shard.lock.pointee.withLock { table in
                #expect(table.count < 512 && table.slots.room <= 512 && table.index.mask < 1024)
            }
            shards += 1
            return true
        }
        #expect(shards >= 20 && shards <= 64)
    }

    @Test func `a column gives the usual value until set`() {
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
