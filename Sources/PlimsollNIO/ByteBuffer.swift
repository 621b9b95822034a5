#if NIO
public import NIOCore
public import Plimsoll

extension ByteBuffer {
    /// Bytes of memory that the buffer keeps allocated: the whole storage, which NIO rounds up to a power of two, not
    /// only the readable part.
    ///
    /// A slice shares the storage of the original buffer and keeps all of that storage allocated. Copy a slice that
    /// is kept for long (`ByteBuffer(bytes: slice.readableBytesView)`).
    public var heldByteCount: Int { storageCapacity + Self.overhead }

    /// Heap overhead: the storage object and the block header.
    private static let overhead = 64
}

extension PurgeableCache where Value == ByteBuffer {
    /// Creates a cache of buffers. The cost of a buffer is the allocated memory (`ByteBuffer.heldByteCount`) plus the
    /// cache entry. `readableBytes` may be as low as half of that.
    ///
    /// - Parameters:
    ///   - name: name in reports.
    ///   - limit: bound of the sum of costs; `nil` for no bound except available memory.
    ///   - rebuildCost: cost of rebuilding a value.
    ///   - timeToLive: age at which a value counts as missing; `nil` for no expiration.
    public convenience init(
        ofBuffers name: String, limit: ByteCount? = nil, rebuildCost: RebuildCost = .cheap, timeToLive: Duration? = nil
    ) {
        self.init(name, limit: limit, rebuildCost: rebuildCost, timeToLive: timeToLive) { _, buffer in
            buffer.heldByteCount + MemoryLayout<Key>.stride + MemoryLayout<ByteBuffer>.stride + 64
        }
    }
}
#endif

#if NIO
public import NIOCore
public import Plimsoll

/// Stores the readable bytes; indices and capacity are not stored.
extension ByteBuffer: VolatileStorable {
    public func encode(into encoder: inout VolatileEncoder) {
        withUnsafeReadableBytes { encoder.append(contentsOf: $0) }
    }
    public init(decoding bytes: RawSpan) { self = bytes.withUnsafeBytes { ByteBuffer(bytes: $0) } }
    public var encodedByteCount: Int { readableBytes }

    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
        try withUnsafeReadableBytes(body)
    }

    public static func decoded(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) -> Bool) -> ByteBuffer? {
        var buffer = ByteBuffer()
        var isGood = false
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: byteCount) { target in
            isGood = fill(UnsafeMutableRawBufferPointer(rebasing: target[..<byteCount]))
            return isGood ? byteCount : 0
        }
        return isGood ? buffer : nil
    }
}
#endif
