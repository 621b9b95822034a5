#if Spill
public import Plimsoll

/// How values become bytes and bytes values.
public struct SpillCodec<Value: Sendable>: Sendable {
    let encode: @Sendable (Value) throws -> [UInt8]
    let decode: @Sendable ([UInt8]) throws -> Value?
    let byteCount: @Sendable (Value) -> Int

    /// Two closures, called on a thread of the spill's, or in the task that asks for a value.
    ///
    /// - Parameters:
    ///   - byteCount: about how many bytes a value occupies while it waits to be written: the bound of what waits goes by it. Called where the cache lets go of the
    ///     value, which may be the purging thread, so it is to be quick.
    ///   - encode: writes a value down; one for which it throws is not kept, and counted.
    ///   - decode: reads it back; if it throws, the value counts as missing.
    public init(
        byteCount: @escaping @Sendable (Value) -> Int, encode: @escaping @Sendable (Value) throws -> [UInt8],
        decode: @escaping @Sendable ([UInt8]) throws -> Value
    ) {
        (self.byteCount, self.encode, self.decode) = (byteCount, encode, { try decode($0) })
    }
}

extension SpillCodec where Value: VolatileStorable {
    /// As values are kept in volatile memory. A value that doesn't know its `encodedByteCount` counts for 1 KiB.
    public static var storable: SpillCodec {
        SpillCodec(
            byteCount: { $0.encodedByteCount > 0 ? $0.encodedByteCount : 1024 }, encode: { try $0.withEncodedBytes { Array($0) } },
            decode: { bytes in
                let value = try Value.decoded(byteCount: bytes.count) { target in
                    bytes.withUnsafeBytes { target.copyMemory(from: $0) }
                    return true
                }
                guard let value else { throw VolatileDecodingError("\(Value.self) could not be read from \(bytes.count) bytes") }
                return value
            })
    }
}
#endif
