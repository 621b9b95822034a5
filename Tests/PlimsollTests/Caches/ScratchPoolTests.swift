import Testing

@testable import Plimsoll

@Suite struct ScratchPoolTests {
    private static let kibibyte = 1 << 10

    @Test func `a buffer has the smallest power of two of 4 KiB and more that suffices`() {
        let rows: [(bytes: Int, capacity: Int)] = [
            (0, 4), (1, 4), (4 * 1024, 4), (4 * 1024 + 1, 8), (8 * 1024, 8), (100 * 1024, 128), (300 * 1024, 512),
        ]
        let pool = ScratchPool()
        for row in rows {
            let buffer = pool.take(row.bytes)
            #expect(buffer.capacity == row.capacity * Self.kibibyte, "\(row.bytes) bytes")
            #expect(UInt(bitPattern: buffer.start) % 16 == 0)
            UnsafeMutableRawBufferPointer(start: buffer.start, count: buffer.capacity).initializeMemory(as: UInt8.self, repeating: 7)
            pool.give(buffer)
            pool.clear()
        }
    }

    @Test func `buffers of up to 256 KiB are kept, eight at most, and the kept bytes are freed once`() {
        let pool = ScratchPool()
        for (kibibytes, kept) in [(4, 4), (256, 256), (257, 0), (512, 0)] {
            pool.give(pool.take(kibibytes * Self.kibibyte))
            #expect(pool.clear() == kept * Self.kibibyte, "\(kibibytes) KiB")
        }
        for count in [1, 7, 8, 9, 12] {
            let buffers = (0..<count).map { _ in pool.take(10_000) }
            #expect(Set(buffers.map { UInt(bitPattern: $0.start) }).count == count)
            for buffer in buffers { pool.give(buffer) }
            #expect(pool.clear() == min(8, count) * 16 * Self.kibibyte && pool.clear() == 0, "\(count) buffers")
        }
    }

    @Test func `a kept buffer is taken again if large enough, and freed otherwise`() {
        let pool = ScratchPool()
        let first = pool.take(8 * Self.kibibyte)
        pool.give(first)
        let again = pool.take(8 * Self.kibibyte)
        #expect(again.start == first.start && again.capacity == 8 * Self.kibibyte)
        pool.give(again)
        let larger = pool.take(8 * Self.kibibyte + 1)
        #expect(larger.capacity == 16 * Self.kibibyte && pool.clear() == 0, "the smaller one is gone")
        pool.give(larger)
        let smaller = pool.take(1)
        #expect(smaller.start == larger.start && smaller.capacity == 16 * Self.kibibyte)
        pool.give(smaller)
        #expect(pool.clear() == 16 * Self.kibibyte)
    }
}
