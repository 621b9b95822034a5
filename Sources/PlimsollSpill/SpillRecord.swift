#if Spill
import CSpill
import Plimsoll

/// The content of a store under one key: a value, with the data that identifies and authenticates the record.
///
///     PLSP | format 3 | version 4 | generation 8 | length of key 4 | length of value 4
///     | time of writing 8 | time to live 8 | idle time 8 | HMAC-SHA-256 of all but itself 32 | key | value
///
/// Numbers are little-endian. Times are nanoseconds: that of writing since 1970, the others from then on, with the
/// largest number for ever. The HMAC also covers the prefix of the cache's names, so a record of one cache is
/// invalid for another. The HMAC rejects records written by other parties. Only a change of the generation rejects an
/// older record of the same key. Nothing is encrypted.
struct SpillRecord {
    /// The reason why bytes are not the requested record.
    enum Problem: Error { case damaged, otherVersion, otherKey }

    static let headerByteCount = codeOffset + codeByteCount
    private static let codeOffset = 49, codeByteCount = 32
    private static let mark: [UInt8] = Array("PLSP".utf8)
    private static let format: UInt8 = 3

    /// Version of the value format; chosen by the application.
    var version: UInt32
    var generation: UInt64
    /// Prefix of the cache's names in the store.
    var prefix: String
    /// Authentication key: any party with this key can write records.
    var secret: [UInt8]

    /// Returns the record of a value that stays valid for `left` from `now` on, the time since 1970. Returns nil if key
    /// or value has 4 GiB or more, or if the library for authentication reports an error.
    func bytes(_ key: [UInt8], _ value: [UInt8], _ left: TimeLeft, at now: Duration) -> [UInt8]? {
        guard let header = header(key.count, value.count, left, at: now) else { return nil }
        let body = key + value
        guard let code = Self.code(secret, prefix, header[...], body[...]) else { return nil }
        return header + code + body
    }

    /// Returns the header of a record up to the code; nil if a length does not fit 32 bits.
    func header(_ keyCount: Int, _ valueCount: Int, _ left: TimeLeft, at now: Duration) -> [UInt8]? {
        guard let keyCount = UInt32(exactly: keyCount), let valueCount = UInt32(exactly: valueCount) else { return nil }
        var header = Self.mark + [Self.format]
        Self.append(version, to: &header)
        Self.append(generation, to: &header)
        Self.append(keyCount, to: &header)
        Self.append(valueCount, to: &header)
        for time in [now, left.toLive, left.toIdle] { Self.append(time?.inNanoseconds ?? .max, to: &header) }
        return header
    }

    /// Returns the value in `bytes`, with the time left at `now`, the time since 1970; `nil` if the value is no longer
    /// valid. Checks that the bytes are complete, written with this secret, of this version and generation, and for
    /// `key`.
    func value(of key: [UInt8], in bytes: [UInt8], at now: Duration) throws(Problem) -> (
        bytes: [UInt8], left: TimeLeft
    )? {
        guard bytes.count >= Self.headerByteCount, bytes.starts(with: Self.mark), bytes[4] == Self.format else {
            throw .damaged
        }
        let keyCount = Int(Self.number(UInt32.self, at: 17, bytes)),
            valueCount = Int(Self.number(UInt32.self, at: 21, bytes))
        let body = bytes.dropFirst(Self.headerByteCount)
        guard body.count == keyCount + valueCount else { throw .damaged }
        let (foundKey, value) = (body.prefix(keyCount), body.dropFirst(keyCount))
        // CRYPTO_memcmp takes the same time wherever the first difference is.
        guard let code = Self.code(secret, prefix, bytes.prefix(Self.codeOffset), body),
            CRYPTO_memcmp(code, Array(bytes[Self.codeOffset..<Self.headerByteCount]), Self.codeByteCount) == 0
        else { throw .damaged }
        guard Self.number(UInt32.self, at: 5, bytes) == version, Self.number(UInt64.self, at: 9, bytes) == generation
        else { throw .otherVersion }
        guard foundKey.elementsEqual(key) else { throw .otherKey }
        func time(_ offset: Int) -> Duration? {
            let time = Self.number(Int64.self, at: offset, bytes)
            return time == .max ? nil : .nanoseconds(time)
        }
        let written = time(25) ?? .zero
        // A clock that was set back since tells no age.
        guard now >= written else { return nil }
        return TimeLeft(toLive: time(33), toIdle: time(41)).after(now - written).map { (Array(value), $0) }
    }

    /// Returns the name of a record in the store: short, with characters that every store accepts. Two keys with one
    /// name cause misses, nothing worse.
    func name(of key: [UInt8]) -> String {
        let hash = FNV1a.hash(key)
        return
            "\(prefix):\(String(generation, radix: 36)):\(String(hash, radix: 36))\(String(CRC32C.checksum(key), radix: 36))"
    }

    /// Returns the authentication code of a record, nil if the library reports an error. The header contains the
    /// lengths of key and value, so no two records with different parts yield the same bytes.
    private static func code(
        _ secret: [UInt8], _ prefix: String, _ header: ArraySlice<UInt8>, _ body: ArraySlice<UInt8>
    ) -> [UInt8]? {
        let message = header + body + prefix.utf8
        var length: UInt32 = 0
        let code = [UInt8](unsafeUninitializedCapacity: codeByteCount) { code, count in
            let written = message.withUnsafeBufferPointer {
                HMAC(EVP_sha256(), secret, Int32(secret.count), $0.baseAddress, $0.count, code.baseAddress, &length)
            }
            count = written == nil ? 0 : codeByteCount
        }
        return code.isEmpty || length != codeByteCount ? nil : code
    }

    private static func append(_ number: some FixedWidthInteger, to bytes: inout [UInt8]) {
        withUnsafeBytes(of: number.littleEndian) { bytes.append(contentsOf: $0) }
    }

    private static func number<T: FixedWidthInteger & BitwiseCopyable>(_ type: T.Type, at offset: Int, _ bytes: [UInt8])
        -> T
    {
        T(littleEndian: bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: T.self) })
    }
}

/// The default secret: each process has its own, never visible outside the process.
let processSecret: [UInt8] = (0..<32).map { _ in .random(in: .min ... .max) }
#endif

#if Spill
import Plimsoll

/// Encodes values to bytes and decodes bytes to values.
struct SpillCodec<Value: Sendable>: Sendable {
    let encode: @Sendable (Value) throws -> [UInt8]
    let decode: @Sendable ([UInt8]) throws -> Value?
    let byteCount: @Sendable (Value) -> Int

    init(
        byteCount: @escaping @Sendable (Value) -> Int, encode: @escaping @Sendable (Value) throws -> [UInt8],
        decode: @escaping @Sendable ([UInt8]) throws -> Value
    ) {
        (self.byteCount, self.encode, self.decode) = (byteCount, encode, { try decode($0) })
    }
}

extension SpillCodec where Value: VolatileStorable {
    /// The encoding of volatile memory. A value without an `encodedByteCount` counts as 1 KiB.
    static var storable: SpillCodec {
        SpillCodec(
            byteCount: { $0.encodedByteCount > 0 ? $0.encodedByteCount : 1024 },
            encode: { try $0.withEncodedBytes { Array($0) } },
            decode: { bytes in
                let value = try Value.decoded(byteCount: bytes.count) { target in
                    bytes.withUnsafeBytes { target.copyMemory(from: $0) }
                    return true
                }
                guard let value else {
                    throw VolatileDecodingError("cannot read \(Value.self) from \(bytes.count) bytes")
                }
                return value
            })
    }
}
#endif
