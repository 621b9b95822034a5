extension Array: VolatileStorable where Element == UInt8 {
    public func encode(into encoder: inout VolatileEncoder) { encoder.append(contentsOf: self) }
    public init(decoding bytes: RawSpan) { self = bytes.withUnsafeBytes { Array($0) } }
    public var encodedByteCount: Int { count }

    @inlinable
    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
        try withUnsafeBytes(body)
    }

    @inlinable
    public static func decoded(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) -> Bool) -> [UInt8]? {
        var isGood = false
        let bytes = [UInt8](unsafeUninitializedCapacity: byteCount) { buffer, count in
            isGood = fill(UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: byteCount))
            count = isGood ? byteCount : 0
        }
        return isGood ? bytes : nil
    }
}

extension String: VolatileStorable {
    public func encode(into encoder: inout VolatileEncoder) { encoder.append(self) }
    public init(decoding bytes: RawSpan) { self = bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
    public var encodedByteCount: Int { utf8.count }

    @inlinable
    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
        var text = self
        return try text.withUTF8 { try body(UnsafeRawBufferPointer($0)) }
    }

    @inlinable
    public static func decoded(byteCount: Int, fill: (UnsafeMutableRawBufferPointer) -> Bool) -> String? {
        var isGood = false
        let text = String(unsafeUninitializedCapacity: byteCount) { buffer in
            isGood = fill(UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: byteCount))
            return isGood ? byteCount : 0
        }
        return isGood ? text : nil
    }
}

extension VolatileStorable where Self: BitwiseCopyable {
    public func encode(into encoder: inout VolatileEncoder) { encoder.append(self) }

    @inlinable
    public init(decoding bytes: RawSpan) throws {
        guard bytes.byteCount == MemoryLayout<Self>.size else { throw Self.wrongSize(bytes.byteCount) }
        // These bytes were written by `encode`, so every bit pattern is a valid one.
        self = bytes.unsafeLoadUnaligned(as: Self.self)
    }

    @usableFromInline
    static func wrongSize(_ byteCount: Int) -> VolatileDecodingError {
        VolatileDecodingError("\(Self.self) has \(MemoryLayout<Self>.size) bytes, not \(byteCount)")
    }

    public var encodedByteCount: Int { MemoryLayout<Self>.size }

    @inlinable
    public func withEncodedBytes<R>(_ body: (UnsafeRawBufferPointer) throws -> R) throws -> R {
        try withUnsafeBytes(of: self) { try body($0) }
    }
}

extension Int: VolatileStorable {}
extension Int8: VolatileStorable {}
extension Int16: VolatileStorable {}
extension Int32: VolatileStorable {}
extension Int64: VolatileStorable {}
extension UInt: VolatileStorable {}
extension UInt8: VolatileStorable {}
extension UInt16: VolatileStorable {}
extension UInt32: VolatileStorable {}
extension UInt64: VolatileStorable {}
extension Float: VolatileStorable {}
extension Double: VolatileStorable {}
extension Bool: VolatileStorable {}
