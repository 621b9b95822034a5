import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Plimsoll

/// Sizes of a shard's memory, and the memory that is given back.
@Suite struct SlotMemoryTests {
    // MARK: Blocks

    @Test(arguments: [(1, 16), (16, 16), (17, 32), (64, 64), (65, 128)])
    func `a block doubles until the slots fit, and has no memory beyond pairs, nodes and marks`(count: Int, room: Int) {
        withBlock(8) { block in
            let none = block.grow(to: count, leastMapped: .max, used: 0, move: nil)
            #expect(none == nil && block.room == room)
            let old = block.grow(to: room + 1, leastMapped: .max, used: 0, move: nil)
            #expect(old?.byteCount == room * (8 + SlotNode.byteCount + 1) && block.room == 2 * room)
            old?.free()
        }
    }

    @Test func `the first slot comes along with its contents and its mark`() {
        withBlock(8) { block in
            _ = block.grow(to: 16, leastMapped: .max, used: 0, move: nil)
            block.place(0).pair.storeBytes(of: 7, as: UInt64.self)
            block.place(0).node.pointee.link(in: .small, older: SlotNode.none, newer: SlotNode.none)
            block.place(0).mark.pointee.store(3, ordering: .relaxed)
            let moved = Counter()
            let old = block.grow(to: 17, leastMapped: .max, used: 1) { from, to in
                moved.add(Int(from.load(as: UInt64.self)))
                to.storeBytes(of: from.load(as: UInt64.self), as: UInt64.self)
            }
            old?.free()
            let place = block.place(0)
            #expect(moved.value == 7 && place.pair.load(as: UInt64.self) == 7)
            #expect(place.node.pointee.queue == .small && place.mark.pointee.load(ordering: .relaxed) == 3)
        }
    }

    @Test(.needsLinux) func `the pages behind the used slots are given back in each column, and are zero then`() {
        let page = Int(getpagesize())
        withBlock(64) { block in
            // Each column has as many whole pages before the middle as behind.
            _ = block.grow(to: 2 * page, leastMapped: 1, used: 0, move: nil)
            #expect(block.room == 2 * page)
            for slot in 0..<UInt32(2 * page) {
                let place = block.place(slot)
                place.pair.storeBytes(of: 1, toByteOffset: 60, as: UInt32.self)
                place.node.pointee.hash = 1
                place.mark.pointee.store(1, ordering: .relaxed)
            }
            #expect(block.trim(to: 2 * page) == 0)
            #expect(block.trim(to: page) == page * (64 + SlotNode.byteCount + 1))
            for slot in 0..<UInt32(2 * page) {
                let place = block.place(slot), expected: UInt32 = slot < page ? 1 : 0
                let isRight =
                    place.pair.load(fromByteOffset: 60, as: UInt32.self) == expected
                    && place.node.pointee.hash == expected
                    && UInt32(place.mark.pointee.load(ordering: .relaxed)) == expected
                if !isRight { Issue.record("slot \(slot)") }
            }
        }
    }

    // MARK: Columns

    @Test func `a column has memory for whole chunks, and frees those behind the last slot`() {
        var column = SlotColumn<Int>(usual: 7)
        column.use(17, filledWith: 5)
        // The first chunk has 16 slots, the second 32, and the third 64.
        #expect(column.byteCount == (16 + 32) * 8)
        for slot in 17..<UInt32(112) {
            column.reserve(slot)
            column.set(slot, Int(slot))
        }
        #expect(column.byteCount == (16 + 32 + 64) * 8)
        let none = column.trim(to: 49)
        #expect(none == 0 && column.byteCount == (16 + 32 + 64) * 8 && column[48] == 48)
        let third = column.trim(to: 48)
        #expect(third == 64 * 8 && column.byteCount == (16 + 32) * 8 && column[47] == 47)
        let second = column.trim(to: 16)
        #expect(second == 32 * 8 && column.byteCount == 16 * 8 && column[0] == 5 && column[15] == 5)
        column.free()
    }

    @Test(.needsLinux) func `of a chunk with pages of its own the pages behind the last slot are given back`() {
        let page = Int(getpagesize())
        var column = SlotColumn<Int>(usual: 0)
        column.use(1, filledWith: 1)
        // This chunk begins with slot 4080, and has 4096 slots.
        for slot in 4080..<UInt32(8176) {
            column.reserve(slot)
            column.set(slot, 1)
        }
        let kept = page / 8, bytes = column.trim(to: 4080 + kept)
        #expect(bytes == 32_768 - page)
        #expect(column[UInt32(4079 + kept)] == 1 && column[UInt32(4080 + kept)] == 0)
        column.free()
    }

    // MARK: Tables

    /// Returns the cells, the slots, the outgrown blocks and indexes, and the slots ever in use.
    private func sizes<Value: Sendable>(_ cache: PurgeableCache<Int, Value>) -> [Int] {
        cache.directory.shard(at: 0).lock.pointee.withLock { table in
            [Int(table.index.mask) + 1, table.slots.room, table.retired.count, table.top]
        }
    }

    @Test func `an index has at least two cells for each entry, and doubles with the block`() {
        let plain = PurgeableCache<Int, Int>("plain", shardCount: 1, cost: { _, _ in 1 })
        let objects = PurgeableCache<Int, String>("objects", shardCount: 1, cost: { _, _ in 1 })
        let rows = [
            1: [32, 16, 0, 1], 16: [32, 16, 0, 16], 17: [64, 32, 2, 17], 32: [64, 32, 2, 32], 33: [128, 64, 4, 33],
            1000: [2048, 1024, 12, 1000],
        ]
        for count in 1...1000 {
            plain.insert(count, forKey: count)
            objects.insert("\(count)", forKey: count)
            guard let expected = rows[count] else { continue }
            #expect(sizes(plain) == expected)
            // Without readers, nothing that was outgrown is kept.
            #expect(sizes(objects) == [expected[0], expected[1], 0, expected[3]])
        }
        plain.removeAll()
        objects.removeAll()
        #expect(sizes(plain) == [2048, 1024, 12, 0] && sizes(objects) == [32, 0, 0, 0])
    }

    @Test(.needsLinux) func `outgrown blocks with pages of their own, and blocks of removed entries, are zero`() {
        let cache = PurgeableCache<Int, Int>("plain", shardCount: 1, cost: { _, _ in 1 })
        for key in 1...5000 { cache.insert(key, forKey: key) }
        let shard = cache.directory.shard(at: 0)
        let rests = shard.lock.pointee.withLock { table in
            table.retired.filter { $0.byteCount >= 8192 }.map { allocation in
                (0..<allocation.byteCount / 8).count {
                    allocation.base.load(fromByteOffset: $0 * 8, as: UInt64.self) != 0
                }
            }
        }
        #expect(rests.count > 3 && rests.allSatisfy { $0 == 0 }, "\(rests)")
        cache.removeAll()
        let left = (0..<UInt32(5000)).count { shard.place($0, 16).pair.load(as: Int.self) != 0 }
        #expect(left == 0)
    }

    @Test(.needsLinux) func `a shard that becomes compact gives back the memory behind its last entry`() {
        let cache = PurgeableCache<Int, Int>("sparse", shardCount: 1, cost: { _, value in value })
        for key in 1...8000 { cache.insert(key % 2 + 1, forKey: key, tags: ["t"], timeToLive: .seconds(3600)) }
        func columns() -> [Int] {
            [cache.sum { $0.costs.byteCount }, cache.sum { $0.tagged.byteCount }, cache.sum { $0.times.byteCount }]
        }
        let before = columns()
        for key in 1...7000 { cache.removeValue(forKey: key) }
        #expect(cache.release(1) > 0 && cache.sum { $0.top } == 999)
        for (most, after) in zip(before, columns()) { #expect(after > 0 && after < most / 2) }
        let shard = cache.directory.shard(at: 0)
        let left = (4000..<UInt32(8000)).count { slot in
            let place = shard.place(slot, 16)
            return place.pair.load(as: Int.self) != 0 || place.node.pointee.hash != 0
        }
        #expect(left == 0)
        #expect((7002...8000).allSatisfy { cache.value(forKey: $0) == $0 % 2 + 1 })
    }
}
