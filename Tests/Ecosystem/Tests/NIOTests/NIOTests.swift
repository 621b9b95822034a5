import NIOCore
import Plimsoll
import PlimsollNIO
import Testing

@Suite(.timeLimit(.minutes(5))) struct NIOTests {
    @Test func `a buffer returns from volatile memory with the bytes that were readable`() throws {
        let cache = VolatileCache<Int, ByteBuffer>("buffers", limit: .mebibytes(8))
        for count in [0, 1, 4096, 100_000] {
            var buffer = ByteBuffer(string: "head")
            buffer.writeBytes((0..<count).map { UInt8(truncatingIfNeeded: $0 * 7) })
            buffer.moveReaderIndex(forwardBy: 4)
            #expect(cache.insert(buffer, forKey: count))
            let found = try #require(cache.value(forKey: count))
            #expect(found == buffer && found.readableBytes == count)
        }
    }

    @Test func `a cache of buffers counts the buffers' storage, not their readable bytes`() throws {
        let cache = PurgeableCache<Int, ByteBuffer>(ofBuffers: "bodies", limit: .kibibytes(256))
        // NIO rounds up to a power of two: 33 KiB that can be read keep 64 KiB.
        let body = ByteBuffer(repeating: 65, count: 33 << 10)
        #expect(body.storageCapacity == 64 << 10 && body.heldByteCount >= 64 << 10)
        for key in 0..<8 { cache.insert(ByteBuffer(repeating: 65, count: 33 << 10), forKey: key) }
        #expect(cache.count == 3 && cache.statistics.byteCount > 192 << 10 && cache.statistics.byteCount < 200 << 10)
        // A slice keeps the whole storage of the sliced buffer.
        let slice = try #require(body.getSlice(at: 0, length: 10))
        #expect(slice.heldByteCount == body.heldByteCount && ByteBuffer(bytes: slice.readableBytesView).heldByteCount < 1024)
    }
}
