#if Spill
public import Plimsoll

/// Encodes values to bytes and decodes bytes to values.
public struct SpillCodec<Value: Sendable>: Sendable {
    let encode: @Sendable (Value) throws -> [UInt8]
    let decode: @Sendable ([UInt8]) throws -> Value?
    let byteCount: @Sendable (Value) -> Int

    /// Creates a codec from closures. The closures run on a thread of the spill, or in the task that requests a
    /// value.
    ///
    /// - Parameters:
    ///   - byteCount: approximate memory of a value while queued; the bound of the queue uses this number. Called
    ///     when the cache evicts a value, possibly on the purging thread, so must be fast.
    ///   - encode: encodes a value. If the closure throws, the value is not stored, and counted.
    ///   - decode: decodes a value. If the closure throws, the value counts as missing.
    public init(
        byteCount: @escaping @Sendable (Value) -> Int, encode: @escaping @Sendable (Value) throws -> [UInt8],
        decode: @escaping @Sendable ([UInt8]) throws -> Value
    ) {
        (self.byteCount, self.encode, self.decode) = (byteCount, encode, { try decode($0) })
    }
}

extension SpillCodec where Value: VolatileStorable {
    /// The encoding of volatile memory. A value without an `encodedByteCount` counts as 1 KiB.
    public static var storable: SpillCodec {
        SpillCodec(
            byteCount: { $0.encodedByteCount > 0 ? $0.encodedByteCount : 1024 },
            encode: { try $0.withEncodedBytes { Array($0) } },
            decode: { bytes in
                let value = try Value.decoded(byteCount: bytes.count) { target in
                    bytes.withUnsafeBytes { target.copyMemory(from: $0) }
                    return true
                }
                guard let value else {
                    throw VolatileDecodingError("\(Value.self) could not be read from \(bytes.count) bytes")
                }
                return value
            })
    }
}
#endif
