#if NIO
public import NIOCore
public import Plimsoll

extension ByteBuffer {
    /// Bytes of memory that the buffer keeps from being freed: the whole of its storage, which NIO rounds up to a power of two, whatever part of it can be read.
    ///
    /// Slices share the storage of the buffer that they were cut from, and each keeps all of it: a slice that is kept for long is better copied
    /// (`ByteBuffer(bytes: slice.readableBytesView)`).
    public var heldByteCount: Int { storageCapacity + Self.overhead }

    /// The storage's object and its block's header, both of the heap.
    private static let overhead = 64
}

extension PurgeableCache where Value == ByteBuffer {
    /// A cache of buffers, each of which costs the memory that it keeps (`ByteBuffer.heldByteCount`) and its entry: `readableBytes` would be down to half of that.
    ///
    /// - Parameters:
    ///   - name: how reports name it.
    ///   - limit: bound of the sum of costs; `nil` for no bound but what memory has room for.
    ///   - rebuildCost: what it costs to make a value again.
    ///   - timeToLive: age at which a value counts as missing; `nil` for ever.
    public convenience init(
        ofBuffers name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil
    ) {
        self.init(name, limit: limit, rebuildCost: rebuildCost, timeToLive: timeToLive) { _, buffer in
            buffer.heldByteCount + MemoryLayout<Key>.stride + MemoryLayout<ByteBuffer>.stride + 64
        }
    }
}
#endif
