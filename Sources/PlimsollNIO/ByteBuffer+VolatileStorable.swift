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
